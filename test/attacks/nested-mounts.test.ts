import { lstatSync } from "node:fs";
import { readFile, rename, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, python, sh } from "../run/project-fixture.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";

/*
 * A mount protects its own mount point, and nothing above that. A worker that may write the directory around a read-only mount
 * must not become its owner by moving a folder above it away, whatever the inner mount is and however deep it lies.
 */

/** Inner mounts, each under its own folder of `/site`, and what a reader of the inner mount alone must still find there. */
const INNER = {
  ro: { mode: "ro" },
  asks: { mode: "rw", approval: "ask" },
  blocked: { mode: "rw", approval: "blocked" },
  suffixes: { mode: "ro", suffixes: [".txt"] },
  dropped: { mode: "rw", approval: "pre_approved", discard: true },
} as const;
const BETWEEN = ["", "conf", "conf/a", "conf/a/b", "conf/a/b/c"] as const;

/** For each variant and depth a mount: its name, and its path below `/site`. */
const PLACES = Object.entries(INNER).flatMap(([kind, terms]) =>
  BETWEEN.map((between, depth) => {
    const path = [kind, String(depth), between, "locked"].filter((part) => part !== "").join("/");
    return { name: `${kind}${depth}`, path, terms };
  }),
);

const zones = {
  site: { path: "./site", at: "/site", mode: "rw", approval: "pre_approved" },
  ...Object.fromEntries(
    PLACES.map(({ name, path, terms }) => [name, { path: `./site/${path}`, at: `/site/${path}`, ...terms }]),
  ),
};
const files = Object.fromEntries(PLACES.map(({ path }) => [`site/${path}/f.txt`, "original"]));

/** Whatever a program can try against the folders on the way to each place, from the inside out. */
const ATTACK = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
won = []
def attempt(what, act):
    try: act()
    except OSError: return
    won.append(what)
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) != 0: raise OSError(ctypes.get_errno())
def unmount(path):
    if libc.umount2(path.encode(), 2) != 0: raise OSError(ctypes.get_errno())
def put(path):
    os.makedirs(path, exist_ok=True)
    with open(path + "/f.txt", "w") as file: file.write("evil")
os.makedirs("/site/mine/locked", exist_ok=True)
for place in sys.argv[1:]:
    parts = place.split("/")
    for end in range(len(parts), 0, -1):
        at = "/site/" + "/".join(parts[:end])
        rest = "/" + "/".join(parts[end:])
        if parts[0] != 'conf' and end <= 2 and end < len(parts) - 1: continue
        attempt("unmount " + at, lambda: unmount(at))
        attempt("rename " + at, lambda: (os.rename(at, "/site/gone"), put(at + rest)))
        attempt("exchange " + at, lambda: exchange(at, "/site/mine"))
        attempt("remove " + at, lambda: (os.rmdir(at), put(at + rest)))
        attempt("link " + at, lambda: (os.symlink("/site/mine", "/site/l"), os.replace("/site/l", at)))
        if os.path.islink("/site/l"): os.unlink("/site/l")
