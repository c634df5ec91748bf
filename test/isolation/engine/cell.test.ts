import { createHash } from "node:crypto";
import { link, mkdir, readdir, readFile, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { dockerDriver } from "../../../src/isolation/engine/driver.ts";
import type { CellExit } from "../../../src/isolation/port/cell.ts";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { cellOf, type Engine, openEngine, ranToItsEnd } from "./engine.ts";

/** What only a kernel can show, and therefore no contract for all drivers can ask. */

let engine: Engine;
beforeAll(async () => {
  engine = await openEngine();
});
afterAll(() => engine[Symbol.asyncDispose]());

const pre_approved = { write: "pre_approved", delete: "pre_approved" } as const;

const LOOPBACK = `
import os, socket
print(os.readlink('/proc/self/ns/net'))
print(*[name for _, name in socket.if_nameindex() if name == 'lo' or os.path.exists(f'/sys/class/net/{name}/device')])
server = socket.create_server(('localhost', 0))
client = socket.create_connection(('localhost', server.getsockname()[1]))
client.send(b'said over localhost'); print(server.accept()[0].recv(100).decode())
print(open('/etc/resolv.conf').read().strip())
try: socket.create_connection(('192.0.2.1', 80), 2)
except OSError: print('no way out')
for name in ('hosts', 'resolv.conf'):
    try: open('/etc/' + name, 'a'); break
    except OSError: pass
else: print('no way to change it')
`;

/** Processes of this machine with this word in their command line. */
async function processesWith(word: string): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return lines.filter((line) => line.split("\0").includes(word));
}

describe("ending a cell", () => {
  it("ends every process of it, also those that went into sessions of their own and ignore everything", async () => {
    const seconds = "54321.25";
    const script = `trap '' TERM HUP INT
      setsid sh -c "trap '' TERM HUP; setsid sleep ${seconds} & exec sleep ${seconds}" & (sleep ${seconds} &) ; echo ready; exec sleep ${seconds}`;
    const { plan, pins } = await engine.plan({ command: ["sh", "-c", script] });
    let ready = (): void => {};
    const said = new Promise<void>((resolve) => {
      ready = resolve;
    });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => ready() };
    await using cell = cellOf(await engine.driver.start(start));
    cell.release(Buffer.alloc(0));
    await said;
    while ((await processesWith(seconds)).length < 4) await new Promise((later) => setTimeout(later, 20));
    await cell.kill("SIGKILL");
    expect(await cell.exit).toMatchObject({ kind: "exited", code: 137 });
    expect(await processesWith(seconds)).toEqual([]);
  });
});

