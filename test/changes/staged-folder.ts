import fs from "node:fs";
import { dirname, join } from "node:path";
import { type Change, type Changeset, factsOf } from "../../src/changes/model/changeset.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

/** What stands in a folder: text for a file, null for a folder, `{link}` for a link, `{text, mode}` for other bits. */
export type Tree = Readonly<Record<string, Entry>>;
type Entry = string | null | { readonly link: string } | { readonly text: string; readonly mode: number };

/** A directory, and beside it the version that a run left behind, as a copied view would. */
export interface StagedFolder extends Disposable {
  readonly path: string;
  readonly target: string;
  readonly content: string;
  readonly logDir: string;
  /** What is different between the two, looked at now. */
  changeset(id?: string): Changeset;
}

export const MOUNT = "/work" as VirtualPath;

/** `folder`: an empty one, in place of a temporary folder of its own. */
export function stagedFolder(before: Tree, after: Tree, folder = temporaryFolder()): StagedFolder {
  const [target, content, logDir] = ["target", "content", "journal"].map((name) => join(folder.path, name)) as [
    string,
    string,
    string,
  ];
  for (const path of [target, content, logDir]) fs.mkdirSync(path);
  plant(target, before);
  plant(content, after);
  return {
    path: folder.path,
    target,
    content,
    logDir,
    changeset: (id = "0123456789ab") => changesetOf(target, content, id),
    [Symbol.dispose]: folder.remove,
  };
}

export function plant(root: string, tree: Tree): void {
  for (const [path, entry] of Object.entries(tree)) {
    const at = join(root, path);
    fs.mkdirSync(dirname(at), { recursive: true });
    if (entry === null) fs.mkdirSync(at, { recursive: true });
    else if (typeof entry === "string") fs.writeFileSync(at, entry);
    else if ("link" in entry) fs.symlinkSync(entry.link, at);
    else {
      fs.writeFileSync(at, entry.text);
      fs.chmodSync(at, entry.mode);
    }
  }
}

/** The tree that stands in a folder, in the words of {@link Tree}, without modes. */
export function treeAt(root: string): Record<string, Entry> {
  const tree: Record<string, Entry> = {};
  for (const path of fs.readdirSync(root, { recursive: true, encoding: "utf8" }).sort()) {
    const stats = fs.lstatSync(join(root, path));
    if (stats.isSymbolicLink()) tree[path] = { link: fs.readlinkSync(join(root, path)) };
    else if (stats.isDirectory()) tree[path] = null;
    else tree[path] = stats.isFile() ? fs.readFileSync(join(root, path), "utf8") : "(other)";
  }
  return tree;
}

function changesetOf(target: string, content: string, id: string): Changeset {
  const drafts: Omit<Change, "index">[] = [];
  const below = (parts: readonly string[]): void => {
    const names = new Set([...namesIn(join(target, ...parts)), ...namesIn(join(content, ...parts))]);
    for (const name of [...names].sort()) {
      drafts.push(...compared(target, content, [...parts, name]));
      if (isFolder(join(content, ...parts, name)) || isFolder(join(target, ...parts, name))) below([...parts, name]);
    }
  };
  below([]);
  const stats = fs.statSync(target, { bigint: true });
  const about = { version: 1, id, run: id.slice(0, 12), root: id.slice(0, 12), worker: "w", project: "/p" } as const;
  return {
    ...about,
    createdAt: "2026-11-22T00:00:00.000Z",
    mounts: [{ path: MOUNT, target, targetIdentity: `${stats.dev}:${stats.ino}`, content, closed: [] }],
    changes: inOrder(drafts).map((draft, index) => ({ ...draft, index })),
  };
}

function compared(target: string, content: string, parts: readonly string[]): Omit<Change, "index">[] {
  const [base, next] = [target, content].map((root) => {
    if (!isFolder(join(root, ...parts.slice(0, -1)))) return null;
    const stats = fs.lstatSync(join(root, ...parts), { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? null : factsOf(stats);
  }) as [Change["base"], Change["next"]];
  const text = next?.type === "link" ? { linkText: fs.readlinkSync(join(content, ...parts)) } : {};
  const about = { mount: 0, parts, path: `${MOUNT}/${parts.join("/")}` as VirtualPath, refusal: null };
  const gone = base === null ? [] : [{ ...about, kind: "delete", type: base.type, base, next: null } as const];
  const come = next === null ? [] : [{ ...about, kind: "create", type: next.type, base: null, next, ...text } as const];
  if (base === null || next === null || base.type !== next.type) return [...gone, ...come];
  const same =
    base.type === "directory"
      ? true
      : base.type === "link"
        ? fs.readlinkSync(join(target, ...parts)) === text.linkText
        : base.mode === next.mode &&
          fs.readFileSync(join(target, ...parts)).equals(fs.readFileSync(join(content, ...parts)));
  return same ? [] : [{ ...about, kind: "modify", type: next.type, base, next, ...text } as const];
}

/** As a changeset says: what gives way, folders from the top, files and links, deletions from the bottom. */
function inOrder(drafts: readonly Omit<Change, "index">[]): Omit<Change, "index">[] {
  const made = new Set(drafts.filter(({ kind }) => kind === "create").map(({ path }) => path));
  const givesWay = (path: string): boolean => [...made].some((one) => path === one || path.startsWith(`${one}/`));
  const stage = ({ kind, type, path }: Omit<Change, "index">): number => {
    if (kind === "delete") return givesWay(path) ? 0 : 3;
    return type === "directory" ? 1 : 2;
  };
  const upwards = ({ kind, parts }: Omit<Change, "index">): number => (kind === "delete" ? -1 : 1) * parts.length;
  return drafts.toSorted((a, b) => stage(a) - stage(b) || upwards(a) - upwards(b));
}

function namesIn(path: string): string[] {
  return isFolder(path) ? fs.readdirSync(path) : [];
}

function isFolder(path: string): boolean {
  try {
    return fs.lstatSync(path).isDirectory();
  } catch {
    return false;
  }
}
