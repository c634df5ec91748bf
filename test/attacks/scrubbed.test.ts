import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ItemRequest } from "../../src/fleet/model/item.ts";
import { type FleetFixture, openFleetProject } from "../fleet/fleet-fixture.ts";
import { python, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";
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
def planted():
    # A file in memory that is never executed: any other is refused. A kernel before 6.3 knows none.
    try: return os.memfd_create('planted', 9)
    except OSError: return os.open('/tmp', os.O_TMPFILE | os.O_RDWR)
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
    could('take a lease', lambda: fcntl.fcntl(os.open('/.corral/io/err', os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK))
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
    a, b = socket.socketpair(socket.AF_UNIX); memory = planted(); os.write(memory, bytes(1 << 20))
    socket.send_fds(a, [b'x'], [memory, a.fileno(), b.fileno()])
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

/** Sockets that wait in each other's queues stay open when every process is dead, with everything that waits beside them. */
const IN_FLIGHT: readonly Attack[] = [
  {
    name: "deleted files in a pair of sockets that hold each other",
    code: `
for n in range(13):
    a, b = socket.socketpair(socket.AF_UNIX); f = os.open('/tmp/x', os.O_CREAT | os.O_RDWR); os.unlink('/tmp/x'); os.write(f, bytes(7 << 20))
    socket.send_fds(a, [b'x'], [a.fileno(), b.fileno(), f]); os.close(f)`,
  },
  {
    name: "one datagram socket that waits in its own queue, with memory and a name",
    code: `
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(b'\\0alone'); s.connect(b'\\0alone')
m = planted(); os.write(m, bytes(48 << 20)); socket.send_fds(s, [b'x'], [s.fileno(), m])`,
  },
  {
    name: "a server whose own descriptor waits in a connection that it has not accepted",
    code: `
l = socket.socket(socket.AF_UNIX); l.bind(b'\\0backlog'); l.listen(); c = socket.socket(socket.AF_UNIX); c.connect(b'\\0backlog')
m = planted(); os.write(m, bytes(32 << 20)); socket.send_fds(c, [b'x'], [l.fileno(), c.fileno(), m])`,
  },
  {
    name: "sockets inside of sockets, eight deep and in a ring",
    code: `
pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
m = planted(); os.write(m, bytes(32 << 20))
for n, (a, b) in enumerate(pairs):
    c, d = pairs[(n + 1) % 8]; socket.send_fds(a, [b'x'], [c.fileno(), d.fileno(), m])`,
  },
  {
    name: "ports of every protocol, held by a ring",
    code: `
held = []
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            s = socket.socket(family, kind); s.bind((host, 8080)); held.append(s)
            if kind == socket.SOCK_STREAM: s.listen(0)
        except OSError: pass
assert held
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); n.bind((0, 0)); held.append(n)
a, b = socket.socketpair(socket.AF_UNIX); socket.send_fds(a, [b'x'], [a.fileno(), b.fileno(), *[s.fileno() for s in held]])`,
  },
  {
    name: "queues, watches, timers and locks, held by a ring",
    code: `
libc.mq_open(b'/gone', os.O_CREAT | os.O_RDWR, 0o666, None); q = libc.mq_open(b'/gone', os.O_RDWR); libc.mq_unlink(b'/gone')
i = libc.inotify_init(); libc.inotify_add_watch(i, b'/tmp', 0xfff); t = libc.timerfd_create(1, 0); e = libc.eventfd(1, 0); p = os.pipe(); k = libc.epoll_create(1)
f = os.open('/attachments/in', os.O_RDONLY); fcntl.flock(f, fcntl.LOCK_EX)
a, b = socket.socketpair(socket.AF_UNIX); socket.send_fds(a, [b'x'], [fd for fd in (a.fileno(), b.fileno(), q, i, t, e, f, k, *p) if fd >= 0])`,
  },
  {
    name: "as many descriptors in flight as it may have",
    code: `
keep = []
for n in range(60):
    a, b = socket.socketpair(socket.AF_UNIX); keep += [a, b]
    for _ in range(20): could(None, lambda: bool(socket.send_fds(a, [b'x'], [s.fileno() for s in keep])) and False)`,
  },
  {
    name: "a ring of a process in a session of its own, which lives on",
    code: `
def ring():
    a, b = socket.socketpair(socket.AF_UNIX); f = os.open('/dev/shm/x', os.O_CREAT | os.O_RDWR); os.unlink('/dev/shm/x'); os.write(f, bytes(8 << 20))
    socket.send_fds(a, [b'x'], [a.fileno(), b.fileno(), f]); a.close(); b.close(); os.close(f); time.sleep(300)
apart(ring)`,
  },
  {
    name: "connections over the loopback device that have ended, and hold their ports",
    code: `
l = socket.socket(); l.bind(('127.0.0.1', 8081)); l.listen()
for n in range(5):
    c = socket.create_connection(('127.0.0.1', 8081)); d, _ = l.accept(); d.close(); c.close()`,
  },
  {
    name: "a connection with data that nobody reads",
    code: `
l = socket.socket(); l.bind(('127.0.0.1', 8082)); l.listen(); c = socket.create_connection(('127.0.0.1', 8082)); c.setblocking(False)
try:
    while True: c.send(bytes(1 << 16))
except BlockingIOError: pass`,
  },
  {
    name: "connections that are never answered",
    code: `
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(0); keep = [l]
for n in range(20):
    c = socket.socket(); c.setblocking(False); c.connect_ex(l.getsockname()); keep.append(c)
a, b = socket.socketpair(socket.AF_UNIX); socket.send_fds(a, [b'x'], [a.fileno(), b.fileno(), *[s.fileno() for s in keep]])`,
  },
];

/** What would have the kernel signal a process when the item has ended. */
const TIME_BOMBS: Attack = {
  name: "owners and signals of descriptors, leases, and kernel objects without a socket",
  code: `
ioctl = lambda fd, request, value: libc.ioctl(ctypes.c_int(fd), ctypes.c_ulong(request), ctypes.byref(ctypes.c_int(value)))
call = lambda *a: libc.syscall(*[ctypes.c_long(x) for x in a])
c = socket.socket(); t = os.open('/tmp/lease', os.O_CREAT | os.O_RDONLY); d = os.open('/tmp', os.O_RDONLY)
pair = (ctypes.c_int * 2)(2, 1)
for high in (0, 1 << 32, 1 << 63):
    for who in (-1, 1, os.getpid(), -os.getpid()):
        could('set an owner', lambda: call(72, c.fileno(), 8 | high, who))
        could('set an owner', lambda: call(16, c.fileno(), 0x8901 | high, ctypes.addressof(ctypes.c_int(who))))
        could('set an owner', lambda: call(16, c.fileno(), 0x8902 | high, ctypes.addressof(ctypes.c_int(who))))
    could('set an owner', lambda: call(72, c.fileno(), 15 | high, ctypes.addressof(pair)))
    could('choose a signal', lambda: call(72, c.fileno(), 10 | high, 9))
    could('take a lease', lambda: call(72, t, 1024 | high, 0))
    could('take a lease', lambda: call(72, d, 1040 | high, ctypes.addressof(ctypes.create_string_buffer(16))))
    could('be notified', lambda: call(72, d, 1026 | high, 0x80000002))
could('read an owner', lambda: -1 if call(72, c.fileno(), 9, 0) == 0 else 0)
for name, number in (('io_uring', 425), ('pidfd_getfd', 438), ('add_key', 248), ('keyctl', 250), ('request_key', 249), ('bpf', 321), ('userfaultfd', 323), ('io_setup', 206), ('perf', 298), ('fanotify', 300), ('unshare', 272), ('setns', 308), ('kcmp', 312)):
    could(name, lambda: call(number, 8, ctypes.addressof(ctypes.create_string_buffer(256)), 0, 0, 0))
assert fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL) | os.O_NONBLOCK) == 0
import termios
assert fcntl.ioctl(os.pipe()[0], termios.FIONREAD, bytes(4)) == bytes(4)
print('tried')`,
};

/** What a process group, a session and a terminal let a process do to others. */
const GROUPS: Attack = {
  name: "groups, sessions and terminals",
  code: `
if os.getsid(0) != os.getpid() or os.getpgrp() != os.getpid(): print('shares a session with', os.getsid(0))
for group in (0, 1): could('join another group', lambda: os.setpgid(0, 1) or True)
could('stop the first process', lambda: os.killpg(1, signal.SIGSTOP) or True)
if os.fork() == 0:
    os.setsid()
    try:
        import pty, termios
        leader, follower = pty.openpty(); fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
        could('signal by a terminal', lambda: os.tcsetpgrp(follower, 1) or True)
        os.write(leader, b'\\x03\\x1a\\x1c')
    except OSError: pass
    os._exit(0)
os.wait(); print('tried'); sys.stdout.flush(); os.killpg(0, signal.SIGKILL)`,
  ends: "signaled",
};

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

/** One for each part of the cleaning: both drivers have the same program clean the cell, and look after it in the same way. */
const ONE_OF_EACH_KIND = [...LEFTOVERS, ...IN_FLIGHT].filter(({ name }) =>
  [
    "files of every kind",
    "System V",
    "locks and leases",
    "stopped processes",
    "all the processes",
    "a child that is killed",
    "limits, a mask",
    "modes, times",
    "an end by a signal",
    "one datagram socket",
    "ports of every protocol",
    "connections over the loopback",
  ].some((kind) => name.startsWith(kind)),
);

const TRIALS = [TIME_BOMBS, GROUPS, NARROWINGS, FORGERY];
const TRIED: ReadonlySet<string> = new Set(TRIALS.map(({ name }) => name));

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

async function opened(limits: Partial<typeof WORKER.limits> = {}): Promise<FleetFixture> {
  return await openFleetProject({
    workers: { w: { ...WORKER, limits: { ...WORKER.limits, ...limits } } },
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

/** A file in transit counts as infinite: a slow item is looked at while one waits in a socket. */
const usualEnd = (code: string) => (code.includes("send_fds") ? /^(succeeded|disk_limit)$/ : "succeeded");

describe("in a cell that serves many items, one item", () => {
  it("leaves nothing that the next can see, and ends as it did", async () => {
    const attacks = [...(isAgain() ? ONE_OF_EACH_KIND : [...LEFTOVERS, ...IN_FLIGHT]), ...TRIALS];
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
    expect(first).toMatchObject({
      processes: [],
      printed: 0,
      free: true,
      descriptors: [],
      used: ["0", "0"],
      session: [true, true],
    });
    for (const [index, { name, code, ends = usualEnd(code) }] of attacks.entries()) {
      const result = results.get(String(2 * index + 1));
      const how = typeof ends === "number" ? result?.exitCode : result?.status;
      if (ends instanceof RegExp) expect.soft(how, name).toMatch(ends);
      else expect.soft(how, name).toBe(ends);
      // What it could do although it may not is printed before.
      if (TRIED.has(name)) expect.soft(result?.output, name).toBe("tried\n");
      const after = results.get(String(2 * index + 2));
      expect.soft(after, name).toMatchObject({ status: "succeeded", attempt: 1 });
      expect.soft(JSON.parse(String(after?.output)), `after ${name}`).toEqual(first);
    }
    expect(await f.project.traces()).toEqual([]);
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

  // The program that cleans a cell finds them, the same one under both drivers.
  it.skipIf(isAgain())(
    "is thrown away with its cell for one System V object of any kind, the first in its table or a later one",
    async () => {
      const told = "print(open('/proc/1/stat').read().split()[21])";
      const make = {
        shm: "libc.shmget(n, 4096, 0o1666)",
        msg: "libc.msgget(n, 0o1666)",
        sem: "libc.semget(n, 1, 0o1666)",
      };
      const remove = { shm: "libc.shmctl(i, 0, 0)", msg: "libc.msgctl(i, 0, 0)", sem: "libc.semctl(i, 0, 0)" };
      const left = (kind: keyof typeof make, of: number): string =>
        `ids = [${make[kind]} for n in range(7, ${7 + of})]\nassert min(ids) >= 0\nfor i in ids[:-1]: assert ${remove[kind]} == 0`;
      const all = `ids = [${make.shm} for n in (7, 8)]\nfor i in ids: assert ${remove.shm} == 0`;
      const attacks = (["shm", "msg", "sem"] as const).flatMap((kind) => [left(kind, 1), left(kind, 3)]);
      const items = [told, `${all}\n${told}`, ...attacks.flatMap((code) => [told, `${code}\n${told}`, told, told])];
      await using f = await opened();
      const { results } = await f.map(
        SCRUBBED,
        items.map((code, index) => ({ input: PRELUDE + code, allowWrite: [`/text/${index}`] })),
      );
      const begun = items.map((_, index) => String(results.get(String(index))?.output));
      // What is removed again is nothing that is left.
      expect([begun[1], begun[2]]).toEqual([begun[0], begun[0]]);
      for (const [at, code] of attacks.entries()) {
        const [before, during, after, later] = begun.slice(2 + 4 * at);
        expect.soft([during === before, after === before, later === after], code).toEqual([true, false, true]);
      }
    },
  );

  it("changes nothing of an input that the next one has too, nor of the folder that it leaves", async () => {
    const code = `
path = '/.corral/io/in'
before = os.stat(path)
for path in ('/.corral/io/env', '/.corral/io/in'):
    could('write', lambda: open(path, 'r+')); could('cut', lambda: os.truncate(path, 0)); could('chmod', lambda: os.chmod(path, 0o666))
    could('mark', lambda: os.setxattr(path, 'user.left', b'x')); could('date', lambda: os.utime(path, (1, 1))); could('remove', lambda: os.remove(path))
could('plant', lambda: os.symlink('/', '/.corral/io/more')); could('lease', lambda: fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK))
print(oct(before.st_mode), before.st_uid, before.st_size, before.st_mtime > time.time() - 30, before.st_atime >= before.st_mtime - 0.1, os.listxattr(path), sorted(os.listdir('/.corral/io')))
open(own + '/x', 'w').close(); os.chmod(own, 0o2777)`;
    await using f = await opened();
    const items = [0, 1, 2].map((index) => ({
      input: `import fcntl, time\n${PRELUDE}${code}`,
      allowWrite: [`/text/${index}`],
    }));
    const { results } = await f.map(SCRUBBED, items);
    const said = items.map((_, index) => String(results.get(String(index))?.output));
    expect(said[0]).toMatch(/^0o100444 0 \d+ True True \[\] \['env', 'err', 'in', 'out'\]\n$/);
    expect(said).toEqual(said.map(() => said[0]));
    for (const index of [0, 1, 2]) {
      const { mode } = await stat(join(f.project.dir, `text/${index}`));
      expect(mode & 0o7777).toBe(0o755);
    }
  });

  // Judged, and brought to its place, on the host.
  it.skipIf(isAgain())("has its output judged, before any of it arrives", async () => {
    // Ten thousand files may take longer than ten seconds on a busy machine.
    await using f = await opened({ timeout: "2m" });
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

  it.skipIf(isAgain())("finds what an earlier one left in its place, and loses no other by it", async () => {
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

  it("has no socket of Corral, and corral-call says why", async () => {
    const code = `
print(os.path.lexists('/.corral/socket'), 'CORRAL_SOCKET' in os.environ, [line for line in open('/proc/net/unix').read().splitlines()[1:]])
asked = subprocess.run(['corral-call', 'w'], input='{}', capture_output=True, text=True); print(asked.returncode, asked.stderr)`;
    await using f = await opened();
    const { results } = await f.map(SCRUBBED, [{ input: PRELUDE + code, allowWrite: ["/text/a"] }]);
    expect(results.get("0")?.output).toMatch(/^False False \[\]\n125 .*not as items of a scrubbed fleet/);
  });

  it.each(["/inbox/s", "/inbox/exec"])("ends as in a cell of its own if its command is %s", async (path) => {
    const files = { "inbox/s": "echo $0 $# $1; exit 7\n", "inbox/exec": "#!/no/such/program\n" };
    const worker = { ...WORKER, command: [path, "a b"], sandbox: { zones: [{ name: "inbox" }] } };
    await using f = await openFleetProject({ workers: { w: worker }, zones: { inbox: "ro" }, files });
    for (const file of Object.keys(files)) await chmod(join(f.project.dir, file), 0o755);
    const ends = async (reuse: "scrubbed" | "fresh") => {
      const { results } = await f.map({ ...SCRUBBED, reuse }, [{ input: "" }]);
      const { status, exitCode, output } = results.get("0") ?? {};
      return { status, exitCode, output };
    };
    expect(await ends("scrubbed")).toEqual(await ends("fresh"));
  });

  it("shares no cell under a policy that loosens what keeps items apart", async () => {
    const batch = await readFile(new URL("../../policies/batch.yaml", import.meta.url), "utf8");
    const loose = batch
      .replace("name: batch", "name: loose")
      .replace("no_new_privileges: true", "no_new_privileges: { value: false, why: a test wants it so }");
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