describe("output", () => {
  it("comes whole, 50 MB of it, to a consumer that is slow", async () => {
    const bytes = 50_000_000;
    const { plan, pins } = await engine.plan({ command: ["sh", "-c", `yes 0123456789 | head -c ${bytes}`] });
    const hash = createHash("sha256");
    let seen = 0;
    let chunks = 0;
    const onOutput = (_: string, chunk: Buffer): void => {
      seen += chunk.length;
      hash.update(chunk);
      // Holds up the whole event loop now and then, as rendering would.
      chunks += 1;
      if (chunks % 100 === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    };
    const start = { plan, pins, signal: new AbortController().signal, onOutput };
    await using cell = cellOf(await engine.driver.start(start));
    cell.release(Buffer.alloc(0));
    expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
    const expected = createHash("sha256").update("0123456789\n".repeat(bytes / 11 + 1).slice(0, bytes));
    expect([seen, hash.digest("hex")]).toEqual([bytes, expected.digest("hex")]);
  });

  it("of single bytes, as fast as they come, does no harm to the orchestrator", async () => {
    const script = "import os\nfor n in range(60000): os.write(1, b'a'); os.write(2, b'b')";
    const { exit, stdout, stderr } = await ranToItsEnd(engine, {
      image: "corral/python",
      command: ["python3", "-c", script],
    });
    expect(exit).toMatchObject({ kind: "exited", code: 0 });
    expect([stdout, stderr]).toEqual(["a".repeat(60_000), "b".repeat(60_000)]);
  });

  // Up to some 4 KB input and output come by one connection, which unread input must not break.
  it.each(AT_LENGTH ? [0, 1, 3999, 4000, 4001, 65_536, 100_000, 4_000_000] : [0, 4000, 4001, 4_000_000])(
    "comes whole from a worker that ends without reading its %d bytes of input, or while they come",
    async (bytes) => {
      for (const script of ["head -c 3000000 /dev/zero | tr '\\0' x", "exec head -c 300000 /dev/zero", "exec true"]) {
        const { exit, stdout } = await ranToItsEnd(engine, { command: ["sh", "-c", script] }, "y".repeat(bytes));
        expect(exit).toMatchObject({ kind: "exited", code: 0 });
        expect(stdout.length).toBe(Number(/head -c (\d+)/.exec(script)?.[1] ?? 0));
      }
    },
  );

  it.each([0, 1, 4000, 4001, 1_000_000])("comes after %d bytes of input, and their end, were read", async (bytes) => {
    const { exit, stdout } = await ranToItsEnd(
      engine,
      { command: ["sh", "-c", "wc -c; cat; echo over"] },
      "y".repeat(bytes),
    );
    expect([exit.kind, stdout]).toEqual(["exited", `${bytes}\nover\n`]);
  });

  it("that cannot be told whole is told as lost, and never as a success", async () => {
    const { plan, pins } = await engine.plan({ command: ["sh", "-c", "echo one; sleep 0.4; echo two"] });
    const sockets: { destroy(): void }[] = [];
    const { docker } = engine;
    // The connection breaks under the attached streams while the Engine lives on.
    const breaking = Object.create(docker) as typeof docker;
    breaking.getContainer = (id) => watched(docker.getContainer(id), sockets);
    breaking.createContainer = (async (options: Parameters<typeof docker.createContainer>[0]) =>
      watched(await docker.createContainer(options), sockets)) as typeof docker.createContainer;
    const { maker, liveDir, startedDir, namesDir } = engine;
    const driver = dockerDriver({
      docker: breaking,
      maker,
      liveDir,
      startedDir,
      namesDir,
      seccomp: { corral: '{"defaultAction":"SCMP_ACT_ALLOW"}' },
    });
    const start = {
      plan,
      pins,
      signal: new AbortController().signal,
      onOutput: () => {
        for (const socket of sockets) socket.destroy();
      },
    };
    await using cell = cellOf(await driver.start(start));
    cell.release(Buffer.alloc(0));
    expect(await cell.exit).toMatchObject({ kind: "lost" });
  });

  it("starts where the files for names were cleaned up since the last one", async () => {
    for (const _ of ["made", "made again"]) {
      const { plan, pins } = await engine.plan({ command: ["cat", "/etc/hosts"] });
      await using held = pins;
      let printed = "";
      const onOutput = (_stream: string, chunk: Buffer): void => {
        printed += chunk;
      };
      const start = { plan, pins: held, signal: new AbortController().signal, onOutput };
      await using cell = cellOf(await engine.driver.start(start));
      cell.release(Buffer.alloc(0));
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
      expect(printed).toContain("localhost");
      await rm(engine.namesDir, { recursive: true, force: true });
    }
  });
});

type Container = ReturnType<Engine["docker"]["getContainer"]>;

function watched(container: Container, sockets: { destroy(): void }[]): Container {
  const attach = container.attach.bind(container);
  container.attach = (async (options: object) => {
    const socket = await attach(options);
    sockets.push(socket as unknown as { destroy(): void });
    return socket;
  }) as typeof container.attach;
  return container;
}

describe("an Engine that is gone", () => {
  it("is told as such, whatever was asked of it", async () => {
    const { docker, maker, liveDir, startedDir, namesDir } = engine;
    const Client = docker.constructor as new (options: object) => typeof docker;
    const gone = new Client({ socketPath: join(engine.dir, "no-engine") });
    const driver = dockerDriver({ docker: gone, maker, liveDir, startedDir, namesDir, seccomp: { corral: "{}" } });
    const { plan, pins } = await engine.plan({ command: ["true"] });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
    const asked = [driver.capabilities(), driver.imageFacts("x"), driver.list(), driver.reap(), driver.start(start)];
    for (const outcome of await Promise.allSettled(asked)) {
      expect(outcome).toMatchObject({ status: "rejected", reason: expect.any(EngineTrouble) });
    }
  });

  it("does not hide why a start failed where the removal fails as well", async () => {
    const { docker, maker, liveDir, startedDir, namesDir } = engine;
    const failing = Object.create(docker) as typeof docker;
    failing.createContainer = () => Promise.reject(new Error("the first failure"));
    failing.getContainer = () =>
      ({ remove: () => Promise.reject(new Error("the second failure")) }) as unknown as Container;
    const driver = dockerDriver({ docker: failing, maker, liveDir, startedDir, namesDir, seccomp: { corral: "{}" } });
    const { plan, pins } = await engine.plan({ command: ["true"] });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
    await expect(driver.start(start)).rejects.toThrow(/the first failure.*the second failure/);
    expect(await engine.traces(plan.run)).toEqual([]);
  });
});

describe("a start that ends half way", () => {
  it("leaves no container where it is aborted while the Engine makes one", async () => {
    const { docker, maker, liveDir, startedDir, namesDir } = engine;
    const controller = new AbortController();
    const reason = new Error("changed my mind");
    const aborting = Object.create(docker) as typeof docker;
    aborting.createContainer = ((options: Parameters<typeof docker.createContainer>[0]) => {
      setTimeout(() => controller.abort(reason), 1);
      return docker.createContainer(options);
    }) as typeof docker.createContainer;
    const driver = dockerDriver({ docker: aborting, maker, liveDir, startedDir, namesDir, seccomp: { corral: "{}" } });
    const { plan, pins } = await engine.plan({ command: ["true"] });
    await expect(driver.start({ plan, pins, signal: controller.signal, onOutput: () => {} })).rejects.toBe(reason);
    expect(await engine.traces(plan.run)).toEqual([]);
  });

  it("leaves no volume where the Engine made them and could not make the container after all", async () => {
    const { docker, maker, liveDir, startedDir, namesDir } = engine;
    const failing = Object.create(docker) as typeof docker;
    failing.createContainer = (async (options: Parameters<typeof docker.createContainer>[0]) => {
      // The answer is lost, and somebody else removes the container and leaves its volumes.
      await (await docker.createContainer(options)).remove({ force: true });
      expect(await engine.traces(options.Labels?.["dev.corral.run"] ?? "")).toHaveLength(2);
      throw new Error("nobody answers");
    }) as typeof docker.createContainer;
    const driver = dockerDriver({ docker: failing, maker, liveDir, startedDir, namesDir, seccomp: { corral: "{}" } });
    const hosts = [await engine.folder("one"), await engine.folder("two")];
    const mounts = hosts.map((host, index) => mount(`/m${index}`, "ro", { host }));
    const { plan, pins } = await engine.plan({ command: ["true"], mounts });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
    await expect(driver.start(start)).rejects.toThrow("nobody answers");
    expect(await engine.traces(plan.run)).toEqual([]);
  });
});

describe("a sound Engine", () => {
  it("lacks nothing that a plan may ask for, and says what it is", async () => {
    const { version, missing, facts } = await engine.driver.capabilities();
    expect(missing).toEqual([]);
    expect(version).toMatch(/^\d+\./);
    expect(facts).toMatchObject({
      cgroups: expect.stringMatching(/^v[12]$/),
      runtimes: expect.stringContaining("runc"),
    });
  });

  it("has no image of a name that nobody gave", async () => {
    expect(await engine.driver.imageFacts("corral/none-of-that-name")).toBeNull();
    const facts = await engine.driver.imageFacts("corral/base");
    expect(facts).toMatchObject({ name: "corral/base", id: expect.stringMatching(/^sha256:/), volumes: [] });
  });
});

describe("what a worker finds in its cell", () => {
  it("has the planned environment, whatever its variables are called, and nothing of the host's", async () => {
    process.env.CORRAL_TEST_CANARY = "of-the-host";
    const env = {
      line: "kept",
      dir: "kept",
      file: "kept",
      go: "kept",
      gate: "kept",
      paths: "kept",
      multi: "a\nb",
    };
    const { stdout, plan } = await ranToItsEnd(engine, { command: ["env", "-0"], env });
    delete process.env.CORRAL_TEST_CANARY;
    const found = Object.fromEntries(
      stdout
        .split("\0")
        .filter((entry) => entry !== "")
        .map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)]),
    );
    expect(found).toEqual({ ...plan.env, HOSTNAME: "corral" });
    expect(found).toMatchObject(env);
  });

  it("hands over arguments as they are, and mount points of any name", async () => {
    const host = await engine.folder("odd");
    // Where the gate took the first for a pattern, it would find the second.
    const path = "/it's * a [x] $(id) é";
    const matched = "/it's * a x $(id) é";
    const { exit, stdout } = await ranToItsEnd(engine, {
      command: ["printf", "%s\\n", "* $(id) `id`", "", "two\nlines", path],
      mounts: [path, matched].map((at) => mount(at, "rw", { host, approval: pre_approved })),
    });
    expect(exit).toMatchObject({ code: 0 });
    expect(stdout).toBe(`* $(id) \`id\`\n\ntwo\nlines\n${path}\n`);
  });

  it("has a network namespace of its own with a loopback in it, a name for that, and no name server", async () => {
    const { exit, stdout } = await ranToItsEnd(engine, {
      image: "corral/python",
      command: ["python3", "-c", LOOPBACK],
    });
    expect(exit).toMatchObject({ code: 0 });
    const [namespace, ...told] = stdout.trim().split("\n");
    expect(namespace).toMatch(/^net:\[\d+\]$/);
    expect(namespace).not.toBe(await readlink("/proc/self/ns/net"));
    expect(told).toEqual(["lo", "said over localhost", "nameserver 127.0.0.1", "no way out", "no way to change it"]);
  });

  it("may only write where it was granted, and its files belong to the folder's owner", async () => {
    const [shown, given] = [await engine.folder("shown"), await engine.folder("given")];
    const script =
      "touch /given/made && id -u; for f in /shown/x /x /etc/x /attachments/x /.corral/x; do touch $f 2>/dev/null && echo $f; done; true";
    const { stdout, exit } = await ranToItsEnd(engine, {
      command: ["sh", "-c", script],
      mounts: [mount("/shown", "ro", { host: shown }), mount("/given", "rw", { host: given, approval: pre_approved })],
    });
    expect(exit).toMatchObject({ code: 0 });
    expect(stdout).toBe("65532\n");
    expect(await readdir(given)).toEqual(["made"]);
  });

  it("does not see what another file system has mounted below a granted folder, nor swaps of its path", async () => {
    const host = await engine.folder("swapped");
    await writeFile(join(host, "right"), "");
    const { plan, pins } = await engine.plan({ command: ["ls", "/data"], mounts: [mount("/data", "ro", { host })] });
    const output: string[] = [];
    await rename(host, `${host}-moved`);
    await symlink("/etc", host);
    const onOutput = (_: string, chunk: Buffer): number => output.push(String(chunk));
    const start = await engine.driver.start({ plan, pins, signal: new AbortController().signal, onOutput });
    await using cell = cellOf(start);
    cell.release(Buffer.alloc(0));
    await cell.exit;
    expect(output.join("")).toBe("right\n");
  });

  it.each(["folder", "attachment"] as const)(
    "is refused where its %s was swapped or went away after the check",
    async (kind) => {
      const host = await engine.folder(`gone-${kind}`);
      const file = join(host, "in.txt");
      await writeFile(file, "");
      const asked =
        kind === "folder"
          ? { mounts: [mount("/data", "ro", { host })] }
          : { attachments: [{ name: "in.txt", host: file }] };
      const path = kind === "folder" ? "/data" : "/attachments/in.txt";
      const { plan, pins } = await engine.plan({ command: ["true"], ...asked });
      await rm(host, { recursive: true });
      const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
      expect(await engine.driver.start(start)).toMatchObject({ violations: [{ code: "MOUNT_SOURCE_REFUSED", path }] });
      if (kind === "attachment") {
        await mkdir(host);
        await link("/etc/hostname", file).catch(() => writeFile(file, "another"));
        expect(await engine.driver.start(start)).toMatchObject({
          violations: [{ code: "MOUNT_SOURCE_REFUSED", path }],
        });
      }
      expect(await engine.traces(plan.run)).toEqual([]);
    },
  );
});

