import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/run/model/result.ts";
import { type CliProject, cliProject } from "../cli/cli-project.ts";

const CANARY = "CANARY: no worker may read or change this\n";
const isRoot = process.getuid?.() === 0;

let outside: string;
let folder: CliProject;

beforeAll(async () => {
  folder = await cliProject({ yaml: null, workers: {} });
});
afterAll(async () => {
  await folder[Symbol.asyncDispose]();
});
beforeEach(async () => {
  outside = await realpath(await mkdtemp(join(tmpdir(), "corral-outside-")));
  await writeFile(join(outside, "canary"), CANARY, { mode: 0o600 });
  await mkdir(join(folder.dir, "out"));
});
afterEach(async () => {
  const found = [await readdir(outside), await readFile(join(outside, "canary"), "utf8")];
  await rm(outside, { recursive: true });
  for (const name of await readdir(folder.dir)) await rm(join(folder.dir, name), { recursive: true });
  expect(found).toEqual([["canary"], CANARY]);
});

const here = (path: string) => join(folder.dir, path);
const run = async (...args: string[]) => await folder.corral(["run", ...args]);
const sh = (script: string) => ["--", "sh", "-c", script];

/** What became of each change. */
async function changed(...args: string[]): Promise<Record<string, string>> {
  const { stdout } = await run("--json", ...args);
  const { changes } = JSON.parse(stdout) as RunResult;
  return Object.fromEntries(changes.map(({ kind, path, outcome, reason }) => [`${kind} ${path}`, reason ?? outcome]));
}

describe("a command that was given --rw, and --apply", () => {
  const tricks = (to: string) => `
    cd /out; ln -s ${to} folder; ln -s ${to}/canary file; ln -s ../../../../etc/passwd up
    echo x > setuid; chmod 4755 setuid; echo x > setgid; chmod 2755 setgid
    mkfifo fifo; mknod device c 1 3 2>/dev/null && echo made; echo good > good; true`;
  const told = {
    "create /out/folder": "it is an absolute link",
    "create /out/file": "it is an absolute link",
    "create /out/up": "it is a link that leaves its directory",
    "create /out/setuid": "it is setuid or setgid: it would run as its owner or group",
    "create /out/setgid": "it is setuid or setgid: it would run as its owner or group",
    "create /out/fifo": "it is not a file, a directory or a link",
    "create /out/good": "applied",
  };

  it("leaves no link out, no setuid file and no device, in a folder of the user of cells", async () => {
    if (isRoot) await chown(here("out"), 65532, 65532);
    expect(await changed("--apply", "--rw", "out", ...sh(tricks(outside)))).toEqual(told);
    expect(await readdir(here("out"))).toEqual(["good"]);
  });

  it.runIf(isRoot)("nor in one that is lent to it, whose new files are root's and nothing more", async () => {
    expect(await changed("--apply", "--rw", "out", ...sh(tricks(outside)))).toEqual(told);
    expect(await readdir(here("out"))).toEqual(["good"]);
    expect(await lstat(here("out/good"))).toMatchObject({ uid: 0, gid: 0, mode: 0o100644 });
  });

  it.runIf(isRoot)("cannot bring back a changed setuid file of root as one", async () => {
    await writeFile(here("out/tool"), "echo safe\n");
    await chmod(here("out/tool"), 0o4755);
    await run("--apply", "--rw", "out", ...sh("echo evil > /out/tool; chmod 4755 /out/tool"));
    const { mode } = await stat(here("out/tool"));
    const text = await readFile(here("out/tool"), "utf8");
    expect(text === "echo evil\n" && (mode & 0o6000) !== 0).toBe(false);
  });

  it("leaves nothing at all if it fails, and nothing if it is not asked to apply", async () => {
    await run("--apply", "--rw", "out", ...sh("echo x > /out/x; exit 1"));
    await run("--rw", "out", ...sh("echo x > /out/x"));
    expect(await readdir(here("out"))).toEqual([]);
  });
});

