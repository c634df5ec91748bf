import { execFileSync } from "node:child_process";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/index.ts";
import { treeAt } from "../changes/staged-folder.ts";
import { mountsBelow } from "../changes/view/opened-view.ts";
import { openProject, type ProjectFixture, type ProjectSpec, python, sh, writable } from "../run/project-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const CANARY = "CANARY: nobody may read or change this";
const MEBIBYTE = 1024 ** 2;
const zones = [{ name: "data", mode: "rw" }];

let outside: string;

beforeEach(async () => {
  outside = await mkdtemp(join(tmpdir(), "corral-outside-"));
  await mkdir(join(outside, "sub"));
  await writeFile(join(outside, "sub/canary"), CANARY);
});

afterEach(async () => {
  const now = treeAt(outside);
  await rm(outside, { recursive: true, force: true });
  expect(now).toEqual({ sub: null, "sub/canary": CANARY });
});

/** Consent must not be what stands in the way: everything is agreed to. */
async function openAgreed(spec: ProjectSpec, overlays: boolean): Promise<ProjectFixture> {
  return await openProject(spec, { approvalMode: "approve_all", overlays });
}

function changed({ changes }: RunResult): Record<string, string> {
  return Object.fromEntries(changes.map(({ kind, path, outcome, reason }) => [`${kind} ${path}`, reason ?? outcome]));
}

/** Makes in /data whatever could lead an application astray. What cannot even be made is told on standard output. */
const TRICKS = python(`
import json, os, shutil, socket, sys
outside = json.load(sys.stdin)
os.chdir("/data")
def attempt(name, action):
    try: action()
    except OSError as error: print(name, type(error).__name__, flush=True)
def write(path, text="x"):
    with open(path, "w") as file: file.write(text)
os.symlink("/etc/passwd", "absolute")
os.symlink(outside, "absolute-folder")
os.symlink("../secret", "up")
os.symlink("../../../../../etc/passwd", "far-up")
os.symlink("../data/kept", "by-virtual-name")
os.makedirs("deep/er")
os.symlink("../..", "deep/er/home")
os.symlink("deep/er/home/../secret", "chained")
os.symlink("sub/../../secret", "down-and-up")
os.symlink("deep/er/home/kept", "inside")
os.symlink("loop", "loop")
shutil.move("sub", "moved")
os.symlink("..", "sub")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
write("setuid"); os.chmod("setuid", 0o4755)
write("setgid"); os.chmod("setgid", 0o2755)
write("unreadable"); os.chmod("unreadable", 0o000)
os.mkdir("shut"); write("shut/file"); os.chmod("shut", 0o000)
os.link("kept", "hard")
attempt("link out", lambda: os.link("/etc/passwd", "hard-out"))
attempt("device", lambda: os.mknod("null", 0o20666, os.makedev(1, 3)))
attempt("disk", lambda: os.mknod("disk", 0o60666, os.makedev(8, 0)))
attempt("whiteout", lambda: os.mknod("whiteout", 0o20000, 0))
for key in "trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy":
    attempt(key, lambda: os.setxattr("deep", key, b"y"))
attempt("user.overlay", lambda: os.setxattr("deep", "user.overlay.redirect", outside.encode()))
for name in b"new\\nline", b"\\x1b[2Jred", b"-rf", b"n" * 255, b"not text \\xff", b"...": write(name)
sys.stdout.flush()
`);

const SPEC: ProjectSpec = {
  workers: { w: { image: "corral/python", command: TRICKS, sandbox: { zones } } },
  zones: { data: "rw" },
  files: { "data/kept": "kept", "data/sub/a": "a", secret: CANARY },
};

const LEADS_OUT = "it is a link that leaves its directory";
const NO_FILE = "it is not a file, a directory or a link";
const SET_ID = "it is setuid or setgid: it would run as its owner or group";
const UP_AGAIN = "it is a link with `..` after a name";

