import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openEngine } from "../../src/isolation/open-engine.ts";
import { openCorral } from "../../src/run/open/corral.ts";
import { PROGRAM } from "../cli/program.ts";
import { killAlone } from "../run/kill-alone.ts";
import { execInCell } from "../run/outside-cell.ts";
import { type ProjectSpec, writeProject } from "../run/project-fixture.ts";
import { HANDY, openHandySession, openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";
import { isAgain } from "../tiers/again.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { onRunc } from "../tiers/on-runc.ts";

/** Under the Engine's own seccomp profile, a session's first process starts no commands: the Engine does. */
const KEPT: ProjectSpec = {
  workers: { w: HANDY },
  zones: { docs: "ro", out: "rw" },
  policy: "kept",
  yaml: { policies: "policies" },
  files: {
    "policies/kept.yaml": `name: kept
description: the Engine's own profile
extends: untrusted
hardening:
  seccomp: { value: engine, why: a test of it }
  file_watches: { value: true, why: that profile lets every program watch files }
`,
  },
};

describe("a command that attacks its cell", () => {
  it("cannot end the first process, which keeps its cell open", async () => {
    await using first = await openHandySession();
    await first.exec("echo kept > /tmp/kept");
    await first.exec("kill -9 -1; kill -9 1; kill -STOP 1; exit 0");
    expect((await first.exec("cat /tmp/kept")).stdout).toBe("kept\n");
  });

  // No cell of runc has that profile: `notForRunc`.
  it.skipIf(onRunc())("cannot end either of the two where the Engine starts its commands", async () => {
    await using s = await openSessionIn(KEPT);
    const before = await s.exec("echo kept > /tmp/kept; cat /proc/[0-9]*/status | grep ^Uid: | cut -f2 | sort -u");
    expect(before.stdout.trim().split("\n")).toEqual(["65532", "65533"]);
    const kill = "for p in $(ls /proc | grep -x '[0-9]*'); do kill -KILL $p 2>&1; kill -STOP $p 2>&1; done";
    const attack = await s.exec(`( trap '' TERM; ${kill} ) ; kill -9 -1; kill -9 1; exit 0`);
    expect(attack.cellReplaced).toBe(false);
    expect((await s.exec("cat /tmp/kept")).stdout).toBe("kept\n");
    const traced = await s.exec("for p in /proc/[0-9]*; do cat $p/environ; done 2>&1 | grep -c 'Permission denied'");
    expect(Number(traced.stdout)).toBeGreaterThanOrEqual(2);
  });

  it("cannot write where long output is kept, nor change what stands there", async () => {
    await using s = await openHandySession();
    await s.exec("seq 10000");
    const attack = await s.exec(
      "cd /.corral/output; echo x > 1.stdout; echo x > x; rm -f 1.stdout; mv 1.stdout y; ln -s / z; chmod 777 .; ls -A",
    );
    expect(attack.stdout).toBe("1.stdout\n");
    expect(attack.stderr.match(/Read-only file system/g)?.length).toBeGreaterThanOrEqual(5);
    expect((await s.exec("seq 10000 | cmp - /.corral/output/1.stdout")).status).toBe("succeeded");
  });

  it("sees nothing of other sessions' output, sockets or processes", async () => {
    await using one = await openHandySession();
    await using other = await openHandySession();
    await one.exec("seq 10000; sleep 4741 > /dev/null 2>&1 &");
    const look =
      "ls /.corral/output; ls -A /.corral; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat /proc/self/mountinfo";
    const { stdout } = await other.exec(look);
    expect(stdout).toMatch(/^busybox\ncommands\noutput\nsocket\n/);
    expect(stdout).not.toContain("4741");
    const elsewhere = other.project.dir.split("/");
    const own = one.project.dir.split("/").find((part, depth) => part !== elsewhere[depth]);
    expect(own).toBeDefined();
    expect(stdout).not.toContain(own);
  });

  it("that ends whatever comes to end it has its cell replaced, and is told as timed out", async () => {
    await using s = await openHandySession();
    // Of the worker's own user, like what is to end it: signals all but itself as fast as it can.
    const hunts = "exec /usr/bin/env sh -c 'trap \"\" TERM; while :; do kill -KILL -1; done 2> /dev/null'";
    const answer = await s.exec(hunts, { timeoutMs: 500 });
    expect(answer.status).toBe("timed_out");
    expect((await s.exec("echo after")).stdout).toBe("after\n");
    expect(await s.processes()).toEqual([]);
  });

  it("cannot say of itself that it was let in, nor how it ended", async () => {
    await using s = await openHandySession();
    expect(await s.exec("echo 'corral-begun 99'; kill -9 $$")).toMatchObject({
      status: "signaled",
      stdout: "corral-begun 99\n",
    });
  });

  it("that fills the memory of the cell for good does not keep the next one from running", async () => {
    await using s = await openHandySession({ limits: { memory: "32m" } });
    await s.exec(
      "for i in 1 2 3 4 5 6; do ( setsid tail /dev/zero & ) ; done > /dev/null 2>&1; sleep 1; dd if=/dev/zero of=/tmp/x bs=1M count=60",
      {
        timeoutMs: 3000,
      },
    );
    const after = [await s.exec("echo after"), await s.exec("rm -f /tmp/x; echo after")];
    expect(after.map(({ stdout }) => stdout)).toContain("after\n");
  });
});

const HUNT = `
import ctypes, os, signal, sys, time
for which in range(1, 65):
    if which not in (9, 19, 32, 33): signal.signal(which, signal.SIG_IGN)
def others():
    return [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]
def tried(act, *args):
    try: act(*args)
    except OSError: pass
def apart(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3): os.close(fd)
            act()
        os._exit(0)
`;

/** What stops or ends whatever comes to end it, as Python. */
const HUNTS: readonly { readonly name: string; readonly code: string }[] = [
  { name: "stops all processes at once", code: "while True: tried(os.kill, -1, signal.SIGSTOP)" },
  {
    name: "stops each process by its number",
    code: `
while True:
    for pid in others(): tried(os.kill, pid, signal.SIGSTOP)`,
  },
  {
    name: "stops each thread by its number",
    code: `
libc = ctypes.CDLL(None)
while True:
    for pid in others(): libc.syscall(200, pid, signal.SIGSTOP)`,
  },
  {
    name: "stops all from several processes in sessions of their own",
    code: `
def stop():
    while True: tried(os.kill, -1, signal.SIGSTOP); tried(os.kill, -1, signal.SIGCONT) if os.getpid() % 7 == 0 else None
for _ in range(3): apart(stop)
time.sleep(300)`,
  },
  {
    name: "stops and kills in turn",
    code: `
while True:
    for which in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGKILL, signal.SIGSTOP): tried(os.kill, -1, which)`,
  },
  {
    name: "forks without end and stops all",
    code: `
while True:
    tried(os.kill, -1, signal.SIGSTOP); tried(os.fork)`,
  },
];

/** Both drivers end the processes of a command by the same program in the cell: on the other one, the first and the strongest. */
const TRIED_HUNTS = isAgain() ? HUNTS.filter((_, index) => [0, HUNTS.length - 1].includes(index)) : HUNTS;

/** Longer than every bound on the way, and much shorter than for ever. */
const SOON_MS = 15_000;

/** A command that hunts, from its own start. */
function hunting(code: string): [command: string, more: { env: Record<string, string> }] {
  return ['exec python3 -c "$CODE"', { env: { CODE: HUNT + code } }];
}

async function openPython() {
  return await openHandySession({ image: "corral/python", limits: { pids: 64, memory: "128m", timeout: "60s" } });
}

describe("a command that stops whatever comes to end it", () => {
  it("ends at its time limit, and its cell is replaced", async () => {
    await Promise.all(
      TRIED_HUNTS.map(async ({ name, code }) => {
        await using s = await openPython();
        await s.exec("true");
        const begun = performance.now();
        const [command, more] = hunting(code);
        const answer = await s.exec(command, { ...more, timeoutMs: 500 });
        expect.soft(answer.status, name).toBe("timed_out");
        expect.soft(performance.now() - begun, name).toBeLessThan(SOON_MS);
        expect.soft((await s.exec("echo after")).stdout, name).toBe("after\n");
        expect.soft(await s.processes(), name).toEqual([]);
      }),
    );
  });

  it("ends when it is cancelled, and when its session is closed", async () => {
    const STOPS = "open('/out/begun', 'w').close()\nwhile True: tried(os.kill, -1, signal.SIGSTOP)";
    const begun = async ({ project }: SessionFixture): Promise<void> => {
      await expect.poll(() => existsSync(join(project.dir, "out/begun"))).toBe(true);
      await new Promise((resolve) => setTimeout(resolve, 100));
    };
    const cancelled = async (): Promise<void> => {
      await using s = await openPython();
      const cancel = new AbortController();
      const [command, more] = hunting(STOPS);
      const answer = s.exec(command, more, cancel.signal);
      await begun(s);
      cancel.abort(new Error("a test cancels"));
      expect((await answer).status).toBe("cancelled");
    };
    const closed = async (): Promise<void> => {
      const s = await openPython();
      const [command, more] = hunting(STOPS);
      const answer = s.tool("exec", { command, ...more });
      await begun(s);
      const closing = performance.now();
      await s[Symbol.asyncDispose]();
      expect(performance.now() - closing).toBeLessThan(SOON_MS);
      expect(await answer).toMatchObject({ data: { status: "cancelled" } });
    };
    await Promise.all([cancelled(), closed()]);
  });

  it("does not keep a later command from beginning or ending, nor from learning how it ended", async () => {
    const stops = "def stop():\n    while True: tried(os.kill, -1, signal.SIGSTOP)\napart(stop)\nos._exit(0)";
    const begins = async (): Promise<void> => {
      await using s = await openPython();
      const [command, more] = hunting(stops);
      await s.exec(command, { ...more, timeoutMs: 5000 });
      const begun = performance.now();
      const answer = await s.exec("echo before; sleep 0.5; echo after", { timeoutMs: 1000 });
      expect(["timed_out", "lost", "succeeded"]).toContain(answer.status);
      expect(performance.now() - begun).toBeLessThan(2 * SOON_MS);
      expect((await s.exec("echo last", { timeoutMs: 1000 })).stdout).toMatch(/^(last\n)?$/);
      expect((await s.exec("echo last", { timeoutMs: 20_000 })).stdout).toBe("last\n");
    };
    const learns = async (): Promise<void> => {
      await using s = await openPython();
      // It is killed while another process stops every process of its user.
      const [command, more] = hunting(
        "def stop():\n    time.sleep(0.5)\n    while True: tried(os.kill, -1, signal.SIGSTOP)\napart(stop)\ntime.sleep(0.4)\nos.kill(os.getpid(), 9)",
      );
      expect(await s.exec(command, { ...more, timeoutMs: 5000 })).toMatchObject({
        status: "signaled",
        signal: "SIGKILL",
      });
    };
    await Promise.all([begins(), learns()]);
  });

  // To end one, the host closes its session as above.
  it.skipIf(isAgain())("ends with its orchestrator, on the first Ctrl-C and on SIGTERM", async () => {
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    try {
      const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
      const worker = { ...HANDY, image: "corral/python" };
      await giveGate(stateDir);
      writeProject(projectDir, { workers: { w: worker }, zones: { docs: "ro", out: "rw" } });
      const [command, more] = hunting(
        "open('/out/' + os.environ['NAME'], 'w').close()\nwhile True: tried(os.kill, -1, signal.SIGSTOP)",
      );
      const ends = async (how: NodeJS.Signals): Promise<number> => {
        const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
        const input = JSON.stringify({ command, env: { ...more.env, NAME: how }, timeout_ms: 60_000 });
        const args = [PROGRAM, "tool", "exec", input, "--worker", "w", "--project", projectDir];
        const corral = spawn(process.execPath, args, { env, stdio: "ignore" });
        const exit = once(corral, "exit");
        await expect.poll(() => existsSync(join(projectDir, "out", how)), { timeout: 2 * SOON_MS }).toBe(true);
        await new Promise((resolve) => setTimeout(resolve, 100));
        expect(corral.exitCode).toBe(null);
        const begun = performance.now();
        corral.kill(how);
        await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 2 * SOON_MS))]);
        corral.kill("SIGKILL");
        return performance.now() - begun;
      };
      const took = await Promise.all([ends("SIGINT"), ends("SIGTERM")]);
      expect(Math.max(...took)).toBeLessThan(SOON_MS);
    } finally {
      await rm(base, { recursive: true, force: true });
    }
  });

  it("cannot read, write or trace what comes to end it", async () => {
    await using s = await openPython();
    const [command, more] = hunting(`
def own(pid):
    try: return os.stat(f'/proc/{pid}').st_uid
    except OSError: return None
end = time.time() + 6; seen = 0
while time.time() < end and not os.path.exists('/out/enough'):
    for pid in others():
        try:
            if b'busybox' not in open(f'/proc/{pid}/cmdline', 'rb').read(): continue
            seen += 1
            for name in ('mem', 'environ', 'maps', 'fd/0'):
                try:
                    fd = os.open(f'/proc/{pid}/{name}', os.O_RDWR if name == 'mem' else os.O_RDONLY)
                    # Of a process that has just ended, these files open and are empty.
                    if name not in ('environ', 'maps') or os.read(fd, 1): print('opened', name, flush=True)
                except OSError: pass
        except OSError: pass
print('seen' if seen else 'not seen')`);
    const looking = s.exec(command, { ...more, timeoutMs: 1000 });
    expect((await looking).stdout).toBe("");
    const look = s.exec(command, { ...more, timeoutMs: 8000 });
    for (let n = 0; n < 3; n += 1)
      await execInCell(s.project.corral, ["/.corral/busybox", "sh", "-c", "/.corral/busybox sleep 0.2; :"]);
    await writeFile(join(s.project.dir, "out/enough"), "");
    expect((await look).stdout).toBe("seen\n");
  });
});

