import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ItemRequest } from "../../src/fleet/model/item.ts";
import { type FleetFixture, openFleetProject } from "../fleet/fleet-fixture.ts";
import { python, writable } from "../run/project-fixture.ts";
import { LOOK, RUNNER } from "./scrubbed-looks.ts";

interface Attack {
  readonly name: string;
  /** In the attacked item, as Python. */
  readonly code: string;
  /** What becomes of that item: its status, or its exit code where it is a number. */
  readonly ends?: string | number | RegExp;
}

const PRELUDE = `
import ctypes, fcntl, os, signal, socket, stat, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
own = '/text/' + os.listdir('/text')[0]
def could(what, act):
    try:
        if act() not in (False, -1): print('could', what)
    except OSError: pass
def apart(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for which in range(1, 65):
                if which not in (9, 19, 32, 33): signal.signal(which, signal.SIG_IGN)
            act()
        os._exit(0)
    time.sleep(0.05)
`;

const LEFTOVERS: readonly Attack[] = [
  {
    name: "files of every kind and name in memory",
    code: String.raw`
for base in {b'/tmp', b'/dev/shm', os.fsencode(os.environ['HOME'])}:
    for name in (b'..x', b'.x', b'...', b'a\nb', b'-rf', b'\xff\xfe', b'*', b'[a', b' ', b'.\xff', b'..\n'):
        open(base + b'/' + name, 'w').write('planted')
    os.makedirs(base + b'/closed/in/ner', exist_ok=True); open(base + b'/closed/in/x', 'w').close()
    os.chmod(base + b'/closed/in', 0); os.chmod(base + b'/closed', 0)
    if not os.path.lexists(base + b'/link'): os.symlink('/text', base + b'/link'); os.mkfifo(base + b'/fifo')
    os.makedirs(base + b'/deep' + b'/d' * 100, exist_ok=True)`,
  },
  {
    name: "a tree that is deeper than a path is long",
    code: `
os.chdir('/tmp')
for _ in range(60): os.mkdir('d' * 200); os.chdir('d' * 200)`,
  },
  { name: "ten thousand files", code: "for n in range(10000): open(f'/tmp/{n}', 'w').close()" },
  {
    name: "a full /tmp",
    code: `
try:
    with open('/tmp/full', 'wb') as file:
        while True: file.write(bytes(1 << 20))
except OSError: pass`,
  },
  {
    name: "message queues, which it cannot make",
    code: `
for name in (b'/.x', b'/..x', b'/\\xff'):
    assert libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o666, None) < 0
    try: os.open(b'/dev/mqueue' + name, os.O_CREAT | os.O_RDWR, 0o666); raise SystemExit(1)
    except OSError: pass`,
  },
  { name: "one file whose name begins with two dots", code: "open('/tmp/..x', 'w').close()" },
  { name: "one folder in shared memory whose name is no text", code: "os.mkdir(b'/dev/shm/.\\xff')" },
  {
    name: "System V memory, queues and semaphores",
    code: "assert libc.shmget(7, 4096, 0o1666) >= 0 and libc.msgget(7, 0o1666) >= 0 and libc.semget(7, 1, 0o1666) >= 0",
  },
  {
    name: "a server on an abstract socket in a session of its own",
    code: `
def serve():
    server = socket.socket(socket.AF_UNIX); server.bind(b'\\0planted'); server.listen()
    while True: server.accept()
apart(serve)`,
  },
  {
    name: "locks and leases",
    code: `
def hold():
    for path in ('/attachments/in', '/.corral/io/in', '/.corral/io/out'):
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.fcntl(os.open('/.corral/io/err', os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    time.sleep(300)
apart(hold)`,
  },
  {
    name: "stopped processes, zombies, and children of the first process",
    code: `
for n in range(12):
    pid = os.fork()
    if pid == 0:
        if n % 3 == 0: os._exit(0)
        if n % 3 == 1: os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(300)
CLONE_PARENT = 0x8000
for n in range(6):
    if libc.syscall(56, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        if n % 2 == 0: os._exit(0)
        time.sleep(300)
os._exit(5)`,
    ends: 5,
  },
  {
    name: "forks that race its end",
    code: `
if os.fork() == 0:
    while True:
        try: os.fork()
        except OSError: pass
time.sleep(0.2)
os._exit(6)`,
    ends: 6,
  },
  {
    name: "all the processes that it may have, in sessions of their own",
    code: `
def fill():
    while True:
        try:
            if os.fork() == 0: os.setsid(); time.sleep(300)
        except OSError: time.sleep(300)
apart(fill); time.sleep(0.2); os._exit(4)`,
    ends: 4,
  },
  {
    name: "deleted files, memory that is shared, and descriptors on the way to nobody",
    code: `
def keep():
    fd = os.open('/tmp/gone', os.O_CREAT | os.O_RDWR); os.unlink('/tmp/gone'); os.write(fd, bytes(1 << 22))
    a, b = socket.socketpair(socket.AF_UNIX); memory = os.memfd_create('planted'); os.write(memory, bytes(1 << 20))
    socket.send_fds(a, [b'x'], [memory, a.fileno(), b.fileno()])
    broker = socket.socket(socket.AF_UNIX); broker.connect(os.environ['CORRAL_SOCKET'])
    socket.send_fds(broker, [b'POST /v1/calls HTTP/1.1\\r\\n'], [memory, a.fileno()])
    time.sleep(300)
apart(keep)`,
  },
  {
    name: "a child that is killed for memory",
    code: `
if os.fork() == 0:
    kept = []
    while True: kept.append(bytearray(8 << 20))
os.wait(); os._exit(3)`,
    ends: /^(failed|oom_killed)$/,
  },
  {
    name: "limits, a mask, a directory and signals of its own",
    code: `
import resource
for which in range(16):
    if which != 7: could(None, lambda: resource.setrlimit(which, (0, 0)) if which not in (0, 2, 3, 9) else False)
os.umask(0o777); os.chdir(own); os.nice(10); os.sched_setaffinity(0, [0])
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); signal.signal(signal.SIGINT, signal.SIG_IGN)
os._exit(0)`,
  },
  {
    name: "modes, times and attributes of whatever it can reach",
    code: `
for path in ('/tmp', '/dev/shm', '/dev/mqueue', '/text', own, '/attachments', '/attachments/in', '/.corral', '/.corral/io', '/.corral/io/in', '/.corral/io/out', '/.corral/io/err', '/.corral/busybox', '/'):
    for act in (lambda: os.utime(path, (0, 0)), lambda: os.setxattr(path, 'user.planted', b'x'), lambda: os.chmod(path, 0o777), lambda: os.chmod(path, 0)):
        try: act()
        except OSError: pass`,
  },
  {
    name: "what its own descriptors are",
    code: `
for path in ('/.corral/io/in', '/.corral/io/out', '/.corral/io/err', '/attachments/in', own):
    for act in (lambda: os.unlink(path), lambda: os.rename(path, path + '.old'), lambda: os.link(path, '/.corral/io/link'), lambda: os.link(path, own + '/link'), lambda: os.symlink('/etc/passwd', path), lambda: os.rmdir(path)):
        could(f'change {path}', act)
os.truncate('/.corral/io/out', 0); print('mine')
os.truncate('/.corral/io/err', 1 << 19)`,
    ends: "output_limit",
  },
  {
    name: "an end by a signal that shells ignore",
    code: "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    ends: "signaled",
  },
  { name: "its own stop", code: "os.kill(os.getpid(), signal.SIGSTOP)", ends: "timed_out" },
];

