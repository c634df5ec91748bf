import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import { join } from "node:path";

/** A bare repository as some server has it, and commits of somebody else in it. */
export interface Remote {
  readonly path: string;
  /** Somebody else's commit: contents by path, null for one that goes; answers with its id. */
  commit(files: Readonly<Record<string, string | Buffer | null>>, branch?: string): string;
  /** A commit of raw index lines (`mode id\tpath`), for names that no ordinary git would add. */
  commitRaw(lines: readonly { mode: string; content: string; path: string | Buffer }[]): string;
  /** The content of every file of a branch. */
  files(branch?: string): Record<string, string>;
  git(...args: string[]): string;
  remove(): void;
}

const ENV = {
  PATH: process.env.PATH ?? "",
  HOME: "/nonexistent",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "Somebody Else",
  GIT_AUTHOR_EMAIL: "else@example.org",
  GIT_COMMITTER_NAME: "Somebody Else",
  GIT_COMMITTER_EMAIL: "else@example.org",
};

export function bareRemote(files: Readonly<Record<string, string>> = {}): Remote {
  const base = fs.realpathSync(fs.mkdtempSync(join(os.tmpdir(), "corral-remote-")));
  const path = join(base, "remote.git");
  const run = (cwd: string, args: readonly string[], input?: string | Buffer, env = {}): Buffer =>
    execFileSync("git", args, {
      cwd,
      env: { ...ENV, ...env },
      stdio: ["pipe", "pipe", "pipe"],
      ...(input === undefined ? {} : { input }),
    });
  const git = (...args: string[]): string => run(path, args).toString().trim();
  run(base, ["init", "--quiet", "--bare", "--template=", "--initial-branch=main", path]);

  const remote: Remote = {
    path,
    git,
    commit(changes, branch = "main") {
      const ref = `refs/heads/${branch}`;
      const now = `Somebody Else <else@example.org> ${Math.floor(Date.now() / 1000)} +0000`;
      const begins = [`commit ${ref}`, `mark :1`, `committer ${now}`, "data 15", "somebody else's"];
      const continues = git("for-each-ref", "--format=%(refname)", ref) === "" ? [] : [`from ${ref}^0`];
      const changed = Object.entries(changes).flatMap(([name, content]) => {
        if (content === null) return [Buffer.from(`D ${name}\n`)];
        const bytes = Buffer.from(content as string);
        return [Buffer.from(`M 100644 inline ${name}\ndata ${bytes.length}\n`), bytes, Buffer.from("\n")];
      });
      // One program, where a working copy with its commit and push takes a dozen.
      const input = [
        Buffer.from(`${[...begins, ...continues].join("\n")}\n`),
        ...changed,
        Buffer.from("get-mark :1\n"),
      ];
      return run(path, ["fast-import", "--quiet"], Buffer.concat(input)).toString().trim();
    },
    commitRaw(lines) {
      // Each tree by itself, since an index does not take such names.
      const entries = lines.map(({ mode, content, path: name }) => {
        const id = run(path, ["hash-object", "-w", "--stdin"], content).toString().trim();
        return { mode, id, parts: Buffer.from(name).toString("latin1").split("/") };
      });
      const tree = treeOf(entries, (text) =>
        run(path, ["mktree", "-z", "--missing"], Buffer.from(text, "latin1")).toString().trim(),
      );
      const commit = run(path, ["commit-tree", tree, "-m", "raw"]).toString().trim();
      git("update-ref", "refs/heads/main", commit);
      return commit;
    },
    files(branch = "main") {
      const names = git("ls-tree", "-r", "-z", "--name-only", branch)
        .split("\0")
        .filter((name) => name !== "");
      return Object.fromEntries(names.map((name) => [name, run(path, ["show", `${branch}:${name}`]).toString()]));
    },
    remove: () => fs.rmSync(base, { recursive: true, force: true }),
  };
  if (Object.keys(files).length > 0) remote.commit(files);
  return remote;
}

interface RawEntry {
  readonly mode: string;
  readonly id: string;
  readonly parts: readonly string[];
}

function treeOf(entries: readonly RawEntry[], make: (text: string) => string): string {
  const own = entries.filter(({ parts }) => parts.length === 1);
  const folders = Map.groupBy(
    entries.filter(({ parts }) => parts.length > 1),
    ({ parts }) => parts[0] ?? "",
  );
  const lines = own.map(
    ({ mode, id, parts: [name] }) => `${mode} ${mode === "160000" ? "commit" : "blob"} ${id}\t${name}\0`,
  );
  for (const [name, inner] of folders) {
    const tree = treeOf(
      inner.map(({ parts, ...rest }) => ({ ...rest, parts: parts.slice(1) })),
      make,
    );
    lines.push(`040000 tree ${tree}\t${name}\0`);
  }
  return make(lines.join(""));
}
