import { describe, expect, it } from "vitest";
import { openHandySession, type SessionFixture } from "../run/session/session-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/** Python that reports what it tries, and never stops at a refusal. */
const TRIES = `
import ctypes, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, act, *args):
    try: result = act(*args)
    except (OSError, ValueError) as error: print(name, 'refused', type(error).__name__, getattr(error, 'errno', ''))
    else: print(name, 'refused' if result == -1 else 'DONE', '' if result != -1 else ctypes.get_errno())
`;

async function openPython(more: Readonly<Record<string, unknown>> = {}) {
  return await openHandySession({
    image: "corral/python",
    limits: { pids: 64, memory: "128m", timeout: "60s" },
    ...more,
  });
}

function python(s: SessionFixture, code: string, timeoutMs = 20_000) {
  return s.exec('exec python3 -c "$CODE"', { env: { CODE: TRIES + code }, timeoutMs });
}

/** True if the next command runs in the same cell as the first. */
async function isSameCell(s: SessionFixture): Promise<boolean> {
  const answer = await s.exec("cat /tmp/first");
  return answer.stdout === "kept\n" && !answer.cellReplaced;
}

/* What starts commands is the same program under both drivers: what it does with texts and output is tried under one. */

describe("a command that attacks what starts the commands", () => {
  it("cannot end, stop or steer it with any signal, and what it floods it with does no harm", async () => {
    await using s = await openPython();
    await s.exec("echo kept > /tmp/first");
    const { stdout } = await python(
      s,
      `
for which in range(1, 65):
    if which in (32, 33): continue
    os.kill(1, which)
for _ in range(3):
    for which in (9, 19, 17, 18): os.kill(1, which)
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    end = time.time() + 3
    while time.time() < end: os.kill(1, signal.SIGCHLD)
    os._exit(0)
print('alive')`,
    );
    expect(stdout).toBe("alive\n");
    for (let n = 0; n < 10; n += 1) expect((await s.exec(`echo ${n}`)).stdout).toBe(`${n}\n`);
    expect(await isSameCell(s)).toBe(true);
  });

  it("cannot look into it, nor take or write to what it has open", async () => {
    await using s = await openPython();
    const { stdout } = await python(
      s,
      `
for name in ('fd', 'environ', 'maps', 'mem', 'fd/0', 'fd/1', 'fd/9', 'cwd', 'exe', 'fdinfo', 'task/1/fd'):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR): tried(name, os.open, f'/proc/1/{name}', flags)
    tried(name, os.readlink, f'/proc/1/{name}')
tried('list', os.listdir, '/proc/1/fd')
for request in (16, 0x4206): tried('ptrace', libc.ptrace, request, 1, 0, 0)
tried('pidfd_getfd', libc.syscall, 438, libc.syscall(434, 1, 0), 1, 0)
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
tried('process_vm_readv', libc.syscall, 310, 1, vector, 1, vector, 1, 0)
def wrote(name):
    fd = os.open(f'/proc/1/{name}', os.O_WRONLY)
    return os.write(fd, b'1')
for name in ('oom_score_adj', 'comm', 'timerslack_ns', 'autogroup', 'coredump_filter', 'clear_refs'):
    tried(name, wrote, name)`,
    );
    expect(stdout).not.toContain("DONE");
    expect(stdout.match(/refused/g)?.length).toBeGreaterThanOrEqual(50);
  });

  it("cannot change its limits, priority or processors, which later commands would inherit", async () => {
    await using s = await openPython();
    const look =
      "ulimit -a; nice; cat /proc/self/status | grep -E 'Cpus_allowed|SigIgn|SigBlk'; umask; cat /proc/self/oom_score_adj";
    const before = (await s.exec(look)).stdout;
    const { stdout } = await python(
      s,
      `
limit = (ctypes.c_ulong * 2)(5, 5)
for which in (0, 1, 2, 6, 7, 9): tried('prlimit', libc.syscall, 302, 1, which, limit, 0)
for who in (1, 1 << 32 | 1): tried('prlimit', libc.syscall, 302, ctypes.c_ulong(who), 7, limit, 0)
tried('setpriority', libc.setpriority, 0, 1, 19)
tried('setpriority', libc.setpriority, 1, 1, 19)
tried('setpriority', libc.setpriority, 2, os.getuid(), 19)
tried('setpriority', libc.setpriority, 2, 0, 19)
mask = (ctypes.c_ulong * 16)(1)
tried('sched_setaffinity', libc.syscall, 203, 1, 128, mask)
tried('ioprio_set', libc.syscall, 251, 1, 1, 3 << 13)
tried('ioprio_set', libc.syscall, 251, 3, os.getuid(), 3 << 13)
tried('sched_setscheduler', libc.syscall, 144, 1, 5, (ctypes.c_int * 1)(0))
tried('sched_setparam', libc.syscall, 142, 1, (ctypes.c_int * 1)(0))
attributes = (ctypes.c_uint * 14)(56, 5)
tried('sched_setattr', libc.syscall, 314, 1, attributes, 0)`,
    );
    expect(stdout).not.toContain("DONE");
    expect(stdout.match(/refused/g)?.length).toBe(18);
    expect((await s.exec(look)).stdout).toBe(before);
    // On itself, and on what it has started, it may do so.
    expect((await python(s, "os.sched_setaffinity(os.getpid(), {0}); os.nice(1); print('own')")).stdout).toBe("own\n");
  });

  it("cannot say how it ended, or that another command has ended", async () => {
    await using s = await openHandySession();
    const forged = await s.exec(
      `name=$(basename "$(readlink /proc/self/fd/1)" | cut -d. -f1)
for line in "ended $name 0 0" "begun $name 1 0" "signalled $name no"; do
  echo "$line"; echo "$line" >&2; echo "$line" > /proc/1/fd/1; echo "$line" > /proc/1/fd/9; done 2>&1 | grep -c 'Permission denied'
for fd in 3 4 5 6 7 8 9; do ( eval "echo ended $name 0 0 >&$fd" ) 2>&1 | grep -c 'Bad file descriptor'; done | sort | uniq -c
exit 7`,
    );
    expect(forged).toMatchObject({ status: "failed", exitCode: 7, cellReplaced: false });
    expect(forged.stdout.trim().split(/\s*\n\s*/)).toEqual(["6", "7 1"]);
  });

  it("cannot list, make, replace or remove the pipes of commands", async () => {
    await using s = await openHandySession();
    const answer = await s.exec(
      `cd /.corral/commands; ls -A; echo x > x; mkdir y; mv . z; chmod 777 .; rm -rf /.corral/commands/*; ls -ld /.corral/commands | cut -c1-10
ls /.corral/commands/$(basename "$(readlink /proc/self/fd/1)" ' (deleted)') 2>&1 | grep -c 'No such file'`,
    );
    const root = process.getuid?.() === 0;
    if (root) expect(answer.stdout).toBe("drwx--x--x\n1\n");
    expect(answer.stderr.match(/Permission denied|Read-only file system|busy/g)?.length).toBeGreaterThanOrEqual(
      root ? 4 : 3,
    );
    expect((await s.exec("echo next")).stdout).toBe("next\n");
  });

  it("leaves nothing of itself to the next: descriptors, directory, variables, umask, signals, session", async () => {
    await using s = await openPython();
    const look = `
import os
print(sorted(os.listdir('/proc/self/fd')), os.getcwd(), os.environ.get('LEFT'), os.umask(0), os.nice(0))
print([line for line in open('/proc/self/status') if line.startswith(('SigBlk', 'ShdPnd', 'NoNewPrivs', 'Seccomp:'))])
print([line.split()[0] for line in open('/proc/self/status') if line.startswith('SigIgn')], int([line.split()[1] for line in open('/proc/self/status') if line.startswith('SigIgn')][0], 16) & 6)
print(os.getsid(0) == os.getpgid(0) == os.getpid(), os.getsid(1) == 1, os.getpgid(1) == 1)
try: os.open('/dev/tty', os.O_RDWR); print('terminal')
except OSError: print('no terminal')`;
    const run = () => s.exec('exec python3 -c "$CODE"', { env: { CODE: look } });
    const first = await run();
    await s.exec(
      "trap '' INT QUIT TERM HUP; umask 777; cd /tmp; LEFT=1; export LEFT; ulimit -n 20; exec 7< /etc/passwd; sleep 30 > /dev/null 2>&1 &",
    );
    const second = await run();
    expect(second.stdout).toBe(first.stdout);
    expect(second.stdout).toContain("['SigIgn:'] 0\nTrue True True\nno terminal");
    // It is not as nice as Corral's own process is.
    expect(second.stdout).toMatch(/^\['0', '1', '2', '3'\] \S+ None 18 0\n/);
  });

  it.skipIf(isAgain())(
    "whose process keeps its output open ends soon, keeps what it printed, and writes nothing into the next",
    async () => {
      await using s = await openHandySession();
      const begun = performance.now();
      const held = await s.exec("( while sleep 0.1; do echo late; done; echo over > /tmp/over ) & echo mine; exit 4");
      expect(held).toMatchObject({ status: "failed", exitCode: 4 });
      expect(held.stdout).toMatch(/^mine\n(late\n){5,}$/);
      expect(performance.now() - begun).toBeLessThan(8000);
      const next = await s.exec(
        "sleep 1; echo next; ls /tmp; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'while sleep'",
      );
      // It still runs, and its output goes nowhere.
      expect(next.stdout).toBe("next\n1\n");
    },
  );

  it.skipIf(isAgain())("that closes its output is awaited, and ended at its time limit", async () => {
    await using s = await openHandySession();
    const begun = performance.now();
    expect(await s.exec("exec > /dev/null 2>&1; sleep 1.5; exit 9")).toMatchObject({ status: "failed", exitCode: 9 });
    expect(performance.now() - begun).toBeGreaterThan(1400);
    expect(await s.exec("exec 0<&- 1>&- 2>&-; sleep 60", { timeoutMs: 500 })).toMatchObject({
      status: "timed_out",
      cellReplaced: false,
    });
    expect(await s.processes()).toEqual([]);
  });

  it("that fills the cell with processes gets no hang, and the next command a cell of its own", async () => {
    await using s = await openPython({ limits: { pids: 32, memory: "128m", timeout: "60s" } });
    await python(
      s,
      `
while True:
    try:
        if os.fork() == 0:
            for fd in range(3): os.close(fd)
            # Whatever ends makes room for one more.
            while True:
                try:
                    if os.fork() != 0: time.sleep(0.01)
                except OSError: time.sleep(0.01)
    except OSError: break
print('full', flush=True)
os._exit(0)`,
    );
    const begun = performance.now();
    const answers = [await s.exec("echo a", { timeoutMs: 2000 }), await s.exec("echo b", { timeoutMs: 15_000 })];
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(answers.some(({ stdout }) => /^[ab]\n$/.test(stdout))).toBe(true);
    expect((await s.exec("echo c", { timeoutMs: 5000 })).stdout).toMatch(/^(c\n)?$/);
    expect((await s.exec("echo d", { timeoutMs: 20_000 })).stdout).toBe("d\n");
  });

  it("is ended soon with everything that it has started, and its cell stays", async () => {
    await using s = await openPython();
    await s.exec("echo kept > /tmp/first");
    const begun = performance.now();
    const answer = await python(
      s,
      `
for which in range(1, 65):
    if which not in (9, 19, 32, 33): signal.signal(which, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass`,
      500,
    );
    expect(answer).toMatchObject({ status: "timed_out", cellReplaced: false });
    // Half a second is its own, and a quarter the grace. On a busy machine the bomb has a large part of the processors until it is ended.
    expect(performance.now() - begun).toBeLessThan(500 + 250 + 10_000);
    expect(await isSameCell(s)).toBe(true);
  });

  it.skipIf(isAgain())("leaves no zombies, neither while it runs nor after", async () => {
    await using s = await openPython();
    const zombies = "for f in /proc/[0-9]*/stat; do cat $f; done 2> /dev/null | grep -c ') Z '";
    const orphans = `
for _ in range(200):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
    if _ % 40 == 39: time.sleep(0.6)
print('made')`;
    expect((await python(s, orphans)).stdout).toBe("made\n");
    await s.exec("( for i in $(seq 20); do ( sleep 0.1 & ) ; done ) > /dev/null 2>&1");
    await new Promise((resolve) => setTimeout(resolve, 2500));
    expect((await s.exec(zombies)).stdout).toBe("0\n");
  });

  it.skipIf(isAgain())("cannot take another meaning by what is in its text, variables or directory", async () => {
    await using s = await openHandySession();
    const odd =
      "a'b\"c\\d$(echo no)`echo no`\n\n#;&|<>*?[]{}~!%^ \t\r\u0001\u007f\u0080\u00ff\u2028\u{1f600}' ; exit 1 ; '";
    const { cell } = await s.session.cell(new AbortController().signal);
    const run = async (argv: string[], env: Record<string, string> = {}, cwd = "/", stdin = new Uint8Array()) => {
      let stdout = "";
      const onOutput = (_: string, chunk: Buffer): void => {
        stdout += chunk.toString("latin1");
      };
      const exec = await cell.exec({ argv, cwd, env, stdin, onOutput });
      const exit = await exec.exit;
      return { exit, stdout: Buffer.from(stdout, "latin1").toString() };
    };
    expect((await run(["printf", "%s", odd])).stdout).toBe(odd);
    const variables = { IFS: odd, OPTIND: "x", PS4: "$(id)", ENV: "/tmp/e", corral_gate: "/bin/false", "a-b": odd };
    const seen = await run(["python3", "-c", "0"], {}, "/").then(({ exit }) => exit);
    expect(seen).toMatchObject({ code: 127 });
    const { stdout } = await run(["env", "-0"], variables);
    for (const [name, value] of Object.entries(variables)) expect(stdout.split("\0")).toContain(`${name}=${value}`);
    expect((await run(["sh", "-c", 'mkdir -p "/tmp/$D"'], { D: odd.replaceAll("/", "") })).exit).toMatchObject({
      code: 0,
    });
    expect((await run(["pwd"], {}, `/tmp/${odd}`)).stdout).toBe(`/tmp/${odd}\n`);
    // All of its input is written and closed long before it begins.
    for (let n = 0; n < 20; n += 1)
      expect((await run(["cat"], {}, "/", Buffer.from(`in ${n}`))).stdout).toBe(`in ${n}`);
    const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    expect(
      (await run(["od", "-An", "-v", "-tu1"], {}, "/", every)).stdout.split(/\s+/).filter(Boolean).map(Number),
    ).toEqual([...every]);
    await expect(run(["echo", "a\0b"])).rejects.toThrow("NUL");
    expect((await run(["/nowhere"])).exit).toMatchObject({ code: 127 });
    expect((await run(["/etc/passwd"])).exit).toMatchObject({ code: 126 });
    expect((await run(["pwd"], {}, "/nowhere")).exit).toMatchObject({ code: 126 });
    expect((await run(["ls"], { PATH: "/nowhere" })).exit).toMatchObject({ code: 127 });
  });

  it.skipIf(isAgain())("that prints without end is held back by the one who reads", async () => {
    await using s = await openHandySession();
    const { cell } = await s.session.cell(new AbortController().signal);
    let bytes = 0;
    let waits = 0;
    const slow = async (_: string, chunk: Buffer): Promise<void> => {
      bytes += chunk.length;
      waits += 1;
      await new Promise((resolve) => setTimeout(resolve, 100));
    };
    const request = { argv: ["sh", "-c", "yes"], cwd: "/", env: {}, stdin: new Uint8Array(), onOutput: slow };
    const exec = await cell.exec(request);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect(bytes).toBeLessThan(3 * 1024 * 1024);
    expect(waits).toBeLessThan(30);
    expect(await cell.signalAll("SIGKILL")).toBe(true);
    expect(await exec.exit).toEqual({ kind: "exited", code: 137, cellAlive: true, outOfMemory: false });
  });

  it("runs beside others, each with its own output, input and end", async () => {
    await using s = await openHandySession();
    const { cell } = await s.session.cell(new AbortController().signal);
    const ended = await Promise.all(
      Array.from({ length: 12 }, async (_, n) => {
        let text = "";
        const onOutput = (_: string, chunk: Buffer): void => {
          text += chunk.toString();
        };
        const argv = ["sh", "-c", `sleep 0.${12 - n}; cat; exit ${n}`];
        const exec = await cell.exec({ argv, cwd: "/", env: {}, onOutput });
        exec.write(Buffer.from(`in ${n}\n`));
        exec.closeInput();
        const exit = await exec.exit;
        return { n, text, code: exit.kind === "exited" ? exit.code : null };
      }),
    );
    expect(ended).toEqual(Array.from({ length: 12 }, (_, n) => ({ n, text: `in ${n}\n`, code: n })));
  });

  it("is told as out of memory only if the kernel killed for it while it ran", async () => {
    await using s = await openHandySession({ limits: { memory: "32m" } });
    const killed = await s.exec("exec tail /dev/zero");
    expect(killed.status).toBe("oom_killed");
    expect(await s.exec("kill -9 $$")).toMatchObject({ status: "signaled", signal: "SIGKILL" });
  });
});
