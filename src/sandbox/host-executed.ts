import { type Mount, originOf } from "./mount.ts";
import { below, type VirtualPath } from "./virtual-path.ts";

/**
 * Names that programs of the host execute, or take commands from, although their user has only entered, opened or pushed the directory.
 * `*` is any one name, and `*` with more any part of a name. A row is about the entry itself and everything below it.
 *
 * Not here: what a user starts by name (tests, a Makefile, scripts of package.json), texts that only advise an agent (AGENTS.md), what is
 * only read (.editorconfig, .env), and of a repository the index, objects, refs and attributes: attributes only choose among the commands of
 * a configuration.
 */
const ROWS: readonly { readonly why: string; readonly names: readonly string[] }[] = [
  {
    why: "git on this machine would run this",
    names: [...listed(`.husky .githooks .git-hooks .lefthook .pre-commit-config.yaml .overcommit.yml`), ...lefthook()],
  },
  {
    why: "git on this machine would run what this names",
    names: listed(
      `.gitmodules .gitconfig .config/git .hg/hgrc .hg/hgrc-not-shared .hg/sharedpath .jj/repo/config.toml`,
    ),
  },
  {
    why: "an editor on this machine would run what this names",
    names: listed(`
      .vscode .vscode-server *.code-workspace .vs .idea .fleet .zed .theia .nova .helix .vim .vimrc .gvimrc .exrc
      .nvimrc .nvim.lua .lvimrc .emacs .emacs.d .dir-locals.el .config/nvim .config/emacs .config/helix .config/zed
      .config/Code
    `),
  },
  {
    why: "an editor or a service would build and start a container as this says",
    names: listed(`.devcontainer .devcontainer.json .gitpod.yml .gitpod.Dockerfile`),
  },
  {
    why: "an agent on this machine would run what this names",
    names: listed(`
      .mcp.json mcp.json .claude .claude.json .cursor .codex .gemini .windsurf .codeium .continue .cline .roo
      .roomodes .kiro .junie .amazonq .amp .goose .qwen .opencode opencode.json opencode.jsonc .aider.conf.yml
      .crush.json crush.json
    `),
  },
  {
    why: "a shell on this machine would run this",
    names: listed(`
      .envrc .direnv .direnvrc .config/direnv .autoenv .autoenv.zsh .profile .bashrc .bash_profile .bash_login
      .bash_logout .bash_aliases .inputrc .kshrc .mkshrc .zshrc .zshenv .zprofile .zlogin .zlogout .cshrc .tcshrc
      .login .logout .config/fish .config/bash .config/zsh .zsh .oh-my-zsh .pam_environment .local/bin
    `),
  },
  {
    why: "a version manager on this machine would run what this names",
    names: listed(`
      .tool-versions mise.toml mise.*.toml .mise.toml .mise.*.toml mise/config.toml .mise .config/mise
      .config/mise.toml .rtx.toml .asdfrc
    `),
  },
  {
    why: "a package manager on this machine would run what this names",
    names: listed(`
      .npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .pnpmfile.mjs .cargo/config
      .cargo/config.toml rust-toolchain rust-toolchain.toml
    `),
  },
  {
    why: "a program on this machine would run this when it starts here",
    names: listed(`
      .gdbinit .lldbinit .pdbrc .irbrc .pryrc .Rprofile .ghci .octaverc .pythonrc.py .ipython .jupyter .tmux.conf
      .screenrc .config/tmux .sqliterc .psqlrc
    `),
  },
  {
    why: "the desktop or the system of this machine would run what this names",
    names: listed(`
      .config/autostart .config/systemd .config/environment.d .local/share/systemd .xprofile .xsession .xsessionrc
      .xinitrc .ssh .gnupg .aws/config .aws/credentials .kube .docker/config.json .docker/cli-plugins
    `),
  },
  {
    why: "a CI service would run this after a push",
    names: listed(`
      .github/workflows .github/actions .gitea/workflows .forgejo/workflows .gitlab-ci.yml .gitlab/ci .circleci
      .travis.yml .buildkite .drone.yml .woodpecker .woodpecker.yml .woodpecker.yaml .cirrus.yml .semaphore .builds
      .build.yml .appveyor.yml appveyor.yml azure-pipelines.yml .azure-pipelines bitbucket-pipelines.yml Jenkinsfile
      .teamcity
    `),
  },
];

/** Names, with blanks between them. */
function listed(names: string): string[] {
  return names.trim().split(/\s+/);
}

