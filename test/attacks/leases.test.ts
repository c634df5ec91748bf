import { readFile } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { describe, expect, it } from "vitest";
import { openProject, python, writable } from "../run/project-fixture.ts";

/** Every program that opens a leased file waits up to 45 s (/proc/sys/fs/lease-break-time). */
const LEASES = `
import fcntl, http.client, json, os, signal, socket, threading
signal.signal(signal.SIGIO, signal.SIG_IGN)
def ask(tool, body):
    connection = http.client.HTTPConnection("corral"); connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.environ["CORRAL_SOCKET"])
    connection.request("POST", "/v1/tools/" + tool, json.dumps(body)); return json.load(connection.getresponse())
def lease(path, kind):
    f = os.open(path, os.O_CREAT | os.O_RDWR if kind == fcntl.F_WRLCK else os.O_RDONLY, 0o644)
    fcntl.fcntl(f, fcntl.F_SETLEASE, kind); return f
`;

describe("a worker that takes leases on its files", () => {
  it("holds up nothing of Corral's, even if a policy lets it", async () => {
    const script = `${LEASES}
held = [lease("/out/%d" % n, fcntl.F_WRLCK) for n in range(8)]
codes = []
def one(n): codes.append(ask(*[("read_file", {"path": "/out/%d" % n}), ("append_file", {"path": "/out/%d" % n, "content": "x"}),
  ("edit_file", {"path": "/out/%d" % n, "edits": [{"old": "a", "new": "b"}]}), ("copy_file", {"from": "/out/%d" % n, "to": "/out/c%d" % n})][n % 4])["code"])
threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(*sorted(set(codes)))`;
    const yaml = { policies: "./policies" };
    const untrusted = await readFile(new URL("../../policies/untrusted.yaml", import.meta.url), "utf8");
    const loose = untrusted
      .replace("name: untrusted", "name: loose")
      .replace("seccomp: corral", "seccomp: { value: engine, why: this test takes leases }")
      .replace("file_watches: false", "file_watches: { value: true, why: the profile engine allows it }");
    // Only the Engine's cells have that profile.
    const engineEnv = { ...process.env, CORRAL_DRIVER: "engine" };
    const spec = {
      yaml,
      files: { "policies/loose.yaml": loose },
      policy: "loose",
      zones: { out: "rw" as const },
      workers: { w: { image: "corral/python", command: python(script), sandbox: { zones: [writable("out")] } } },
    };
    await using project = await openProject(spec, { engineEnv });
    const delay = monitorEventLoopDelay({ resolution: 10 });
    delay.enable();
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "succeeded", stdout: "FILE_LEASED\n", stderr: "" });
    expect(delay.max / 1e6).toBeLessThan(1000);
  });

  it("gets none, on what it writes and on what it only reads; no directory signals and no message queues either", async () => {
    const script = `${LEASES}
F_SETDELEG = 1040
def refused(work):
    try: work(); return "allowed"
    except OSError as e: return e.strerror
open("/out/a", "w").close()
print(refused(lambda: lease("/out/a", fcntl.F_WRLCK)), refused(lambda: lease("/out/a", fcntl.F_RDLCK)),
  refused(lambda: lease("/in/doc", fcntl.F_RDLCK)), sep="|")
f = os.open("/in", os.O_RDONLY)
print(refused(lambda: fcntl.fcntl(f, fcntl.F_NOTIFY, fcntl.DN_ACCESS)), refused(lambda: fcntl.fcntl(f, F_SETDELEG, bytes(16))), sep="|")
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
# The upper half of a register is not part of a command.
number = {"x86_64": 72, "aarch64": 25}[platform.machine()]
print(libc.syscall(number, os.open("/out/a", os.O_RDONLY), ctypes.c_long((1 << 32) | fcntl.F_SETLEASE), ctypes.c_long(0)), ctypes.get_errno())
print(libc.mq_open(b"/q", os.O_CREAT | os.O_RDWR, 0o600, None), ctypes.get_errno())
print(refused(lambda: os.open("/dev/mqueue/q", os.O_CREAT | os.O_RDWR)))`;
    await using project = await openProject({
      zones: { in: "ro", out: "rw" },
      files: { "in/doc": "doc\n" },
      workers: {
        w: { image: "corral/python", command: python(script), sandbox: { zones: [{ name: "in" }, writable("out")] } },
      },
    });
    const no = "Operation not permitted";
    const result = await project.run("w");
    expect(`${result.stdout}${result.stderr}`.split("\n")).toEqual([
      [no, no, no].join("|"),
      [no, no].join("|"),
      "-1 1",
      "-1 1",
      "Too many open files",
      "",
    ]);
  });

  it("still locks records and whole files, as databases, package managers and git do", async () => {
    const script = `
import fcntl, os, sqlite3, struct, subprocess, sys
f = open("/out/locked", "w+")
fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)
fcntl.fcntl(open("/out/other", "w+"), 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
fcntl.fcntl(f, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(f, fcntl.F_SETFL, os.O_NONBLOCK)
r, w = os.pipe(); fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 1 << 16)
try: m = os.memfd_create("m", os.MFD_ALLOW_SEALING | 8)
except OSError: m = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
else: fcntl.fcntl(m, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
os.dup(m); os.set_inheritable(m, True)
db = sqlite3.connect("/out/db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(x)")
db.execute("insert into t values (1)"); db.commit(); print(db.execute("select * from t").fetchall())`;
    await using project = await openProject({
      zones: { out: "rw" as const },
      workers: { w: { image: "corral/python", command: python(script), sandbox: { zones: [writable("out")] } } },
    });
    expect(await project.run("w")).toMatchObject({ status: "succeeded", stdout: "[(1,)]\n", stderr: "" });
  });
});
