import { execFile } from "node:child_process";
import { chmod, chown, cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nodeIn, OTHER } from "../other-user.ts";
import { PROGRAM } from "./program.ts";

const ROOT = join(dirname(PROGRAM), "../..");

let base: string;
let node: string;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "cu-"));
  // A copy that this user can reach, wherever the checkout is.
  node = nodeIn(base);
  for (const part of ["package.json", "dist/cli", "policies"])
    await cp(join(ROOT, part), join(base, "c", part), { recursive: true });
  await mkdir(join(base, "p/workers"), { recursive: true });
  await writeFile(join(base, "p/corral.yaml"), "version: 1\n");
  await writeFile(join(base, "p/workers/w.worker"), "---\ncommand: [id]\n---\n");
  await mkdir(join(base, "closed"), { mode: 0o700 });
  await chown(base, OTHER, OTHER);
});
afterAll(async () => {
  await rm(base, { recursive: true, force: true });
});

/** The command line, as a user who may not read everything. */
async function asUser(args: readonly string[], state = join(base, "state")) {
  const env = ["env", "-i", `HOME=${base}`, `CORRAL_STATE_DIR=${state}`, `PATH=${base}:/usr/bin`];
  const guise = [`--reuid=${OTHER}`, `--regid=${OTHER}`, "--clear-groups", ...env];
  const line = [...guise, node, join(base, "c", relative(ROOT, PROGRAM)), ...args];
  return await new Promise<{ status: unknown; told: string }>((resolve) => {
    execFile("setpriv", line, { cwd: join(base, "p") }, (error, stdout, stderr) =>
      resolve({ status: error?.code ?? 0, told: stdout + stderr }),
    );
  });
}

describe("what may not be read", () => {
  it.each([
    ["corral.yaml", "corral.yaml:1:1: cannot be opened: permission denied"],
    ["workers", "workers:1:1: cannot be opened: permission denied"],
    ["workers/w.worker", "workers/w.worker:1:1: cannot be opened: permission denied"],
  ])("is told of %s as a mistake of the project's", async (path, says) => {
    await chmod(join(base, "p", path), 0);
    const [checked, run] = await Promise.all([asUser(["check"]), asUser(["run", "w"])]);
    await chmod(join(base, "p", path), 0o755);
    expect(checked).toEqual({
      status: 1,
      told: `${says}\n1 mistake. Fix these first; call paths are checked after that\n`,
    });
    expect(run).toEqual({ status: 2, told: `${says}\n` });
  });

  it.each([["run", "w"], ["doctor"], ["fleet", "ls"], ["audit"], ["changes", "ls"], ["transcripts", "ls"]])(
    "is told of the state directory by %s %s in one line",
    async (...args) => {
      const { status, told } = await asUser(args.filter(Boolean), join(base, "closed/state"));
      expect(told).not.toMatch(/unexpected|^ {4}at /m);
      if (status !== 0) expect(told).toContain(join(base, "closed/state"));
      if (args[0] === "run") expect([status, told.trim().split("\n").length]).toEqual([125, 1]);
    },
  );
});
