import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../../src/isolation/engine/open.ts";
import { openCorral } from "../../../src/run/open/corral.ts";
import { startOrchestrator } from "../../run/orchestrator.ts";
import { shownCell } from "../../run/outside-cell.ts";
import { openProject, type ProjectFixture, python, sh, writeProject } from "../../run/project-fixture.ts";
import { isAgain } from "../../tiers/again.ts";
import { giveGate } from "../../tiers/give-gate.ts";
import { countingResolver } from "./counting-resolver.ts";
import { environmentWith, runWith } from "./in-cell.ts";
import { openSites, type Sites } from "./sites.ts";

/* What is around the places of a cell: other addresses, other protocols, other cells, and what the worker may change. */

const PROBE = `
import ctypes, errno, json, os, socket, struct, sys
asked = json.load(sys.stdin)
def name(e): return errno.errorcode.get(getattr(e, "errno", None), type(e).__name__)
def tcp(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        try: s.connect((host, port)); return "connected"
        except OSError as e: return name(e)
def udp(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        try: s.connect((host, port)); s.send(b"x"); s.recv(10); return "answered"
        except OSError as e: return name(e)
def opened(*kind):
    try: socket.socket(*kind).close(); return "opened"
    except OSError as e: return name(e)
def bound(host, port, *options):
    with socket.socket() as s:
        try:
            for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
            s.bind((host, port)); s.listen(); return "listens"
        except OSError as e: return name(e)
def written(path, mode="a"):
    try:
        with open(path, mode) as f: f.write("127.0.0.1 evil\\n")
        return "written"
    except OSError as e: return name(e)
def replaced(path):
    try: os.rename("/tmp/x", path); return "replaced"
    except OSError as e: return name(e)
def abstract(text):
    with socket.socket(socket.AF_UNIX) as s:
        try: s.connect("\\0" + text); return "connected"
        except OSError as e: return name(e)
def vsock():
    try:
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as s:
            s.settimeout(2); s.connect((2, 22)); return "connected"
    except OSError as e: return name(e)
libc = ctypes.CDLL(None, use_errno=True)
def unshared(flags):
    if os.fork() == 0: os._exit(0 if libc.unshare(flags) == 0 else 1)
    return "possible" if os.wait()[1] == 0 else "refused"
def route():
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
            # An address for lo: what a worker could listen at instead of a place.
            body = struct.pack("BBBBi", 2, 32, 0, 0, 1) + struct.pack("HHBBBB", 8, 2, 10, 9, 9, 9)
            s.send(struct.pack("IHHII", 16 + len(body), 20, 5 | 0x400, 1, 0) + body)
            return "added" if struct.unpack("i", s.recv(100)[16:20])[0] == 0 else "refused"
    except OSError as e: return name(e)
open("/tmp/x", "w").write("127.0.0.1 evil\\n")
place, port = asked["place"], asked["port"]
print(json.dumps({
    "the place": tcp(place, port),
    "other addresses": sorted({tcp(a, port) for a in asked["others"]}),
    "another port": tcp(place, port + 1),
    "the proxy": tcp("127.88.0.1", 3128),
    "loopback of IPv6": tcp("::1", port, socket.AF_INET6),
    "the host's loopback": [tcp("127.0.0.1", asked["host_port"]), tcp(asked["site"], port), tcp(asked["site"], asked["host_port"])],
    "an address of the internet": tcp("192.0.2.1", 443),
    "UDP to the place": udp(place, port),
    "QUIC to the place": udp(place, 443),
    "UDP to the internet": udp("192.0.2.1", 53),
    "UDP to a resolver of IPv6": udp("2001:4860:4860::8888", 53, socket.AF_INET6),
    "ICMP": opened(socket.AF_INET, socket.SOCK_RAW, 1),
    "frames": opened(17, socket.SOCK_RAW, 3),
    "vsock": vsock(),
    "bind": bound(place, port),
    "bind with REUSEADDR": bound(place, port, socket.SO_REUSEADDR),
    "bind with REUSEPORT": bound(place, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT),
    "bind to every address": bound("0.0.0.0", port, socket.SO_REUSEADDR, socket.SO_REUSEPORT),
    "hosts": [written("/etc/hosts"), written("/etc/hosts", "w"), replaced("/etc/hosts")],
    "resolv.conf": written("/etc/resolv.conf"),
    "nsswitch.conf": written("/etc/nsswitch.conf"),
    "an abstract socket": abstract(asked["abstract"]),
    "namespaces": [unshared(0x40000000), unshared(0x10000000), unshared(0x10000000 | 0x40000000)],
    "an address": route(),
}))`;