const NARROWINGS: Attack = {
  name: "limits, priority and processors of the first process",
  code: `
call = lambda *a: libc.syscall(*[ctypes.c_long(x) for x in a])
for pid in (1, 1 | 1 << 32):
    for which in range(16): could(f'prlimit {which}', lambda: call(302, pid, which, ctypes.addressof((ctypes.c_ulong * 2)(1, 1)), 0))
    could('affinity', lambda: call(203, pid, 8, ctypes.addressof(ctypes.c_ulong(1))))
    could('idle', lambda: call(144, pid, 5, ctypes.addressof(ctypes.c_int(0))))
    could('batch', lambda: call(144, pid, 3, ctypes.addressof(ctypes.c_int(0))))
    could('param', lambda: call(142, pid, ctypes.addressof(ctypes.c_int(0))))
    could('attr', lambda: call(314, pid, ctypes.addressof((ctypes.c_uint * 12)(48, 0, 0, 0, 19)), 0))
    could('nice', lambda: call(141, 0, pid, 19))
    could('io', lambda: call(251, 1, pid, 3 << 13))
for which in (1, 2):
    for who in (0, 1, os.getuid(), os.getpgid(1)):
        could('nice of all', lambda: call(141, which, who, 19))
        could('io of all', lambda: call(251, which + 1, who, 3 << 13))
        could('io of all', lambda: call(251, which + 1 | 1 << 32, who, 3 << 13))
print('tried')`,
};

