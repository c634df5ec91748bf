import { type ChildProcess, execFileSync, type SpawnOptionsWithStdioTuple, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { endStarters } from "../../../src/isolation/runc/remains/remove-cell.ts";

const ID = "corral-00000000-a-run";
const STARTED = ["--root", "/state", "--log", "/log", "--log-format", "json", "run", "--keep", "--bundle", "/b", ID];

let dir: string;
let runc: string;
let gate: string;
const all: ChildProcess[] = [];
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "cr-"));
  [runc, gate] = [join(dir, "programs/runc"), join(dir, `gate/${"0".repeat(64)}/closed/busybox`)];
  for (const program of [runc, gate]) {
    await mkdir(dirname(program), { recursive: true });
    await copyFile("/bin/bash", program);
  }
});
afterAll(async () => {
  for (const child of all) child.kill("SIGKILL");
  await rm(dir, { recursive: true, force: true });
});

/** A process that waits, and has these words at the end of its command line. */
async function waiting(program: string, words: readonly string[], cwd = "/"): Promise<ChildProcess> {
  const child = spawn(program, ["-c", "echo; read -r _", ...words], { cwd, stdio: ["pipe", "pipe", "ignore"] });
  all.push(child);
  await once(child.stdout, "data");
  return child;
}

it("programs of a user are not ended, also if they name a cell or work in its directory", async () => {
  const users = [
    await waiting("sh", [ID]),
    await waiting("sh", ["-f", "log"], dir),
    await waiting(runc, ["state", ID]),
    await waiting("sh", STARTED),
  ];
  await endStarters(dir, { id: ID });
  // One that is to be ended, as a mark: signals of one process come in order.
  const mark = await waiting(runc, STARTED);
  await endStarters(dir, { id: ID });
  if (mark.signalCode === null) await once(mark, "exit");
  expect(users.map(({ signalCode }) => signalCode)).toEqual(users.map(() => null));
});

it("programs that make a cell are ended", async () => {
  const starters = [
    await waiting(runc, STARTED),
    await waiting(runc, ["--log-format", "json", "exec", "--process", "/file", ID]),
    await waiting(runc, [], dir),
    await waiting(gate, [], dir),
    await waiting("sh", STARTED, dir),
  ];
  const ends = starters.map((child) => once(child, "exit"));
  await endStarters(dir, { id: ID });
  expect(await Promise.all(ends)).toEqual(starters.map(() => [null, "SIGKILL"]));
});

it("a launcher is ended with what it has begun elsewhere, and a child of Node that is not its program yet", async () => {
  const fifo = join(dir, "fifo");
  execFileSync("mkfifo", [fifo]);
  const how: SpawnOptionsWithStdioTuple<"ignore", "pipe", "ignore"> = {
    cwd: dir,
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  };
  const launcher = spawn(gate, ["-c", `(cd / && ${gate} -c 'echo $$; read -r _ <> ${fifo}')`], how);
  const forked = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000); console.log()"], how);
  all.push(launcher, forked);
  const [[line]] = await Promise.all([once(launcher.stdout, "data"), once(forked.stdout, "data")]);
  const ends = [launcher, forked].map((child) => once(child, "exit"));
  await endStarters(dir, { isLauncher: true });
  expect(await Promise.all(ends)).toEqual(ends.map(() => [null, "SIGKILL"]));
  await expect.poll(() => existsSync(`/proc/${String(line).trim()}`)).toBe(false);
});