/** A second container is in the network of a container of the Engine, whatever `auto` takes: that is tried once. */
const BY_CONTAINER = { CORRAL_LISTEN_BY_CONTAINER: "1", CORRAL_DRIVER: "engine" };
const WAYS = [{ way: "as root", env: {} }, ...(isAgain() ? [] : [{ way: "by a second container", env: BY_CONTAINER }])];

let sites: Sites;
let host: Server;
let abstract: Server;
const ABSTRACT = `corral-egress-${process.pid}`;
const visitors: string[] = [];

beforeAll(async () => {
  sites = openSites();
  host = createServer((socket) => {
    visitors.push("host");
    socket.destroy();
  }).listen(0, "127.0.0.1");
  abstract = createServer((socket) => {
    visitors.push("abstract");
    socket.destroy();
  }).listen(`\0${ABSTRACT}`);
  await Promise.all([once(host, "listening"), once(abstract, "listening")]);
});

afterAll(async () => {
  host.close();
  abstract.close();
  await sites[Symbol.asyncDispose]();
});

describe.each(WAYS)("the network namespace of a cell with an allow list, made $way", ({ env }) => {
  const engineEnv = { ...process.env, ...env };
  let project: ProjectFixture;
  beforeAll(async () => {
    const probe = { image: "corral/python", command: python(PROBE), output: "json" };
    const waits = { command: sh("echo up; exec sleep 60") };
    project = await openProject({ workers: { probe, waits }, policy: "default" }, { engineEnv });
  });
  afterAll(() => project[Symbol.asyncDispose]());

  it("has its places and nothing else, and the worker cannot change that", async () => {
    const site = await sites.open("site", { ports: { 7000: { kind: "echo" } } });
    const resolver = countingResolver({ "site.test": [site.address] });
    const network = { allow: [{ to: "site.test:7000", addresses: [`${site.address}/32`] }] };
    const environment = environmentWith(project, { resolver });
    const others = ["127.88.1.2", "127.88.2.1", "127.88.0.2", "127.88.1.0", "127.0.0.1", "127.1.1.1", "0.0.0.0"];
    const result = await runWith(environment, "probe", network, {
      place: "127.88.1.1",
      port: 7000,
      site: site.address,
      others,
      host_port: (host.address() as { port: number }).port,
      abstract: ABSTRACT,
    });
    expect(result, result.stderr).toMatchObject({ status: "succeeded" });
    expect(result.output).toEqual({
      "the place": "connected",
      "other addresses": ["ECONNREFUSED"],
      "another port": "ECONNREFUSED",
      "the proxy": "ECONNREFUSED",
      "loopback of IPv6": expect.stringMatching(/ECONNREFUSED|EADDRNOTAVAIL/),
      "the host's loopback": ["ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED"],
      "an address of the internet": "ENETUNREACH",
      "UDP to the place": "ECONNREFUSED",
      "QUIC to the place": "ECONNREFUSED",
      "UDP to the internet": "ENETUNREACH",
      "UDP to a resolver of IPv6": expect.stringMatching(/ENETUNREACH|EADDRNOTAVAIL/),
      ICMP: "EPERM",
      frames: "EPERM",
      vsock: expect.stringMatching(/^(EAFNOSUPPORT|EPERM|EACCES|ENODEV|ENOSYS)$/),
      bind: "EADDRINUSE",
      "bind with REUSEADDR": "EADDRINUSE",
      "bind with REUSEPORT": "EADDRINUSE",
      "bind to every address": "EADDRINUSE",
      hosts: [expect.stringMatching(DENIED), expect.stringMatching(DENIED), expect.stringMatching(DENIED)],
      "resolv.conf": expect.stringMatching(DENIED),
      "nsswitch.conf": expect.stringMatching(DENIED),
      "an abstract socket": "ECONNREFUSED",
      namespaces: ["refused", "refused", "refused"],
      "an address": expect.stringMatching(/refused|EPERM|EACCES/),
    });
    expect(visitors).toEqual([]);
    expect(result.enforcement?.actual.network).toBe("loopback only, 1 host through Corral");
  });

  it("is not another cell's: its places lead nowhere there", async () => {
    const site = await sites.open("site", { ports: { 7000: { kind: "echo" } } });
    const resolver = countingResolver({ "site.test": [site.address] });
    const network = { allow: [{ to: "site.test:7000", addresses: [`${site.address}/32`] }] };
    const environment = environmentWith(project, { resolver });
    const end = new AbortController();
    const running = runWith(environment, "waits", network, undefined, end.signal);
    await project.printed("waits", "up");
    const input = {
      place: "127.88.1.1",
      port: 7000,
      site: site.address,
      others: ["127.88.1.1"],
      host_port: 1,
      abstract: ABSTRACT,
    };
    const result = await project.run("probe", { input });
    end.abort();
    await running;
    expect(result.output).toMatchObject({ "the place": "ECONNREFUSED", "the proxy": "ECONNREFUSED" });
    expect(result.network).toBeUndefined();
    expect(site.connections).toBe(0);
  });
});

