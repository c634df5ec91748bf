import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { openProject, python, sh, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

describe("a worker that exhausts what it has", () => {
  it("has no more processes than its limit, however it forks", async () => {
    const script = `
import os, time
n = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        n += 1
except OSError as e: print(n, type(e).__name__, flush=True)
os._exit(0)`;
    await using project = await openProject({
      workers: { w: { image: "corral/python", command: python(script), limits: { pids: 30 } } },
    });
    const result = await project.run("w");
    expect(result.status).toBe("succeeded");
    expect(result.stdout).toMatch(/^2\d BlockingIOError\n$/);
    expect(await project.traces()).toEqual([]);
  });

  it("ends, bomb or not, and leaves room for others meanwhile", async () => {
    const bomb = {
      command: sh("bomb() { bomb | bomb & }; bomb; while :; do bomb 2>/dev/null; done"),
      limits: { pids: 32, timeout: "2s", output: "100k" },
    };
    await using project = await openProject({ workers: { bomb, calm: { command: sh("echo calm") } } });
    const [exploded, calm] = await Promise.all([project.run("bomb"), project.run("calm")]);
    expect(exploded.status).toMatch(/^(timed_out|output_limit|failed)$/);
    expect(calm).toMatchObject({ status: "succeeded", stdout: "calm\n" });
    expect(await project.traces()).toEqual([]);
  });

  it("fills neither /tmp nor HOME nor /dev/shm beyond a bound, and nothing else at all", async () => {
    const script = `for dir in /tmp "$HOME" /dev/shm / /usr /.corral /var/tmp /run; do
      head -c 200M /dev/zero > $dir/fill 2>/dev/null; stat -c '%n %s' $dir/fill 2>/dev/null; rm -f $dir/fill; done`;
    await using project = await openProject({
      workers: { w: { command: sh(script), limits: { memory: "512m", disk: "1g" } } },
    });
    const { stdout } = await project.run("w");
    expect(stdout.split("\n").filter((line) => !line.startsWith("/dev/shm"))).toEqual([
      `/tmp/fill ${64 << 20}`,
      `/home/worker/fill ${16 << 20}`,
      "",
    ]);
    const shm = Number(/^\/dev\/shm\/fill (\d+)$/m.exec(stdout)?.[1] ?? 0);
    expect(shm).toBeLessThanOrEqual(64 << 20);
  });

  it("is killed for memory that it took through files in /tmp, as for any other", async () => {
    const script = "head -c 60M /dev/zero > /tmp/fill; echo survived";
    await using project = await openProject({ workers: { w: { command: sh(script), limits: { memory: "32m" } } } });
    const result = await project.run("w");
    expect(result.usage.outOfMemory).toBe(true);
  });

  // The host holds it, for both drivers.
  it.skipIf(isAgain())(
    "has Corral hold what a few tools read, however many it asks for and never reads the answer of",
    async () => {
      const script = `
import os, socket, time
with open("/out/large.png", "wb") as f:
    f.write(b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR")
    f.truncate(10 << 20)
body = b'{"path":"/out/large.png"}'
asking = b"POST /v1/tools/read_file HTTP/1.1\\r\\nhost: corral\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body) + body
sockets = [socket.socket(socket.AF_UNIX) for _ in range(60)]
for s in sockets:
    s.connect(os.environ["CORRAL_SOCKET"])
    s.sendall(asking)
time.sleep(6)
print(sockets[0].recv(15).decode())`;
      await using project = await openProject({
        workers: {
          w: { image: "corral/python", command: python(script), sandbox: { zones: [writable("out")] } },
        },
        zones: { out: "rw" },
      });
      const before = process.memoryUsage().arrayBuffers;
      let peak = 0;
      const looking = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage().arrayBuffers - before);
      }, 20);
      const { stdout } = await project.run("w");
      clearInterval(looking);
      expect(stdout).toBe("HTTP/1.1 200 OK\n");
      expect(peak / 2 ** 20).toBeLessThan(600);
    },
  );
});

/** Fills the queues of connections to itself, and says how many MiB wait in them. */
const FILL = `
import socket
kept, total, blob = [], 0, b"x" * 65536
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
for n in range(40):
    client = socket.create_connection(listener.getsockname()); client.setblocking(False); server, _ = listener.accept(); kept += [client, server]
    for again in range(400):
        try: total += client.send(blob)
        except BlockingIOError: break
print(total >> 20)
`;

describe("a worker that fills its own sockets", () => {
  // Version 1 of control groups takes such a limit from root alone.
  const isCounted = process.getuid?.() === 0 || existsSync("/sys/fs/cgroup/cgroup.controllers");
  it.skipIf(!isCounted)("holds no more memory in them than it was given", async () => {
    await using project = await openProject({
      workers: { w: { image: "corral/python", command: python(FILL), limits: { memory: "64m" } } },
    });
    const result = await project.run("w");
    expect(result.enforcement?.socketMemory).toBe("counted");
    // With version 2 the kernel may end the worker instead.
    expect(Number(result.stdout), JSON.stringify(result.error)).toBeLessThan(64);
  });
});