describe("a session whose orchestrator is killed", () => {
  it("ends by itself, its commands with it, and the next that opens removes what is left", async () => {
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    try {
      const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
      await giveGate(stateDir);
      writeProject(projectDir, { workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
      const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
      const args = [PROGRAM, "shell", "w", "--project", projectDir];
      const orchestrator = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
      orchestrator.stdin.write("setsid sleep 4742 > /dev/null 2>&1 &\necho begun\nsleep 4743\n");
      await once(orchestrator.stdout, "data");
      killAlone(orchestrator);
      await once(orchestrator, "exit");
      await using _ = await openCorral({
        projectDir: await otherProject(base),
        stateDir: join(base, "o"),
        engineEnv: process.env,
      });
      // It only lists, and removes nothing.
      const { driver } = await openEngine({ stateDir, engineEnv: process.env });
      const [left] = await driver.list();
      if (left === undefined) throw new Error("the session's cell is not there");
      await expect.poll(async () => (await driver.list())[0]?.state).toBe("exited");
      await using next = await openCorral({ projectDir, stateDir, engineEnv: process.env });
      expect(next.reaped).toMatchObject({ cells: [left.run], directories: [expect.any(String)] });
      expect(await next.environment.driver.list()).toEqual([]);
    } finally {
      await rm(base, { recursive: true, force: true });
    }
  });
});

/** Of another state directory, so that opening it removes nothing. */
async function otherProject(base: string): Promise<string> {
  const dir = join(base, "q");
  writeProject(dir, { workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
  return dir;
}