function lefthook(): string[] {
  return ["lefthook", ".lefthook", "lefthook-local", ".lefthook-local"].flatMap((name) =>
    ["yml", "yaml", "toml", "json"].map((ending) => `${name}.${ending}`),
  );
}

const GIT_CONFIG = "git on this machine would run what this names";
const GIT_HOOK = "git on this machine would run this";
const GIT_ELSEWHERE = "git on this machine would take its configuration from where this leads";
export const GIT_REPOSITORY =
  "with this its directory is a repository, and git on this machine would run what its configuration names";

/** Of a repository's own directory, also of those of its submodules and work trees: by the first name in it. */
const OF_REPOSITORY: ReadonlyMap<string, string> = new Map([
  ["config", GIT_CONFIG],
  ["config.worktree", GIT_CONFIG],
  ["hooks", GIT_HOOK],
  ["commondir", GIT_ELSEWHERE],
  // The lines of a rebase that is not finished: `git rebase --continue` runs `exec` lines.
  ["rebase-merge", "git on this machine would run this when the rebase is continued"],
]);

/** Where agents keep whole work trees: what is in one is judged by itself. */
const WORK_TREES: ReadonlySet<string> = new Set([".claude", ".cursor", ".codex", ".windsurf", ".kiro", ".roo"]);

interface Pattern {
  readonly why: string;
  readonly parts: readonly string[];
}

const PATTERNS: readonly Pattern[] = ROWS.flatMap(({ why, names }) =>
  names.map((name) => ({ why, parts: name.toLowerCase().split("/") })),
);
const isOpen = ({ parts: [first = ""] }: Pattern): boolean => first.includes("*");
/** Those with a part of their first name open. */
const SHAPED: readonly Pattern[] = PATTERNS.filter(isOpen);
/** The others, by their first name. */
const BY_NAME: ReadonlyMap<string, readonly Pattern[]> = Map.groupBy(
  PATTERNS.filter((pattern) => !isOpen(pattern)),
  ({ parts: [first = ""] }) => first,
);

/** The names of the table that no part is open of, each with what may follow cut off: they are looked for one by one in large folders. */
export const FIRST_NAMES: readonly string[] = [
  ...new Set([
    ".git",
    ...WORK_TREES,
    ...ROWS.flatMap(({ names }) =>
      names.flatMap((name) => name.split("/")[0] ?? []).filter((name) => !name.includes("*")),
    ),
  ]),
];

/** Every name that {@link whyHostExecuted} compares with as a whole. */
const TELLING: ReadonlySet<string> = new Set([
  ...PATTERNS.flatMap(({ parts }) => parts),
  ...OF_REPOSITORY.keys(),
  ...listed("modules worktrees objects info alternates head"),
]);

/** What kind of entry is at a path; a directory alone runs nothing. */
export type EntryKind = "file" | "directory" | "link";

/**
 * Why a program of the host would act on this entry by itself; null: none would. `host`: its absolute path on the host, since what is above a
 * mount counts as well. Names are compared as file systems do that ignore the case and characters which cannot be seen.
 */
export function whyHostExecuted(host: string, kind: EntryKind): string | null {
  return whyOf(foldedParts(host), kind);
}

/** The same for many entries of one folder; of a directory: whether what is in it would be executed. */
export function hostExecutedBelow(folder: string): (name: string, kind: EntryKind) => string | null {
  const above = foldedParts(folder);
  const judge = (folded: string, kind: EntryKind): string | null =>
    whyOf([...above, folded, ...(kind === "directory" ? ["x"] : [])], kind === "link" ? "link" : "file");
  // All names that nothing here compares with are judged alike.
  const others = { file: judge("x", "file"), directory: judge("x", "directory"), link: judge("x", "link") };
  return (name, kind) => {
    const folded = foldedName(name);
    return isTelling(folded) ? judge(folded, kind) : others[kind];
  };
}

function isTelling(folded: string): boolean {
  if (TELLING.has(folded) || folded.endsWith(".git") || isGit(folded)) return true;
  return SHAPED.some(({ parts: [first = ""] }) => hasShape(folded, first));
}

function foldedParts(host: string): string[] {
  return host.split("/").flatMap((part) => (part === "" ? [] : [foldedName(part)]));
}

function whyOf(parts: readonly string[], kind: EntryKind): string | null {
  for (let at = 0; at < parts.length; at += 1) {
    const found = whyAt(parts, at, kind);
    if (found === "beyond") at += 2;
    else if (found === "ends") return null;
    else if (found !== null) return found;
  }
  return null;
}