const FORGERY: Attack = {
  name: "the first process's descriptors, memory and end",
  code: String.raw`
for fd in range(64):
    for flags in (os.O_WRONLY, os.O_RDONLY): could(f'open {fd}', lambda: os.open(f'/proc/1/fd/{fd}', flags))
for name in ('mem', 'environ', 'maps', 'cwd/x', 'root/tmp', 'io', 'auxv', 'stack', 'map_files', 'ns/pid', 'oom_score_adj', 'timerslack_ns', 'comm', 'setgroups', 'autogroup', 'coredump_filter', 'attr/current'):
    could(name, lambda: os.write(os.open(f'/proc/1/{name}', os.O_RDWR), b'1'))
for name in ('mem', 'environ', 'maps', 'fd', 'fdinfo', 'map_files', 'auxv', 'syscall'):
    could(f'read {name}', lambda: (os.listdir if name in ('fd', 'fdinfo', 'map_files') else lambda p: open(p, 'rb').read(1) or False)(f'/proc/1/{name}'))
for request in (16, 0x4206): could('trace', lambda: libc.ptrace(request, 1, 0, 0))
could('pidfd_getfd', lambda: libc.syscall(438, libc.syscall(434, 1, 0), 0, 0))
could('process_vm_readv', lambda: libc.syscall(310, 1, 0, 0, 0, 0, 0))
could('core pattern', lambda: open('/proc/sys/kernel/core_pattern', 'w').write('x') and None)
for which in range(1, 65):
    if which not in (32, 33): libc.kill(1, which)
for _ in range(2000): libc.kill(1, signal.SIGCHLD)
for fd in range(256):
    if fd not in (1, 2): could(f'write to {fd}', lambda: os.write(fd, b'ended x 0 0\n'))
print('tried'); sys.stdout.flush()
os.write(2, f"ended {os.environ['CORRAL_RUN']} 0 0\n".encode())
os._exit(9)`,
  ends: 9,
};

/** `brought`: what of it arrives; absent: nothing, and the item is refused. */
const OUTPUTS: readonly { name: string; code: string; brought?: readonly string[] }[] = [
  { name: "a link out", code: "os.symlink('/etc/passwd', own + '/x')" },
  { name: "a link upwards", code: "os.symlink('../../secret', own + '/x')" },
  {
    name: "a link upwards by way of another",
    code: "os.symlink('.', own + '/d'); os.symlink('d/d/../../../secret', own + '/x')",
  },
  { name: "a FIFO", code: "os.mkfifo(own + '/x')" },
  { name: "a socket", code: "socket.socket(socket.AF_UNIX).bind(own + '/x')" },
  { name: "setuid", code: "open(own + '/x', 'w').close(); os.chmod(own + '/x', 0o4755)" },
  { name: "more files than may be", code: "for n in range(10001): open(f'{own}/{n}', 'w').close()" },
  {
    name: "larger than may be, and sparse",
    code: "for n in range(3): os.truncate(os.open(f'{own}/{n}', os.O_CREAT | os.O_RDWR), 4 << 20)",
  },
  { name: "named in no UTF-8", code: "open(os.fsencode(own) + b'/\\xff', 'w').close()" },
  { name: "deeper than may be", code: "os.makedirs(own + '/d' * 70)" },
  {
    name: "closed, moved, and swapped for a link",
    code: `
open(own + '/x', 'w').close()
could('move', lambda: os.rename(own, '/text/y')); could('remove', lambda: os.rmdir(own)); could('plant', lambda: os.symlink('/', '/text/z'))
could('link', lambda: os.link('/attachments/in', own + '/in')); could('write', lambda: open('/attachments/in', 'a'))
os.chmod(own + '/x', 0); os.chmod(own, 0)`,
    brought: ["x"],
  },
  {
    name: "two names of one file, and links that stay inside",
    code: "open(own + '/x', 'w').close(); os.link(own + '/x', own + '/y'); os.symlink('x', own + '/z')",
    brought: ["x", "y", "z"],
  },
];

