import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, python, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const MEBIBYTE = 1024 ** 2;

const BY_CONNECTIONS = "on their way to Corral, by one connection after another";

/** Writes files of 4 MiB without an end, and hides each from whoever adds up what is there. */
const HIDING: readonly (readonly [string, string])[] = [
  [
    "on their way from one process to another",
    `
import itertools, os, socket
sockets = []
for i in itertools.count():
    file = written(i)
    if i % 8 == 0: sockets.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    socket.send_fds(sockets[-1][0], [b"x"], [file.fileno()]); file.close()`,
  ],
  [
    "on their way to a server that has not accepted the connection",
    `
import itertools, os, socket
server = socket.socket(socket.AF_UNIX); server.bind(b"\\0server"); server.listen(100)
for i in itertools.count():
    file = written(i); client = socket.socket(socket.AF_UNIX); client.connect(b"\\0server"); socket.send_fds(client, [b"x"], [file.fileno()]); client.close(); file.close()`,
  ],
  [
    "in sockets that are on their way themselves",
    `
import itertools, os, socket
held, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for i in itertools.count():
    file = written(i); a, b = socket.socketpair(socket.AF_UNIX); socket.send_fds(a, [b"x"], [file.fileno()]); socket.send_fds(own, [b"x"], [b.fileno()])
    for each in (file, a, b): each.close()`,
  ],
  [
    "on their way to Corral, which cannot read them any more",
    `
import itertools, os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["CORRAL_SOCKET"]); s.setblocking(False); last = time.time()
asked = b"GET /" + b"x" * 8000 + b" HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n"; left = asked
while time.time() - last < 0.7:
    try: left = left[s.send(left):] or asked; last = time.time()
    except BlockingIOError: time.sleep(0.02)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212992)
for i in itertools.count(): file = written(i); socket.send_fds(s, [b"x"], [file.fileno()]); file.close()`,
  ],
  [
    BY_CONNECTIONS,
    `
import os, select, socket, sys, time
hidden = 0
for i in range(20):
    file = written(i); s = socket.socket(socket.AF_UNIX); s.connect(os.environ["CORRAL_SOCKET"]); s.setblocking(False)
    try:
        while True: s.send(b"GET /v1/sandbox HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n" * 50)
    except OSError: time.sleep(0.2)
    try:
        while True: s.send(b"GET /v1/sandbox HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n" * 50)
    except OSError: pass
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212992)
    try: socket.send_fds(s, [b"x"], [s.fileno(), file.fileno()]); hidden += 1
    except OSError: s.close(); file.close(); continue
    file.close(); ended = select.poll(); ended.register(s, 0)
    if not ended.poll(20000): sys.exit("Corral did not end the connection")
    s.close()
    if hidden == 5: sys.exit(0)
sys.exit("no connection took a file")`,
  ],
  [
    "in a thread whose process looks dead",
    `
import ctypes, itertools, threading
def fill(): held = [written(i) for i in itertools.count()]
threading.Thread(target=fill).start(); ctypes.CDLL(None).syscall(60, 0)`,
  ],
  [
    "mapped by a thread whose process looks dead",
    `
import ctypes, itertools, mmap, os, threading
def fill():
    held = []
    for i in itertools.count():
        file = written(i); fd = os.open(f"/proc/thread-self/fd/{file.fileno()}", os.O_RDWR); held.append(mmap.mmap(fd, 4096)); os.close(fd); file.close()
threading.Thread(target=fill).start(); ctypes.CDLL(None).syscall(60, 0)`,
  ],
  [
    "among descriptors that come and go",
    `
import itertools, os, threading
def churn():
    while True:
        for fd in [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]: os.close(fd)
threading.Thread(target=churn, daemon=True).start()
held = [written(i) for i in itertools.count()]`,
  ],
  [
    "in processes of their own",
    `
import itertools, os, time
for i in itertools.count():
    if os.fork() == 0:
        file = written(i); time.sleep(60)
    time.sleep(0.05)`,
  ],
  [
    "below folders that nobody may look into",
    `
import itertools, os
for i in itertools.count():
    os.mkdir(f"d{i}"); written(f"d{i}/f", False); os.chmod(f"d{i}", 0)`,
  ],
  [
    "in a folder deeper than any path",
    `
import itertools, os
for i in itertools.count():
    os.mkdir("d" * 200); os.chdir("d" * 200); written(i, False)`,
  ],
  [
    "under names that are no text",
    `
import itertools, os
for i in itertools.count(): written(f"\\udcff\\n{i}", False)`,
  ],
];

const WRITTEN = `
import os
os.chdir("/data")
def written(name, hide=True):
    file = open(f"{name}", "wb"); file.write(os.urandom(1 << 20) * 4); file.flush()
    if hide: os.unlink(f"{name}")
    else: file.close()
    return file
`;

const ZONES = [
  ["a directory", writable("data")],
  ["a staged directory", { name: "data", mode: "rw" }],
] as const;

/** What a driver says is which processes a cell has. The sockets are those of the kernel, and of the host. */
const OF_PROCESSES = [
  "in a thread whose",
  "mapped by a thread",
  "in processes of their own",
  "on their way from one process",
];
/** Where a worker writes is the host's doing, by an overlay that it mounts: what is hidden from whoever adds up names is the same there. */
const OF_NAMES = ["below folders", "in a folder deeper", "under names", "in processes of their own"];
const hidingIn = (zone: string) => {
  const kinds = AT_LENGTH ? null : zone !== "a directory" ? OF_NAMES : isAgain() ? OF_PROCESSES : null;
  return HIDING.filter(([where]) => kinds === null || kinds.some((kind) => where.startsWith(kind)));
};

describe.each(isAgain() ? ZONES.slice(0, 1) : ZONES)("a worker that fills %s", (name, zone) => {
  it.each(hidingIn(name))(
    "with files %s is ended",
    async (where, script) => {
      const command = python(WRITTEN + script);
      // One that succeeds must not be ended for what other processes write meanwhile.
      const limits = { disk: where === BY_CONNECTIONS ? "1g" : "16m", timeout: "2m" };
      const worker = { image: "corral/python", command, sandbox: { zones: [zone] }, limits };
      const spec = { workers: { w: worker }, zones: { data: "rw" } as const };
      await using project = await openProject(spec, { approvalMode: "approve_all" });
      // If Corral ends the connection in which it hides its files, its next use of that fails. By one connection after another, the
      // worker succeeds only if Corral ends each that has a file in it.
      const ends = where === BY_CONNECTIONS ? /^succeeded$/ : /^(disk_limit|failed)$/;
      const { status, stderr } = await project.run("w");
      expect(status, stderr).toMatch(where.startsWith("on their way to Corral") ? ends : /^disk_limit$/);
      const used = execFileSync("du", ["-sm", join(project.dir, "data"), project.stateDir], { encoding: "utf8" });
      const taken = used.split("\n").reduce((sum, line) => sum + (Number.parseInt(line, 10) || 0), 0);
      expect(taken * MEBIBYTE).toBeLessThan(40 * 16 * MEBIBYTE);
      expect(await project.traces()).toEqual([]);
    },
    180_000,
  );
});