/** What became of the tricks, whichever run made them. */
function expectTold(told: Record<string, string>): void {
  expect(told).toMatchObject({
    "create /data/absolute": "it is an absolute link",
    "create /data/absolute-folder": "it is an absolute link",
    "create /data/up": LEADS_OUT,
    "create /data/far-up": LEADS_OUT,
    "create /data/by-virtual-name": LEADS_OUT,
    "create /data/deep/er/home": "applied",
    "create /data/chained": UP_AGAIN,
    "create /data/down-and-up": UP_AGAIN,
    "create /data/inside": "applied",
    "create /data/loop": "applied",
    "create /data/sub": LEADS_OUT,
    "delete /data/sub": "its replacement was refused",
    "create /data/fifo": NO_FILE,
    "create /data/socket": NO_FILE,
    "create /data/setuid": SET_ID,
    "create /data/setgid": SET_ID,
    "create /data/unreadable": "applied",
    "create /data/shut/file": "applied",
    "create /data/hard": "applied",
    "create /data/new\nline": "applied",
    "create /data/not text ?": "its name is not UTF-8",
  });
}

async function expectSafe({ dir }: ProjectFixture): Promise<void> {
  expect(await readFile(join(dir, "secret"), "utf8")).toBe(CANARY);
  const data = join(dir, "data");
  expect((await readdir(data)).sort()).toEqual(
    [
      "\x1b[2Jred",
      "-rf",
      "...",
      "deep",
      "hard",
      "inside",
      "kept",
      "loop",
      "moved",
      "n".repeat(255),
      "new\nline",
      "shut",
      "sub",
      "unreadable",
    ].sort(),
  );
  const [kept, hard] = [await lstat(join(data, "kept")), await lstat(join(data, "hard"))];
  expect([kept.nlink, hard.nlink, kept.ino === hard.ino]).toEqual([1, 1, false]);
  const modes = await Promise.all(
    ["unreadable", "shut"].map(async (name) => (await lstat(join(data, name))).mode & 0o7777),
  );
  expect(modes).toEqual([0, 0]);
  const found = execFileSync("find", [data, "-not", "-type", "f", "-not", "-type", "d", "-not", "-type", "l"]);
  expect(found.toString()).toBe("");
}