describe("what the Engine cannot enforce", () => {
  const refused = async (hardening: object, limits: object) => {
    const { untrusted } = engine;
    const policy = {
      ...untrusted,
      hardening: { ...untrusted.hardening, ...hardening },
      defaultLimits: { ...untrusted.defaultLimits, ...limits },
    };
    const { plan, pins } = await engine.plan({ command: ["true"], policy });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
    const started = await engine.driver.start(start);
    if (started.ok) await started.cell[Symbol.asyncDispose]();
    expect(await engine.traces(plan.run)).toEqual([]);
    return started.ok ? [] : started.violations;
  };

  it.each([
    ["a runtime that it does not have", { runtime: "no-such-runtime" }, {}, /runtime/i],
    ["less memory than it can give", {}, { memoryBytes: 1_000_000 }, /memory/i],
    ["less of a processor than it can give", {}, { cpus: 0.001 }, /cpu/i],
  ])("refuses the run and names it: %s", async (_, hardening, limits, named) => {
    expect(await refused(hardening, limits)).toEqual([
      { code: "ENFORCEMENT_MISSING", missing: [expect.stringMatching(named)] },
    ]);
  });

  it("is not a bound that the machine is too small to reach", async () => {
    expect(await refused({}, { cpus: 64 })).toEqual([]);
  });
});