describe("what --ro and --rw name", () => {
  it("is the real folder behind a link, and a link in it leads nowhere, also in a copy that is lent", async () => {
    await mkdir(here("real"));
    await writeFile(here("real/own"), "own\n");
    await symlink("real", here("linked"));
    await symlink(join(outside, "canary"), here("real/far"));
    // For root the folder is lent: it has a file that only root can read.
    await chmod(here("real/own"), isRoot ? 0o600 : 0o644);
    const { stdout, stderr } = await run("--ro", "linked", ...sh("cat /real/own; cat /real/far; ls /"));
    expect(stdout).toContain("own\n");
    expect(stdout + stderr).not.toContain("CANARY");
    expect(stdout).not.toContain(basename(outside));
  });

  it("is not the whole file system, Corral's state, the Engine's socket or the system's folders", async () => {
    const refused = async (path: string) => {
      const { status, stderr, stdout } = await run("--ro", path, "--", "true");
      expect([status, stdout], path).toEqual([126, ""]);
      return stderr;
    };
    expect(await refused("/")).toContain("it is the whole file system");
    expect(await refused(`${folder.stateDir}=s`)).toContain("it lies in Corral's own state");
    expect(await refused(`${dirname(folder.stateDir)}=s`)).toContain("it holds Corral's own state");
    expect(await refused("/run=r")).toMatch(/it holds the Engine's socket|operating system/);
    expect(await refused("/etc=e")).toContain("it lies in a directory of the operating system");
    expect(await refused("/proc/self=p")).toContain("operating system");
  });

  it("is refused with --rw if a link in one writable folder leads to another", async () => {
    await mkdir(here("out/inner"));
    await symlink(outside, here("out/there"));
    const { status, stderr } = await run("--rw", "out", "--ro", "out/there=t", "--", "cat", "/t/canary");
    expect(status).toBe(2);
    expect(stderr).toContain("leads through a symbolic link in a directory that a worker may write");
  });

  it("shows no escape sequence of its name", async () => {
    await mkdir(here("\u001b[2J\u202eevil"));
    const { status, stderr } = await run("--ro", "\u001b[2J\u202eevil", "--", "true");
    expect(status).toBe(2);
    expect(stderr).toMatch(/^[\x20-\x7e\n\\]*$/);
  });
});

describe("a corral.yaml of somebody else", () => {
  it.runIf(isRoot)("in a folder above is neither read nor found, and its workers are not run", async () => {
    await mkdir(here("theirs/sub/workers"), { recursive: true });
    await writeFile(here("theirs/corral.yaml"), "version: 1\npolicy: default\nsandbox: { network: true, oops: 1 }\n");
    await chown(here("theirs/corral.yaml"), 23456, 23456);
    const inside = await folder.corral(["run", "--json", "--", "id", "-u"], { cwd: "theirs/sub" });
    expect(JSON.parse(inside.stdout)).toMatchObject({ status: "succeeded", stdout: "65532\n" });
    const named = await folder.corral(["run", "id"], { cwd: "theirs/sub" });
    expect([named.status, named.stderr]).toEqual([2, expect.stringContaining("belongs to another user")]);
  });

  it("in the working directory is not read by a command that has its own options", async () => {
    await writeFile(here("corral.yaml"), "version: 1\npolicy: default\napproval: { mode: approve_all }\n");
    const { stderr } = await run("--rw", "out", ...sh("echo x > /out/x; id -u >&2"));
    expect(stderr).toContain("corral changes apply");
    expect(await readdir(here("out"))).toEqual([]);
    const loose = await run("--rw", ".=all", "--apply", ...sh("echo policy: default > /all/corral.yaml"));
    expect(loose.status).toBe(126);
    expect(await readFile(here("corral.yaml"), "utf8")).toContain("approve_all");
  });
});