describe.each([true, false])("tricks in a staged directory (overlays: %s)", (overlays) => {
  it("are refused or harmless once everything is agreed to, and each is told", async () => {
    await using project = await openAgreed(SPEC, overlays);
    const result = await project.run("w", { input: outside });
    expect(result, result.stderr).toMatchObject({ status: "refused", exitCode: 0 });
    expect(result.stdout).toMatch(/^link out \w+Error\ndevice PermissionError\ndisk PermissionError\n/);
    if (overlays) expect(result.stdout).toContain("whiteout PermissionError");
    expect(result.stdout.match(/trusted\.overlay\.\w+ PermissionError/g)).toHaveLength(3);
    expectTold(changed(result));
    await expectSafe(project);
    expect(await project.traces()).toEqual([]);
    expect(mountsBelow(project.stateDir)).toEqual([]);
  });

  it("are no better in the view of a called run, or of one that that calls", async () => {
    const caller = (called: string) => ({
      command: sh(
        `corral-call ${called} "$(cat)" > /tmp/answer; jq -r .status /tmp/answer; cat /data/deep/er/home/kept`,
      ),
      calls: [called],
      sandbox: { zones },
      limits: { pids: 32 },
    });
    const workers = { ...SPEC.workers, one: caller("two"), two: caller("w") };
    await using project = await openAgreed({ ...SPEC, workers }, overlays);
    const result = await project.run("one", { input: outside });
    const leaf = result.calls[0]?.calls[0];
    expect(leaf?.status).toBe("refused");
    expectTold(changed(leaf ?? result));
    expect([result.stdout, result.calls[0]?.stdout]).toEqual(["kept", "kept"]);
    // What the leaf was refused is not there for its callers.
    expect(result.calls[0]).toMatchObject({ status: "succeeded" });
    expect(result).toMatchObject({ status: "succeeded", error: null });
    expect(Object.values(changed(result)).filter((outcome) => outcome !== "applied")).toEqual([]);
    await expectSafe(project);
    expect(await project.traces()).toEqual([]);
    expect(mountsBelow(project.stateDir)).toEqual([]);
  });

  it("a folder deeper than any path is refused where it becomes longer than one, and what else was written is kept", async () => {
    const dig = python(`
import os
os.chdir("/data")
for _ in range(400):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("bottom", "w").write("x")
open("/data/kept", "w").write("x")`);
    const workers = { w: { image: "corral/python", command: dig, sandbox: { zones }, limits: { disk: "64m" } } };
    await using project = await openAgreed({ workers, zones: { data: "rw" } }, overlays);
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", error: { code: "CHANGES_REFUSED" } });
    const outcomes = Object.entries(changed(result)).filter(([path]) => path !== "create /data/kept");
    expect(changed(result)["create /data/kept"]).toBe("applied");
    expect(outcomes.filter(([, outcome]) => outcome === "applied").length).toBeLessThan(4096 / 200);
    expect(new Set(outcomes.map(([, outcome]) => outcome))).toEqual(new Set(["applied", "its path is too long"]));
    expect(await readdir(join(project.dir, "data"))).toContain("kept");
    expect(await project.traces()).toEqual([]);
    expect(mountsBelow(project.stateDir)).toEqual([]);
  });

  // A copy is scanned by the same code, which test/changes/scan/scan.test.ts holds against a lower bound.
  it.skipIf(!overlays && !AT_LENGTH)(
    "more tiny files than it may bring back are refused in bounded memory",
    { timeout: 240_000 },
    async () => {
      const count = AT_LENGTH ? 100_000 : 50_001;
      const many = python(`for i in range(${count}): open(f'/data/{i}', 'w').close()`);
      const limits = { disk: "1g", timeout: "3m" };
      const workers = { w: { image: "corral/python", command: many, sandbox: { zones }, limits } };
      await using project = await openAgreed({ workers, zones: { data: "rw" } }, overlays);
      const rss = [process.memoryUsage.rss()];
      const looking = setInterval(() => rss.push(process.memoryUsage.rss()), 50);
      const result = await project.run("w").finally(() => clearInterval(looking));
      expect(result).toMatchObject({ status: "refused", error: { code: "CHANGES_NOT_TAKEN" }, changes: [] });
      expect(Math.max(...rss) - (rss[0] ?? 0)).toBeLessThan(300 * MEBIBYTE);
      expect(await readdir(join(project.dir, "data"))).toEqual([]);
      expect(await project.traces()).toEqual([]);
    },
  );

  it("a sparse file of a terabyte cannot be made, and smaller ones are held to what they seem to hold", async () => {
    const script = `truncate -s 1T /data/huge; echo $?; for i in 1 2 3; do truncate -s 7M /data/$i; done; ls -s /data/1`;
    const workers = { w: { command: sh(script), sandbox: { zones }, limits: { disk: "16m" } } };
    await using project = await openAgreed({ workers, zones: { data: "rw" } }, overlays);
    const result = await project.run("w");
    expect(result.stdout).toMatch(/^153\n0 /);
    expect(changed(result)).toEqual({
      "create /data/1": "applied",
      "create /data/2": "applied",
      "create /data/3": "with this change, more than 16 MiB would be written",
      "create /data/huge": "applied",
    });
    expect((await lstat(join(project.dir, "data/huge"))).size).toBe(0);
    expect((await lstat(join(project.dir, "data/1"))).blocks).toBeLessThan(64);
  });

  it("what may not be read is not seen, not overwritten and not deleted", async () => {
    const script = `cd /data; find . | sort; rm -rf ./* && echo new > b.key; echo new > big.txt; mv sub other; ls -A`;
    const zone = { name: "data", mode: "rw", suffixes: [".txt"], max_file_bytes: 10 };
    const files = { "data/a.txt": "a", "data/b.key": CANARY, "data/sub/c.key": CANARY, "data/big.txt": CANARY };
    const sandbox = { zones: { data: { path: "./data", mode: "rw", suffixes: [".txt"], max_file_bytes: 10 } } };
    const workers = { w: { command: sh(script), sandbox: { zones: [{ name: zone.name, mode: zone.mode }] } } };
    await using project = await openAgreed({ workers, zones: { data: "rw" }, files, sandbox }, overlays);
    const result = await project.run("w");
    expect(result.stdout).toBe(".\n./a.txt\n./sub\nb.key\nbig.txt\n");
    const tree = treeAt(join(project.dir, "data"));
    expect(tree).toEqual({ "b.key": CANARY, "big.txt": CANARY, sub: null, "sub/c.key": CANARY });
    expect(changed(result)).toMatchObject({
      "delete /data/a.txt": "applied",
      "create /data/b.key": "an entry that may not be read has that name",
      "create /data/big.txt": "an entry that may not be read has that name",
    });
  });

  it("a folder that another run swaps for a link while changes are applied leads nothing outside", {
    timeout: 120_000,
  }, async () => {
    const flip = python(`
import json, os, sys
outside = json.load(sys.stdin)
os.chdir("/data")
print("up", flush=True)
while True:
    try:
        os.rename("d", "aside"); os.symlink(outside, "d"); os.unlink("d"); os.rename("aside", "d")
    except OSError: pass`);
    const fill = sh(
      "mkdir -p /data/d/sub; for i in $(seq 60); do echo evil > /data/d/$i; done; echo evil > /data/d/sub/canary",
    );
    const workers = {
      flip: { image: "corral/python", command: flip, sandbox: { zones: [writable("data")] } },
      fill: { command: fill, sandbox: { zones } },
    };
    const spec = { workers, zones: { data: "rw" } as const, files: { "data/d/sub/canary": "theirs" } };
    await using project = await openAgreed(spec, overlays);
    const over = new AbortController();
    const flipping = project.run("flip", { input: outside, signal: over.signal });
    await project.printed("flip", "up");
    const statuses = new Set<string>();
    for (let round = 0; round < (AT_LENGTH ? 8 : 4); round++) statuses.add((await project.run("fill")).status);
    over.abort();
    expect((await flipping).status).toBe("cancelled");
    // Each run has an end of its own; that no canary was touched is looked at after each test.
    expect([...statuses].filter((status) => !["succeeded", "refused", "failed"].includes(status))).toEqual([]);
  });
});

