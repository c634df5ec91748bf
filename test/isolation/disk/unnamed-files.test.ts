import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { heldBytes } from "../../../src/isolation/disk/unnamed-files.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";

const MEBIBYTE = 1024 ** 2;

/** Holds a deleted file of 3 MiB in some way until its input ends. */
const HOLD = `
import mmap, os, socket, sys
path = sys.argv[1]
file = open(path, "wb+"); file.write(b"x" * (3 << 20)); file.flush(); os.fsync(file.fileno())
if sys.argv[2] != "named": os.unlink(path)
if sys.argv[2].startswith("directory"):
    file.close(); os.mkdir(path); held = os.open(path, os.O_RDONLY)
    for n in range(500): os.close(os.open("%s/%s%d" % (path, "x" * 240, n), os.O_CREAT))
    for name in os.listdir(held): os.unlink(path + "/" + name)
    if sys.argv[2] == "directory, as its place": os.chdir(path); os.close(held)
    if sys.argv[2] != "directory, named": os.rmdir(path)
if sys.argv[2] == "mapped": held = mmap.mmap(file.fileno(), 4096); file.close()
if sys.argv[2] == "travelling":
    held = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); socket.send_fds(held[0], [b"x"], [file.fileno()]); file.close()
if sys.argv[2] == "twice": held = os.dup(file.fileno())
if sys.argv[2] == "waiting":
    held = socket.socket(socket.AF_UNIX); held.bind(b"\\0corral-held-%d" % os.getpid()); held.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(held.getsockname()); socket.send_fds(client, [b"x"], [file.fileno()]); file.close(); client.close()
if sys.argv[2] == "nested":
    held, a = socket.socketpair(); b, c = socket.socketpair()
    socket.send_fds(b, [b"x"], [file.fileno()]); socket.send_fds(a, [b"x"], [b.fileno(), c.fileno()]); file.close(); a.close(); b.close(); c.close()
def alone():
    while open(f"/proc/self/task/{os.getpid()}/stat").read().split()[2] != "Z": __import__("time").sleep(0.01)
    rest()
def rest():
    print("holds", flush=True); sys.stdin.read(); os._exit(0)
if sys.argv[2] == "threaded":
    import ctypes, threading
    threading.Thread(target=alone).start(); ctypes.CDLL(None).syscall(60, 0)
if sys.argv[2] == "threaded and mapped":
    import ctypes, threading
    held = mmap.mmap(file.fileno(), 4096); file.close(); threading.Thread(target=alone).start(); ctypes.CDLL(None).syscall(60, 0)
if sys.argv[2] == "apart":
    import ctypes, threading
    own = threading.Event(); gone = threading.Event()
    def keep():
        ctypes.CDLL(None).unshare(0x400); own.set(); gone.wait(); rest()
    threading.Thread(target=keep).start(); own.wait(); file.close(); gone.set()
    while True: __import__("time").sleep(9)
rest()`;

async function held(way: string, dir?: string): Promise<number | null> {
  const folder = temporaryFolder();
  const child = spawn("python3", ["-c", HOLD, `${dir ?? folder.path}/corral-held-${process.pid}`, way], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  try {
    await once(child.stdout, "data");
    // Another test file of this process may hold something.
    const own = (await heldBytes([process.pid])) ?? 0;
    const all = await heldBytes([child.pid ?? 0, process.pid]);
    return all === null ? null : all - own;
  } finally {
    child.stdin.end();
    await once(child, "close");
    folder.remove();
  }
}

describe("deleted files that a process holds", () => {
  it.each([
    ["open", 3 * MEBIBYTE],
    ["twice", 3 * MEBIBYTE],
    ["mapped", 3 * MEBIBYTE],
    ["travelling", Number.POSITIVE_INFINITY],
    ["waiting", Number.POSITIVE_INFINITY],
    ["nested", Number.POSITIVE_INFINITY],
    ["threaded", 3 * MEBIBYTE],
    ["threaded and mapped", Number.POSITIVE_INFINITY],
    ["apart", 3 * MEBIBYTE],
    ["named", 0],
  ])("are counted if they are %s", async (way, bytes) => {
    expect(await held(way)).toBe(bytes);
  });

  it.each(["directory", "directory, as its place"])("are counted if they are a %s", async (way) => {
    // File systems give the space of names back that were removed, or not.
    expect(await held(way)).toBeGreaterThanOrEqual(4096);
  });

  it("are not counted where they are in memory", async () => {
    expect(await held("open", "/dev/shm")).toBe(0);
  });

  it("are none of a process that is gone", async () => {
    const child = spawn("true");
    await once(child, "close");
    expect(await heldBytes([child.pid ?? 0])).toBe(0);
  });
});
