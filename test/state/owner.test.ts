import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeOwnerDir, reapLiveDirs } from "../../src/state/live-dir.ts";
import { currentOwner, formatOwner, isDead, loadSealKey, type Owner, parseOwner } from "../../src/state/owner.ts";
import { stateDirFrom } from "../../src/state/state-dir.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-own-"));
});
afterEach(() => rm(dir, { recursive: true }));

const self = currentOwner();
const gone: Owner = { ...self, startTicks: "1" };

/** The fields of proc(5) that tell a process from the next one of its number. */
async function ownerOfProcess(pid: number): Promise<Owner> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  return { ...self, pid, startTicks: stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "" };
}

describe("an owner", () => {
  it("is this process, and reads back what was written", () => {
    expect(self.pid).toBe(process.pid);
    expect(Object.values(self).every((value) => value !== "")).toBe(true);
    expect(parseOwner(formatOwner(self))).toEqual(self);
  });

  it.each(["", "a|b|c|d", "m|b|n|12|34|more", "m|b|n|pid|34", "m|b|n|0|34", "m|b|n|-1|34"])(
    "is not to be read from %j",
    (text) => expect(parseOwner(text)).toBeNull(),
  );

  it("is dead where its process is another one by now, or none", () => {
    expect(isDead(self, self)).toBe(false);
    expect(isDead(gone, self)).toBe(true);
    expect(isDead({ ...self, pid: 2 ** 22 + 1 }, self)).toBe(true);
  });

  it("is dead where the machine has been started anew since", () => {
    expect(isDead({ ...self, boot: "another boot" }, self)).toBe(true);
  });

  it.each([
    ["of another machine", { ...gone, machine: "another" }],
    ["of another machine and boot", { ...gone, machine: "another", boot: "another" }],
    ["in another process namespace", { ...gone, pidNamespace: "pid:[1]" }],
  ])("that cannot be seen from here is left alone: one %s", (_, owner) => {
    expect(isDead(owner, self)).toBe(false);
  });

  it("lives as long as its process, and is dead when that was killed, also before its parent has noticed", async () => {
    // The shell's child is killed, and the shell stops without ever waiting for it.
    const shell = spawn("sh", ["-c", "sleep 60 & echo $!; kill -STOP $$"], { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await once(shell.stdout, "data");
    const owner = await ownerOfProcess(Number(String(line)));
    expect(isDead(owner, self)).toBe(false);
    // A shell that is still running would notice the end of its child.
    while (!(await readFile(`/proc/${shell.pid}/stat`, "utf8")).includes(") T "))
      await new Promise((later) => setTimeout(later, 5));
    process.kill(owner.pid, "SIGKILL");
    while (!isDead(owner, self)) await new Promise((later) => setTimeout(later, 5));
    expect((await readFile(`/proc/${owner.pid}/stat`, "utf8")).includes(") Z ")).toBe(true);
    shell.kill("SIGKILL");
    await once(shell, "exit");
  });
});

describe("the key of a state directory's seals", () => {
  it("is made once, also where several ask for it first, and only its owner can read it", async () => {
    const stateDir = join(dir, "new/state");
    const keys = await Promise.all(Array.from({ length: 20 }, () => loadSealKey(stateDir)));
    expect(new Set(keys.map((key) => key.toString("hex"))).size).toBe(1);
    expect(keys[0]).toHaveLength(32);
    expect((await stat(join(stateDir, "seal.key"))).mode & 0o777).toBe(0o600);
    expect(await readdir(stateDir)).toEqual(["seal.key"]);
  });

  it("is another in another state directory", async () => {
    const [one, other] = await Promise.all([loadSealKey(join(dir, "a")), loadSealKey(join(dir, "b"))]);
    expect(one?.equals(other as Buffer)).toBe(false);
  });
});

describe("the temporary directories of orchestrators", () => {
  it("are removed where their owner is dead, and only those", async () => {
    const mine = await makeOwnerDir(dir, self);
    const dead = await makeOwnerDir(dir, gone);
    const foreign = await makeOwnerDir(dir, { ...gone, machine: "another" });
    await Promise.all([makeOwnerDir(dir, gone)]);
    expect((await reapLiveDirs(dir, self)).removed).toHaveLength(2);
    expect((await readdir(dir)).map((name) => join(dir, name)).sort()).toEqual([mine, foreign].sort());
    expect(dead).not.toBe(mine);
    expect(await reapLiveDirs(dir, self)).toEqual({ removed: [], failed: [] });
  });

  it.skipIf(process.getuid?.() !== 0)("are removed though one of them cannot be", async () => {
    const held = await makeOwnerDir(dir, gone);
    await makeOwnerDir(dir, gone);
    await mkdir(join(held, "of-root"));
    await writeFile(join(held, "of-root/file"), "");
    await promisify(execFile)("chattr", ["+i", join(held, "of-root/file")]);
    try {
      const { removed, failed } = await reapLiveDirs(dir, self);
      expect([removed.length, failed.map(({ name }) => name)]).toEqual([1, [basename(held)]]);
    } finally {
      await promisify(execFile)("chattr", ["-i", join(held, "of-root/file")]);
    }
  });

  it("are several of one process, so that closing one project leaves the sockets of another", async () => {
    expect(await makeOwnerDir(dir, self)).not.toBe(await makeOwnerDir(dir, self));
  });

  it("leave room for the name of a socket in the bytes that its path may have", async () => {
    expect((await makeOwnerDir(dir, self)).length - dir.length).toBeLessThan(20);
  });

  it("can be none at all", async () => {
    expect(await reapLiveDirs(join(dir, "none"), self)).toEqual({ removed: [], failed: [] });
  });
});

describe("the key of the seals", () => {
  it("is refused where it is not whole, since an empty one could be guessed", async () => {
    const dir = await mkdtemp(join(tmpdir(), "corral-key-"));
    try {
      await writeFile(join(dir, "seal.key"), "");
      await expect(loadSealKey(dir)).rejects.toThrow(/not a complete key/);
    } finally {
      await rm(dir, { recursive: true });
    }
  });
});

describe("stateDirFrom", () => {
  it("takes Corral's own variable first, then XDG's, then the home folder", () => {
    const env = { CORRAL_STATE_DIR: "/one", XDG_STATE_HOME: "/two", HOME: "/three" };
    expect(stateDirFrom(env)).toBe("/one");
    expect(stateDirFrom({ ...env, CORRAL_STATE_DIR: "" })).toBe("/two/corral");
    expect(stateDirFrom({ HOME: "/three" })).toBe("/three/.local/state/corral");
    expect(stateDirFrom({})).toBe(`${homedir()}/.local/state/corral`);
  });

  it("is absolute: Corral's own variable counts from the working directory, a relative XDG one is ignored", () => {
    expect(stateDirFrom({ CORRAL_STATE_DIR: "here" })).toBe(`${process.cwd()}/here`);
    expect(stateDirFrom({ XDG_STATE_HOME: "here", HOME: "/three" })).toBe("/three/.local/state/corral");
  });
});