describe.each([true, false])("a project's own files in a staged root (overlays: %s)", (overlays) => {
  it("cannot be changed, neither themselves nor by way of the folder that they are in", async () => {
    const script = `cd /project
      try() { "$@" 2> /dev/null || echo "no: $*"; }
      try sh -c 'echo evil >> corral.yaml'; try rm corral.yaml; try mv corral.yaml other.yaml; try ln -sf other corral.yaml
      try rm -rf config; try mv config moved; try mv config/workers moved; try touch config/workers/evil.worker
      try sh -c 'mkdir fresh && mv config fresh/'; try cp -r config copied; try sh -c 'echo evil > copied/workers/evil.worker'
      echo fine > free; ls`;
    await using project = await openAgreed(
      {
        workers: {},
        files: {
          "config/workers/w.worker": `---\n${JSON.stringify({ command: sh(script), sandbox: { inherit: true } })}\n---\n`,
          "config/other": "x",
        },
        sandbox: { mode: undefined, zones: undefined, root: { root: "." } },
        yaml: { workers: "./config/workers" },
        policy: "default",
      },
      overlays,
    );
    const before = treeAt(join(project.dir, "config"));
    const yaml = await readFile(join(project.dir, "corral.yaml"), "utf8");
    const result = await project.run("w");
    expect(result.stdout, result.stderr + JSON.stringify(result.error)).toMatch(
      /no: sh -c echo evil >> corral.yaml\nno: rm corral.yaml\n/,
    );
    expect(treeAt(join(project.dir, "config"))).toEqual(before);
    expect(await readFile(join(project.dir, "corral.yaml"), "utf8")).toBe(yaml);
    expect(await readFile(join(project.dir, "free"), "utf8")).toBe("fine\n");
    expect(changed(result)["create /free"]).toBe("applied");
  });
});