describe("after kill -9 of the orchestrator", () => {
  it.each(WAYS)("nothing listens in its cells, also before they are removed: $way", async ({ env }) => {
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    const places = { projectDir: join(base, "p"), stateDir: join(base, "s") };
    const network = { allow: ["a.example:443", { to: "b.example:443", methods: ["GET"] }, "*.c.example:443"] };
    const waits = { command: sh("echo up; exec sleep 300"), sandbox: { network } };
    writeProject(places.projectDir, { workers: { waits }, sandbox: { network }, policy: "default" });
    await giveGate(places.stateDir);
    try {
      await using victim = startOrchestrator({ ...places, worker: "waits", runs: 1, env });
      await victim.said("began", 1);
      const run = victim.lines.find(({ began }) => began !== undefined)?.began;
      const pid = (await shownCell(places.stateDir, run ?? ""))?.pid() ?? 0;
      const heard = () => listeners(pid);
      expect(heard()).toEqual(["127.88.0.1:3128", "127.88.1.1:443", "127.88.1.2:443", "127.88.1.2:80"]);
      await victim.kill();
      expect(heard()).toEqual([]);
    } finally {
      // Opening reaps.
      const corral = await openCorral({ ...places, engineEnv: process.env });
      expect(corral.reaped.cells).toHaveLength(1);
      await corral[Symbol.asyncDispose]();
      await rm(base, { recursive: true, force: true });
    }
  });

  it.skipIf(isAgain())("the second container ends by itself, and is removed with the cell", async () => {
    const { docker } = await connect(process.env);
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    const places = { projectDir: join(base, "p"), stateDir: join(base, "s") };
    const network = { allow: ["a.example:443"] };
    const name = `midway-${process.pid}`;
    const midway = { command: sh("echo up; exec sleep 300"), sandbox: { network } };
    writeProject(places.projectDir, { workers: { [name]: midway }, sandbox: { network }, policy: "default" });
    await giveGate(places.stateDir);
    const containers = () => docker.listContainers({ all: true, filters: { label: [`dev.corral.worker=${name}`] } });
    const seconds = async () => (await containers()).filter(({ HostConfig }) => HostConfig.NetworkMode !== "none");
    try {
      await using victim = startOrchestrator({ ...places, worker: name, runs: 1, env: BY_CONTAINER });
      await expect.poll(seconds, { timeout: 30_000, interval: 5 }).toMatchObject([{ State: "running" }]);
      await victim.kill();
      await expect.poll(seconds, { timeout: 30_000 }).toMatchObject([{ State: "exited" }]);
    } finally {
      // Opening reaps.
      const corral = await openCorral({ ...places, engineEnv: process.env });
      expect(corral.reaped.cells).toHaveLength(2);
      expect(await containers()).toEqual([]);
      await corral[Symbol.asyncDispose]();
      await rm(base, { recursive: true, force: true });
    }
  });
});

/** What listens in the network namespace of a process. */
function listeners(pid: number): string[] {
  const rows = readFileSync(`/proc/${pid}/net/tcp`, "utf8").trim().split("\n").slice(1);
  const open = rows.map((row) => row.trim().split(/\s+/)).filter(([, , , state]) => state === "0A");
  return open.map(([, at = ""]) => addressOf(at)).sort();
}

/** `0101587F:01BB`: the address as the machine stores it, in hexadecimal. */
function addressOf(at: string): string {
  const [address = "", port = ""] = at.split(":");
  return `${Buffer.from(address, "hex").toReversed().join(".")}:${Number.parseInt(port, 16)}`;
}

const DENIED = /^(EROFS|EACCES|EPERM|EXDEV|EBUSY)$/;