print("\\n".join(won))
`;

/** gVisor of Debian 12 ends its own cell at one of these. What the host then has is the same. */
const OF_GVISOR = { status: "lost", stdout: "" };

const worker = (command: readonly string[], sandbox: object) => ({ image: "corral/python", command, sandbox });

async function open(): Promise<ProjectFixture> {
  return await openProject({
    workers: {
      evil: worker([...python(ATTACK), ...PLACES.map(({ path }) => path)], { inherit: true }),
      reader: worker(sh("find /site -name f.txt -exec cat {} +"), {
        zones: PLACES.map(({ name }) => ({ name })),
      }),
    },
    zones: { site: "rw" },
    files,
    sandbox: { zones },
  });
}

describe("a folder between a writable mount and a mount inside of it", () => {
  it("is moved, removed, exchanged, replaced and unmounted by no worker, at any depth and whatever the inner mount is", async () => {
    await using project = await open();
    const before = PLACES.map(({ path }) => lstatSync(join(project.dir, "site", path)).ino);
    const evil = await project.run("evil");
    expect(evil, evil.stderr).toMatchObject(
      process.env.CORRAL_TEST_RUNTIME === "runsc" ? OF_GVISOR : { status: "succeeded", stdout: "\n" },
    );
    expect(PLACES.map(({ path }) => lstatSync(join(project.dir, "site", path)).ino)).toEqual(before);
    for (const file of Object.keys(files)) expect(await readFile(join(project.dir, file), "utf8")).toBe("original");
    const reader = await project.run("reader");
    expect(reader, reader.stderr).toMatchObject({ status: "succeeded", stdout: "original".repeat(PLACES.length) });
  });

  it("is moved, replaced and deleted by no tool, and not in a view", async () => {
    await using s = await openSessionIn({
      workers: { w: { ...worker(["true"], { inherit: true }), shell_rules: { default: "pre_approved" } } },
      zones: { site: "rw", staged: "rw" },
      files: { "site/conf/a/locked/f.txt": "original", "staged/conf/a/locked/f.txt": "original" },
      sandbox: {
        zones: {
          site: zones.site,
          locked: { path: "./site/conf/a/locked", at: "/site/conf/a/locked" },
          staged: { path: "./staged", mode: "rw", approval: "pre_approved", stage: true },
          locked_too: { path: "./staged/conf/a/locked", at: "/staged/conf/a/locked" },
        },
      },
    });
    for (const zone of ["site", "staged"]) {
      for (const path of [`/${zone}/conf`, `/${zone}/conf/a`, `/${zone}/conf/a/locked`]) {
        for (const [tool, input] of [
          ["move_file", { from: path, to: `/${zone}/gone` }],
          ["delete_file", { path, recursive: true }],
        ] as const) {
          const answer = await s.tool(tool, input);
          expect(answer, `${tool} ${path}`).toMatchObject({ ok: false });
          if (!path.endsWith("locked")) expect(answer).toMatchObject({ message: /granted separately/ });
        }
        const moved = await s.exec(`mv ${path} /${zone}/gone || rm -r ${path}; cat /${zone}/conf/a/locked/f.txt`);
        expect(moved.stdout).toBe("original");
      }
    }
    expect(await s.finish()).toMatchObject({ failure: null });
    for (const zone of ["site", "staged"]) {
      const file = join(s.project.dir, zone, "conf/a/locked/f.txt");
      expect(await readFile(file, "utf8")).toBe("original");
    }
  });
});

/** Calls a worker over the socket of its own cell, and prints how that ended and what it printed. */
const CALLER = `
import http.client, json, os, socket
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["CORRAL_SOCKET"])
connection = Connection("corral")
connection.request("POST", "/v1/calls", json.dumps({"worker": "evil"}))
told = json.load(connection.getresponse())
print(told["status"], told["stdout"].strip(), open("/site/conf/a/locked/f.txt").read())
`;

describe("a folder above an inner mount, for a called worker", () => {
  it.each([
    ["directly", {}],
    ["in the view of its caller", { stage: true }],
  ])("is held in its place too: %s", async (_, staging) => {
    await using project = await openProject({
      workers: {
        caller: { ...worker(python(CALLER), { inherit: true }), calls: ["evil"] },
        evil: worker([...python(ATTACK), "conf/a/locked"], { inherit: true }),
      },
      zones: { site: "rw" },
      files: { "site/conf/a/locked/f.txt": "original" },
      sandbox: {
        zones: {
          site: { ...zones.site, ...staging },
          locked: { path: "./site/conf/a/locked", at: "/site/conf/a/locked" },
        },
      },
    });
    const result = await project.run("caller");
    expect(result, result.stderr).toMatchObject({ status: "succeeded", stdout: "succeeded  original\n" });
    const anchors = project.planOf("evil").mounts.filter(({ origin }) => origin === "anchor");
    expect(anchors.map(({ path }) => path)).toEqual(["/site/conf", "/site/conf/a"]);
    expect(await readFile(join(project.dir, "site/conf/a/locked/f.txt"), "utf8")).toBe("original");
  });
});

/** A directory of the host that another run's worker may write, and has exchanged after Corral held it open. */
describe("a folder that is replaced between the check and the start", () => {
  it.each([
    ["by a link to another folder", (site: string) => symlink("other", join(site, "conf"))],
    ["by another folder", (site: string) => rename(join(site, "other"), join(site, "conf"))],
  ])("refuses the cell: %s", async (_, replace) => {
    await using project = await openProject({
      workers: { reads: worker(sh("cat /site/conf/locked/f.txt"), { inherit: true }) },
      zones: { site: "rw" },
      files: { "site/conf/locked/f.txt": "original", "site/other/locked/f.txt": "other" },
      sandbox: { zones: { site: zones.site, locked: { path: "./site/conf/locked", at: "/site/conf/locked" } } },
    });
    const site = join(project.dir, "site");
    const { driver } = project.corral.environment;
    const start = driver.start.bind(driver);
    driver.start = async (request) => {
      await rename(join(site, "conf"), join(site, "gone"));
      await replace(site);
      return await start(request);
    };
    const result = await project.run("reads");
    expect(result).toMatchObject({ status: "refused", stdout: "" });
    expect(result.violations.map(({ code }) => code)).toContain("MOUNT_SOURCE_REFUSED");
    expect(await project.traces()).toEqual([]);
  });
});