/** `beyond`: it is in a work tree that a folder of this name holds. `ends`: nothing does, whatever the further names are. */
function whyAt(parts: readonly string[], at: number, kind: EntryKind): string | "beyond" | "ends" | null {
  const name = parts[at] ?? "";
  const rest = parts.slice(at + 1);
  if (isGit(name)) return whyInRepository(rest, kind, true) ?? "ends";
  if (name.endsWith(".git") && rest.length > 0) {
    const why = whyInRepository(rest, kind, false);
    if (why !== null) return why;
  }
  if (name === "head" && rest.length === 0 && kind !== "directory") return GIT_REPOSITORY;
  if (WORK_TREES.has(name) && rest[0] === "worktrees" && rest.length >= 2) return "beyond";
  const shaped = SHAPED.filter(({ parts: [first = ""] }) => hasShape(name, first));
  for (const { why, parts: wanted } of [...(BY_NAME.get(name) ?? []), ...shaped]) {
    const more = wanted.slice(1);
    const isAll = more.every((part, index) => rest[index] === part);
    // A link in the place of a directory above brings everything that is behind it.
    const isAbove = kind === "link" && rest.length < more.length && rest.every((part, index) => more[index] === part);
    if (isAbove || (isAll && (kind !== "directory" || rest.length > more.length))) return why;
  }
  return null;
}

function hasShape(name: string, shape: string): boolean {
  const [before = "", after = ""] = shape.split("*");
  return name.length > before.length + after.length && name.startsWith(before) && name.endsWith(after);
}

/** `rest`: the names in the repository's own directory. `isSure`: it is one by its name, so that nothing in it is a link. */
function whyInRepository(rest: readonly string[], kind: EntryKind, isSure: boolean): string | null {
  const [first = "", second] = rest;
  if (rest.length === 0) return kind === "directory" ? null : GIT_ELSEWHERE;
  if (kind === "link" && isSure) return GIT_ELSEWHERE;
  if (first === "modules" || first === "worktrees") {
    const inner = rest.slice(1);
    // The name of a submodule may have several parts.
    for (const [index, part] of inner.entries()) {
      const why = OF_REPOSITORY.get(part) ?? null;
      if (index > 0 && why !== null && (kind !== "directory" || index < inner.length - 1)) return why;
      if (index > 0 && isAlternates(inner.slice(index))) return GIT_ELSEWHERE;
    }
    return null;
  }
  if (isAlternates(rest)) return GIT_ELSEWHERE;
  const why = OF_REPOSITORY.get(first) ?? null;
  return why !== null && (kind !== "directory" || second !== undefined) ? why : null;
}

/** Git runs itself in a repository that lends objects, with the configuration of that one. */
function isAlternates([first, second, third, more]: readonly string[]): boolean {
  return first === "objects" && second === "info" && third === "alternates" && more === undefined;
}

/** `.git` under every name that a file system takes for it (CVE-2014-9390, CVE-2019-1352). */
function isGit(folded: string): boolean {
  return folded === ".git" || /^git~\d+$/.test(folded);
}

function foldedName(name: string): string {
  if (/^[a-z0-9._-]*[a-z0-9_-]$/.test(name)) return name;
  const folded = /^[\x21-\x7e]*$/.test(name)
    ? name
    : name.normalize("NFKC").replace(/\p{Default_Ignorable_Code_Point}/gu, "");
  // NTFS ignores dots and blanks at the end, and what follows a colon names a stream of the same file.
  return folded
    .replace(/:.*$/s, "")
    .replace(/[ .]+$/, "")
    .toLowerCase();
}

/** True if a change to such a name is asked for apart. Absence means yes. */
export function asksForHostExecuted({
  policy,
}: {
  readonly policy?: { readonly hardening: { readonly hostExecuted: "ask" | "allow" } };
}): boolean {
  return policy?.hardening.hostExecuted !== "allow";
}

/** The same for a path in a mount, by its place on the host. */
export function whyHostExecutedIn(mount: Mount, path: VirtualPath, kind: EntryKind): string | null {
  const rest = below(mount.path, path) ?? "";
  return whyHostExecuted(rest === "" ? originOf(mount) : `${originOf(mount)}/${rest}`, kind);
}

/** True if the mount itself is something that the host executes: `.vscode`, a directory of hooks, the file `.envrc`. */
export function isHostExecutedRoot(mount: Pick<Mount, "host" | "view">): boolean {
  return whyHostExecuted(originOf(mount), "file") !== null;
}