describe("the seccomp profile of a cell under `untrusted`", () => {
  const script = `
import ctypes, errno, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def opened(family, kind):
    try:
        socket.socket(family, kind).close(); return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
  "filter": status["Seccomp"].strip(), "nnp": status["NoNewPrivs"].strip(),
  "unshare user namespace": call(272, 0x10000000),
  "ptrace traceme": call(101, 0, 0, 0, 0),
  "mount": call(165, b"none", b"/tmp", b"tmpfs", 0, 0),
  "keyctl": call(250, 0, -3, 0),
  "bpf": call(321, 0, 0, 0),
  "io_uring_setup": call(425, 1, 0),
  "userfaultfd": call(323, 1),
  "process_vm_readv": call(310, os.getpid(), 0, 0, 0, 0, 0),
  "AF_ALG": opened(38, socket.SOCK_SEQPACKET),
  "AF_VSOCK": opened(40, socket.SOCK_STREAM),
  "AF_UNIX": opened(socket.AF_UNIX, socket.SOCK_STREAM),
}))`;

  it("refuses what leads out of a cell, each call that the kernel itself would let an ordinary user make", async () => {
    const { exit, stdout, stderr } = await ranToItsEnd(engine, {
      image: "corral/python",
      command: ["python3", "-c", script],
    });
    expect([exit, stderr]).toMatchObject([{ code: 0 }, ""]);
    expect(JSON.parse(stdout)).toEqual({
      filter: "2",
      nnp: "1",
      "unshare user namespace": "EPERM",
      "ptrace traceme": "EPERM",
      mount: "EPERM",
      keyctl: "EPERM",
      bpf: "EPERM",
      io_uring_setup: "ENOSYS",
      userfaultfd: "EPERM",
      process_vm_readv: "EPERM",
      AF_ALG: "EPERM",
      AF_VSOCK: "EPERM",
      AF_UNIX: "done",
    });
  });

  it("is Corral's own and not only the Engine's, under which some of that would be done", async () => {
    const hardening = { ...engine.untrusted.hardening, seccomp: "engine" as const, fileWatches: true };
    const policy = { ...engine.untrusted, hardening };
    const { stdout } = await ranToItsEnd(engine, {
      image: "corral/python",
      command: ["python3", "-c", script],
      policy,
    });
    expect(JSON.parse(stdout)).toMatchObject({ "ptrace traceme": "done", filter: "2" });
  });
});

describe("usage", () => {
  const usageOf = (exit: CellExit) => (exit.kind === "exited" ? exit.usage : null);

  it("of a worker that ran for a moment was measured, without a question to the Engine", async () => {
    // Some 50 MB, and 200 ms of a processor.
    const script = "import time; held = b'x' * 50_000_000\nwhile time.process_time() < 0.2: pass\ntime.sleep(0.3)";
    const { exit } = await ranToItsEnd(engine, { image: "corral/python", command: ["python3", "-c", script] });
    const usage = usageOf(exit);
    expect(usage?.memoryBytesPeak).toBeGreaterThan(50_000_000);
    // The kernel adds up some ticks later than the process sees them.
    expect(usage?.cpuMs).toBeGreaterThanOrEqual(150);
    expect(usage?.cpuMs).toBeLessThan(1000);
  });

  it("of a worker that ended at once is not made up", async () => {
    const { exit } = await ranToItsEnd(engine, { command: ["true"] });
    const { cpuMs, memoryBytesPeak } = usageOf(exit) ?? {};
    expect([cpuMs, memoryBytesPeak]).not.toContain(0);
    expect([cpuMs, memoryBytesPeak]).not.toContain(undefined);
  });
});
