import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { KEEP_COMMAND } from "../../../src/isolation/plan/plan.ts";
import type { ExecExit, ExecRequest, SessionCell } from "../../../src/isolation/port/cell.ts";
import { isCrun, openRunc, type Runc } from "./runc.ts";

let runc: Runc;
beforeAll(async () => {
  runc = await openRunc();
});
afterAll(() => runc[Symbol.asyncDispose]());

async function session(): Promise<{ cell: SessionCell; run: string }> {
  const { plan, pins } = await runc.plan({ command: KEEP_COMMAND });
  const keeper = { uid: 65533, gid: 65533 };
  const signal = new AbortController().signal;
  const started = await runc.driver.startSession({ plan: { ...plan, keeper }, pins, signal, onOutput: () => {} });
  if (!started.ok) throw new Error(JSON.stringify(started.violations));
  return { cell: started.cell, run: plan.run };
}

interface Ran {
  readonly exit: ExecExit;
  readonly out: string;
  readonly err: string;
}

async function ran(cell: SessionCell, script: string, more: Partial<ExecRequest> = {}): Promise<Ran> {
  const text = { stdout: "", stderr: "" };
  const exec = await cell.exec({
    argv: ["sh", "-c", script],
    cwd: "/",
    env: {},
    stdin: Buffer.alloc(0),
    onOutput: (stream, chunk) => {
      text[stream] += chunk;
    },
    ...more,
  });
  return { exit: await exec.exit, out: text.stdout, err: text.stderr };
}

const ended = (code: number) => ({ kind: "exited", code, cellAlive: true, outOfMemory: false });

// A cell with a keeper is none of crun: `notForCrun`.
describe.skipIf(isCrun)("a session in a cell of runc", () => {
  it("runs commands one after another as the worker's user, with their input, variables and directory", async () => {
    const { cell, run } = await session();
    const first = await ran(cell, "cat; echo err >&2; echo $X; pwd; id -u; exit 3", {
      cwd: "/tmp",
      env: { X: "a b" },
      stdin: Buffer.from("in\n"),
    });
    expect(first).toEqual({ exit: ended(3), out: "in\na b\n/tmp\n65532\n", err: "err\n" });
    const status = await ran(cell, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ulimit -c; ulimit -n");
    expect(status.out.match(/^Cap\w+:\s+0000000000000000$/gm)).toHaveLength(5);
    expect(status.out).toMatch(/NoNewPrivs:\s+1\nSeccomp:\s+2\n/);
    await cell[Symbol.asyncDispose]();
    expect(await runc.traces(run)).toEqual([]);
  });

  it("tells a command that is missing, or whose directory is, from a runc that failed", async () => {
    const { cell } = await session();
    await using _ = cell;
    expect((await ran(cell, "", { argv: ["no-such-program"] })).exit).toEqual(ended(127));
    expect((await ran(cell, "", { cwd: "/no/such" })).exit).toEqual(ended(126));
    expect((await ran(cell, "kill -SEGV $$")).exit).toEqual(ended(139));
    expect((await ran(cell, "exit 255")).exit).toEqual(ended(255));
    await cell.kill("SIGKILL");
    await cell.exit;
    expect(await ran(cell, "true").catch(() => "rejected")).toMatchObject({ exit: { kind: "lost" } });
  });

  it("counts a kill for memory only for the command in which it happens", async () => {
    const { cell } = await session();
    await using _ = cell;
    const hog = "tail /dev/zero";
    expect((await ran(cell, `${hog}; true`)).exit).toEqual(ended(0));
    expect((await ran(cell, "kill -KILL $$")).exit).toEqual(ended(137));
    expect((await ran(cell, `exec ${hog}`)).exit).toEqual({ ...ended(137), outOfMemory: true });
  });

  it("ends everything that commands have left, and stays", async () => {
    const { cell } = await session();
    await using _ = cell;
    await ran(cell, "(trap '' TERM; sleep 100) > /dev/null 2>&1 & sleep 100 > /dev/null 2>&1 &");
    expect(await cell.signalAll("SIGKILL")).toBe(true);
    expect((await ran(cell, "for p in /proc/[0-9]*; do [ -O $p ] && echo $p; done | wc -l")).out.trim()).toMatch(
      /^[1-4]$/,
    );
  });

  it("gives a command a terminal of the asked size, which follows a change", async () => {
    const { cell } = await session();
    await using _ = cell;
    let text = "";
    const exec = await cell.exec({
      argv: ["sh", "-c", "stty size; read line; stty size; echo got $line; exit 4"],
      cwd: "/",
      env: {},
      tty: { columns: 71, rows: 23 },
      onOutput: (_, chunk) => {
        text += chunk;
      },
    });
    await expect.poll(() => text).toContain("23 71");
    await exec.resize({ columns: 90, rows: 30 });
    exec.write(Buffer.from("hello\n"));
    expect(await exec.exit).toEqual(ended(4));
    expect(text).toContain("30 90");
    expect(text).toContain("got hello");
  });
});