const WORKER = {
  image: "corral/python",
  command: python(RUNNER),
  sandbox: { zones: [writable("text")] },
  limits: { timeout: "10s", memory: "128m", pids: 48, disk: "8m", output: "64k" },
};

async function opened(): Promise<FleetFixture> {
  return await openFleetProject({
    workers: { w: WORKER },
    zones: { text: "rw", inbox: "ro" },
    files: { "inbox/in": "document\n" },
  });
}

/** One item for each, in one cell as long as that stays clean: an honest one that looks about before, and after each. */
function between(f: FleetFixture, codes: readonly string[]): Partial<ItemRequest>[] {
  return [LOOK, ...codes.flatMap((code) => [PRELUDE + code, LOOK])].map((input, index) => ({
    key: `${index}`,
    input,
    attachments: [{ path: join(f.project.dir, "inbox/in"), name: "in" }],
    allowWrite: [`/text/${index}`],
  }));
}

const SCRUBBED = { reuse: "scrubbed", concurrency: 1 } as const;

describe("in a cell that serves many items, one item", () => {
  it("leaves nothing that the next can see, and ends as it did", async () => {
    const attacks = [...LEFTOVERS, NARROWINGS, FORGERY];
    await using f = await opened();
    const { results, summary } = await f.map(
      SCRUBBED,
      between(
        f,
        attacks.map(({ code }) => code),
      ),
    );
    expect(summary).toMatchObject({ state: "done" });
    const first: unknown = JSON.parse(String(results.get("0")?.output));
    expect(first).toMatchObject({ processes: [], printed: 0, free: true, descriptors: [] });
    for (const [index, { name, ends = "succeeded" }] of attacks.entries()) {
      const result = results.get(String(2 * index + 1));
      const how = typeof ends === "number" ? result?.exitCode : result?.status;
      if (ends instanceof RegExp) expect.soft(how, name).toMatch(ends);
      else expect.soft(how, name).toBe(ends);
      const after = results.get(String(2 * index + 2));
      expect.soft(after, name).toMatchObject({ status: "succeeded", attempt: 1 });
      expect.soft(JSON.parse(String(after?.output)), `after ${name}`).toEqual(first);
    }
    expect((await f.project.traces()).filter((trace) => !trace.startsWith("socket"))).toEqual([]);
  });

  it.each([FORGERY, NARROWINGS])("reaches nothing of $name", async ({ code }) => {
    await using f = await opened();
    const { results } = await f.map(SCRUBBED, between(f, [code]));
    expect(results.get("1")?.output).toBe("tried\n");
  });

  it("is thrown away with its cell where that cannot be cleaned, and its result stays true", async () => {
    const deep = LEFTOVERS.find(({ name }) => name.startsWith("a tree"))?.code ?? "";
    const told = "print(open('/proc/1/stat').read().split()[21])";
    const items = [told, told, `${deep}\n${told}; open(own + '/made', 'w').write('made')`, told];
    await using f = await opened();
    const { results } = await f.map(
      SCRUBBED,
      items.map((code, index) => ({
        input: PRELUDE + code,
        allowWrite: [`/text/${index}`],
      })),
    );
    const begun = items.map((_, index) => results.get(String(index))?.output);
    expect(begun[1]).toBe(begun[0]);
    expect(begun[2]).toBe(begun[0]);
    expect(begun[3]).not.toBe(begun[0]);
    expect([...results.values()].map(({ status, attempt }) => [status, attempt])).toEqual(
      items.map(() => ["succeeded", 1]),
    );
    expect(await readFile(join(f.project.dir, "text/2/made"), "utf8")).toBe("made");
  });

  it("has its output judged, before any of it arrives", async () => {
    await using f = await opened();
    const { results } = await f.map(
      SCRUBBED,
      OUTPUTS.map(({ name, code }) => ({
        key: name,
        input: PRELUDE + code,
        attachments: [{ path: join(f.project.dir, "inbox/in"), name: "in" }],
        allowWrite: [`/text/${name}`],
      })),
    );
    const expected: string[] = [];
    for (const { name, brought } of OUTPUTS) {
      const result = results.get(name);
      expect.soft(result?.status, name).toMatch(brought === undefined ? /^(refused|disk_limit)$/ : /^succeeded$/);
      expect.soft(result?.attempt, name).toBe(1);
      expect.soft(result?.output, name).toBe(null);
      expect.soft(result?.error?.message ?? "", name).not.toContain(f.project.dir);
      if (brought !== undefined) expected.push(name, ...brought.map((file) => `${name}/${file}`));
    }
    const arrived = await readdir(join(f.project.dir, "text"), { recursive: true });
    expect(arrived.toSorted()).toEqual(expected.toSorted());
    expect(await readFile(join(f.project.dir, "inbox/in"), "utf8")).toBe("document\n");
  });

  it("finds what an earlier one left in its place, and loses no other by it", async () => {
    await using f = await opened();
    const text = join(f.project.dir, "text");
    await mkdir(join(text, "b/x"), { recursive: true });
    await writeFile(join(text, "b/x/kept"), "kept");
    await symlink("/etc", join(text, "c"));
    await writeFile(join(text, "d"), "a file");
    const code = `${PRELUDE}open(own + '/x', 'w').close() if os.path.basename(own) != 'e' else os.mkdir(own + '/x')`;
    const names = ["a", "b", "c", "d", "e"];
    await mkdir(join(text, "e"));
    await symlink("/etc", join(text, "e/x"));
    const { results, summary } = await f.map(
      SCRUBBED,
      names.map((name) => ({ key: name, input: code, allowWrite: [`/text/${name}`] })),
    );
    expect(summary).toMatchObject({ state: "done" });
    expect(names.map((name) => results.get(name)?.status)).toEqual([
      "succeeded",
      ...names.slice(1).map(() => "refused"),
    ]);
    expect(await readFile(join(text, "b/x/kept"), "utf8")).toBe("kept");
    expect(await readFile(join(text, "d"), "utf8")).toBe("a file");
  });

  it("is answered politely at the socket, and told nothing of another", async () => {
    const code = `
import http.client, json
for method, path, body in (('GET', '/v1/sandbox', None), ('POST', '/v1/calls', {'worker': 'w'}), ('POST', '/v1/tools/read_file', {'path': '/text'}), ('POST', '/v1/access', {'path': '/etc', 'mode': 'read'})):
    connection = http.client.HTTPConnection('corral'); connection.sock = socket.socket(socket.AF_UNIX); connection.sock.connect(os.environ['CORRAL_SOCKET'])
    connection.request(method, path, body and json.dumps(body)); answer = connection.getresponse()
    print(answer.status, json.loads(answer.read()).get('code'))`;
    await using f = await opened();
    const { results } = await f.map(SCRUBBED, [{ input: PRELUDE + code, allowWrite: ["/text/a"] }]);
    expect(results.get("0")?.output).toBe("200 None\n403 NOT_SERVED\n403 NOT_SERVED\n403 NOT_SERVED\n");
  });

  it("shares no cell under a policy that loosens what keeps items apart", async () => {
    const batch = await readFile(new URL("../../policies/batch.yaml", import.meta.url), "utf8");
    const loose = batch
      .replace("name: batch", "name: loose")
      .replace("read_only_root: true", "read_only_root: { value: false, why: a test wants it so }");
    await using f = await openFleetProject({
      workers: { w: WORKER },
      zones: { text: "rw" },
      policy: "loose",
      yaml: { policies: "./policies" },
      files: { "policies/loose.yaml": loose },
    });
    const opened = await f.open(SCRUBBED, [{ input: "pass" }]);
    expect(opened).toMatchObject({ ok: false, reason: expect.stringContaining("policy loose") });
  });
});
