import { describe, expect, it } from "vitest";
import { openProject, python, writable } from "../run/project-fixture.ts";

/* What a worker asks of the kernel beside its files, in real cells: requests to devices and file systems, protocols, files in memory. */

const ASKS = `
import array, ctypes, errno, fcntl, os, socket, subprocess, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
def code(call):
    try: call(); return "made"
    except OSError as e: return errno.errorcode[e.errno]
def ioctl(fd, request):
    # By the system call itself, also with bits above those that the kernel reads.
    buffer = ctypes.create_string_buffer(8192)
    return "made" if libc.syscall(16 if os.uname().machine == "x86_64" else 29, fd, ctypes.c_ulong(request), buffer) >= 0 else errno.errorcode[ctypes.get_errno()]
d = os.open(sys.argv[1], os.O_RDONLY)
for request in [0x5000940e, 0x50009418, 0x50009401, 0x40049409, 0x4020940d, 0x401c5820, 0x40086602, 0x5412, 0x5423, 0x8946]:
    print("ioctl", hex(request), ioctl(d, request), ioctl(d, request | 1 << 40))
for family, kind, protocol in [(2, 1, 262), (2, 2, 136), (10, 2, 136), (2, 5, 132), (2, 3, 1), (40, 1, 0), (21, 5, 0), (43, 1, 0), (17, 3, 0), (2, 1, 253), (16, 3, 12)]:
    print("socket", family, kind, protocol, code(lambda: socket.socket(family, kind, protocol)))
def executed(flags):
    fd = libc.syscall(319 if os.uname().machine == "x86_64" else 279, b"x", flags)
    if fd < 0: return errno.errorcode[ctypes.get_errno()]
    with open("/bin/true", "rb") as f: os.write(fd, f.read())
    pid = os.fork()
    if pid == 0:
        try: os.execve(fd, ["x"], {})
        except OSError as e: os._exit(e.errno)
    return "exit %d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print("memory", executed(0), executed(1), executed(0x10), executed(8))
`;

/** What honest programs do, each with what it needs of the same calls. */
const HONEST = `
print("sizes", array.array("i", [0]).itemsize, code(lambda: fcntl.ioctl(d, 0x80086601, bytearray(8))) in ("made", "ENOTTY", "EOPNOTSUPP"))
a, b = socket.socketpair(); b.send(b"abc"); got = array.array("i", [0]); fcntl.ioctl(a, termios.FIONREAD, got); print("waiting", got[0])
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); c.settimeout(5)
socket.create_server(("::1", 0), family=socket.AF_INET6); socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 17)
print("names", socket.if_nameindex(), socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)[0][4][1])
master, slave = os.openpty(); print("terminal", os.ttyname(slave).startswith("/dev/pts/"), os.get_terminal_size(slave).columns)
print(subprocess.run(["script", "-qec", "stty size; tty", "/dev/null"], capture_output=True, text=True).stdout.replace("\\r", ""))
open("/out/a", "w").write("a" * 100000); print("copied", subprocess.run(["cp", "/out/a", "/out/b"]).returncode)
`;

describe("a worker that asks the kernel for more than files", () => {
  it("gets no request of a file system, no rare protocol, and no executable file in memory", async () => {
    await using project = await openProject({
      zones: { out: "rw" },
      workers: {
        w: { image: "corral/python", command: [...python(ASKS), "/out"], sandbox: { zones: [writable("out")] } },
      },
    });
    const { stdout, error } = await project.run("w");
    const lines = stdout.trim().split("\n");
    const answers = lines
      .filter((line) => !line.startsWith("memory"))
      .flatMap((line) => line.match(/\b(made|E[A-Z]+)\b/g) ?? []);
    expect(answers, JSON.stringify(error)).toEqual(Array(10 * 2 + 11).fill("EPERM"));
    // A kernel before 6.3 does not know the last flag. One with it lets nothing be executed. gVisor has EPERM for all that its filter refuses.
    expect(lines.at(-1)).toMatch(/^memory (ENOSYS ENOSYS ENOSYS|EPERM EPERM EPERM) (exit 13|EINVAL)$/);
  });

  it("has terminals, sockets and copies as before", async () => {
    await using project = await openProject({
      zones: { out: "rw" },
      workers: {
        w: {
          image: "corral/python",
          command: [...python(`${ASKS.slice(0, ASKS.indexOf("for request"))}${HONEST}`), "/out"],
          sandbox: { zones: [writable("out")] },
        },
      },
    });
    const { stdout, stderr } = await project.run("w");
    expect(stdout, stderr).toMatch(
      /^sizes 4 True\nwaiting 3\nnames \[\(1, 'lo'\).*\] 80\nterminal True \d+\n\d+ \d+\n\/dev\/pts\/\d+\n\ncopied 0\n$/,
    );
  });

  it("may execute files in memory where it may execute files in /tmp", async () => {
    await using project = await openProject({
      policy: "ci",
      workers: { w: { image: "corral/python", command: [...python(ASKS), "/tmp"] } },
    });
    const { stdout } = await project.run("w");
    expect(stdout.trim().split("\n").at(-1)).toMatch(/^memory exit 0 exit 0 (exit 0|EINVAL) (exit 13|EINVAL)$/);
  });
});
