import { lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type OpenedSession, openSession, type SessionRequest } from "../../src/run/open-session.ts";
import { openProject, type ProjectFixture } from "../run/project-fixture.ts";

const never = new AbortController().signal;
const ZONE = { mode: "rw", approval: "pre_approved", stage: true };
let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({
    workers: {
      // `out` is shown as an overlay, and `small` as a copy, in which the cell writes to the layer itself.
      w: {
        image: "corral/python",
        command: ["true"],
        sandbox: {
          zones: [
            { name: "out", ...ZONE },
            { name: "small", ...ZONE },
          ],
        },
        shell_rules: { default: "pre_approved" },
      },
    },
    zones: { out: "rw", small: "rw" },
    sandbox: {
      zones: {
        out: { path: "./out", mode: "rw" },
        small: { path: "./small", mode: "rw", max_file_bytes: 100_000 },
      },
    },
    files: {
      "out/kept/inner": "of the host",
      "out/gone/inner": "of the host",
      "small/kept/inner": "of the host",
      "small/gone/inner": "of the host",
      "secret/inner": "secret of the host",
    },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

type Open = Extract<OpenedSession, { ok: true }>;

async function opening(more: Partial<SessionRequest>): Promise<OpenedSession> {
  const worker = project.corral.project.workers.get("w");
  if (worker === undefined) throw new Error("no such worker");
  return await openSession({ worker, signal: never, ...more }, project.corral.environment);
}

async function open(more: Partial<SessionRequest> = {}): Promise<Open> {
  const opened = await opening(more);
  if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
  return opened;
}

async function ran({ session }: Open, command: string): Promise<string> {
  const { stdout, stderr } = await session.exec({ command }, never);
  return stdout + stderr;
}

function snapshotsOf({ session }: Open) {
  if (session.snapshots === null) throw new Error("it takes none");
  return session.snapshots;
}

/** Prints how each attempt to make a special entry ended. */
const PLANTED = `python3 - <<'END'
import os, stat
def tried(what, act, *given):
    try:
        act(*given)
        print(what, "made")
    except OSError as error:
        print(what, error.strerror)
for top in ("/out", "/small"):
    os.symlink("/etc/passwd", top + "/passwd")
    os.symlink("../secret", top + "/up")
    os.mkfifo(top + "/fifo")
    open(top + "/suid", "w").write("#!/bin/sh\\n")
    os.chmod(top + "/suid", 0o6755)
    open(top + "/sparse", "w").truncate(50_000)
    for name in ("kept", "gone"):
        for attribute, value in (("opaque", b"y"), ("redirect", b"/secret"), ("metacopy", b"")):
            tried(top + " user " + attribute, os.setxattr, top + "/" + name, "user.overlay." + attribute, value)
            for space in ("trusted.overlay.", "trusted.overlay.overlay."):
                tried(top + " trusted", os.setxattr, top + "/" + name, space + attribute, value)
    tried(top + " disk", os.mknod, top + "/disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0))
    tried(top + " zero", os.mknod, top + "/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    tried(top + " whiteout", os.mknod, top + "/whiteout", 0o666 | stat.S_IFCHR, 0)
END
rm -r /out/gone/inner /small/gone/inner`;

const TREES =
  "ls -l /out /small | sed 's/  */ /g' | cut -d ' ' -f 1,9-; cat /out/*/inner /small/*/inner; cat /out/passwd";

describe("what a hostile session leaves in its snapshot", () => {
  it("is shown as it was, leads nowhere, and none of it is an instruction to the kernel", async () => {
    await using a = await open();
    const planted = await ran(a, PLANTED);
    expect(planted).not.toMatch(/trusted made|disk made|zero made/);
    expect(planted).not.toContain("Traceback");
    const before = await ran(a, TREES);
    const passwd = await ran(a, "cat /etc/passwd");
    const growing = "setsid sh -c 'while :; do echo x >> /out/grows; done' & wait";
    await a.session.start({ command: growing, hasInput: false, isBackground: true }, false, never);
    await expect.poll(() => ran(a, "test -s /out/grows && echo yes")).toBe("yes\n");
    const { id } = await snapshotsOf(a).take(null);
    const size = await ran(a, "wc -c < /out/grows");
    expect(await ran(a, "sleep 0.2; wc -c < /out/grows; rm /out/grows")).toBe(size);
    expect(await ran(a, TREES)).toBe(before);
    expect((await snapshotsOf(a).differences(id, never)).map(({ kind, path }) => [kind, path])).toEqual([
      ["delete", "/out/grows"],
    ]);
    await using fork = await open({ from: id });
    expect(await ran(fork, "wc -c < /out/grows; rm /out/grows")).toBe(size);
    expect(await ran(fork, TREES)).toBe(before);
    expect(before).toContain("of the host");
    expect(before).not.toContain("secret of");
    expect(before.endsWith(passwd)).toBe(true);
    expect(await ran(fork, "cat /out/up/inner /small/up/inner")).not.toContain("secret of");
    await snapshotsOf(fork).restore(id);
    expect(await ran(fork, "ls /out/kept /small/kept")).toBe("/out/kept:\ninner\n\n/small/kept:\ninner\n");
    const mounts = (await readFile("/proc/self/mountinfo", "utf8"))
      .split("\n")
      .filter((line) => line.includes(project.corral.stateDir) && line.includes(" overlay "));
    expect(mounts.length).toBeGreaterThan(0);
    for (const line of mounts) {
      expect(line).toMatch(/nosuid,nodev/);
      expect(line).not.toMatch(/userxattr|redirect_dir=(?:on|follow)|metacopy=on/);
    }
    // Others of this machine have no way to a program with a set-user-id bit in it.
    expect((await lstat(join(project.corral.stateDir, "snapshots"))).mode & 0o777).toBe(0o700);
    await fork.finish();
    for (const top of ["out", "small"]) {
      const types = await readdir(join(project.dir, top), { withFileTypes: true });
      expect(types.filter((one) => !one.isFile() && !one.isDirectory() && !one.isSymbolicLink())).toEqual([]);
      expect(await readFile(join(project.dir, top, "kept/inner"), "utf8")).toBe("of the host");
    }
    expect(await readFile(join(project.dir, "secret/inner"), "utf8")).toBe("secret of the host");
  });
});

describe("a fork that asks for more than its session had", () => {
  it("is refused, and no name leads out of the snapshots", async () => {
    const narrow: SessionRequest["narrow"] = () => ({ allowWrite: ["/out"], allowRead: [] });
    await using a = await open({ narrow });
    expect((await a.session.runTool("write_file", { path: "/out/n", content: "n" }, never)).ok).toBe(true);
    const { id, has } = await snapshotsOf(a).take("narrow");
    expect(has).toEqual(["/out"]);
    const fork = await opening({ from: "narrow" });
    expect(fork.ok ? [] : fork.violations.map(({ code }) => code)).not.toEqual([]);
    await using b = await open();
    await expect(snapshotsOf(b).restore("narrow")).rejects.toThrow("'small' is not available");
    expect(await snapshotsOf(b).list()).toMatchObject([{ name: "narrow" }]);
    for (const wanted of ["../../changes", "layers", ".", "", `${id}/../${id}`, `${id}\0`]) {
      await expect(opening({ from: wanted })).rejects.toMatchObject({ code: "UNKNOWN_SNAPSHOT" });
      await expect(snapshotsOf(b).remove(wanted)).rejects.toMatchObject({ code: "UNKNOWN_SNAPSHOT" });
    }
    for (const name of ["../x", "a/b", "", "a\nb", "x".repeat(300)])
      await expect(snapshotsOf(b).take(name)).rejects.toMatchObject({ code: "BAD_NAME" });
  });
});
