import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { openProject, python, sh } from "../run/project-fixture.ts";

/** A server on every address of this host, and one on an abstract Unix socket; nobody should come. */
let tcp: Server;
let abstract: Server;
let port: number;
let visitors: string[];
const NAME = `corral-test-${process.pid}`;

beforeEach(async () => {
  visitors = [];
  tcp = createServer((socket) => {
    visitors.push("tcp");
    socket.on("error", () => {}).destroy();
  }).listen(0, "0.0.0.0");
  abstract = createServer(() => visitors.push("unix")).listen(`\0${NAME}`);
  await Promise.all([once(tcp, "listening"), once(abstract, "listening")]);
  port = (tcp.address() as { port: number }).port;
});

afterEach(() => {
  tcp.close();
  abstract.close();
});

const PROBE = `
import errno, json, os, socket, sys
asked = json.load(sys.stdin)
def outcome(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        try: s.connect(address); return "connected"
        except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
def resolve(name):
    try: return str(socket.getaddrinfo(name, 80))
    except OSError as e: return "unknown"
print(json.dumps({
    "tcp": [outcome(socket.AF_INET, socket.SOCK_STREAM, (a, asked["port"])) for a in asked["addresses"]],
    "udp": outcome(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
    "abstract": outcome(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + asked["name"]),
    "engine": [outcome(socket.AF_UNIX, socket.SOCK_STREAM, p) for p in asked["sockets"]],
    "names": [resolve(n) for n in ["debian.org", "host.docker.internal", os.uname().nodename + ".local"]],
    "routes": open("/proc/net/route").read().strip().split("\\n")[1:],
    "resolver": open("/etc/resolv.conf").read(),
}))`;

describe("a cell without network", () => {
  it("reaches neither this host nor any other, by no way", async () => {
    const addresses = Object.values(networkInterfaces()).flatMap((each) =>
      (each ?? []).filter(({ family }) => family === "IPv4"),
    );
    await using project = await openProject({
      workers: { probe: { image: "corral/python", command: python(PROBE), output: "json" } },
    });
    const { socketPath } = await connect(process.env);
    const input = {
      port,
      name: NAME,
      addresses: addresses.map(({ address }) => address),
      sockets: ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", socketPath],
    };
    const result = await project.run("probe", { input });
    expect(result, result.stderr).toMatchObject({ status: "succeeded" });
    const told = result.output as Record<string, string[]> & { abstract: string };
    // The loopback of the cell is its own: nobody listens there. Everything else cannot be reached at all.
    const unreachable = ["ENETUNREACH", "EHOSTUNREACH"];
    expect(told.tcp?.filter((outcome) => outcome !== "ECONNREFUSED" && !unreachable.includes(outcome))).toEqual([]);
    expect(told.tcp?.some((outcome) => unreachable.includes(outcome))).toBe(true);
    expect(unreachable).toContain(told.udp);
    expect(told).toMatchObject({ abstract: "ECONNREFUSED", routes: [] });
    expect(new Set(told.engine)).toEqual(new Set(["ENOENT"]));
    expect(new Set(told.names)).toEqual(new Set(["unknown"]));
    expect(visitors).toEqual([]);
  });

  it("sees one Unix socket in its files, its own, and reaches no other run's by its path on the host", async () => {
    // Each file is looked at: a directory's entry says of a mount point only what was there before.
    const find = `find / -path /proc -prune -o -path /sys -prune -o -print 2>/dev/null | while read -r file; do [ -S "$file" ] && echo "$file"; done`;
    const finder = { command: sh(find), sandbox: { inherit: true } };
    const knocker = {
      command: sh(
        `path=$(jq -r .path); curl -s --unix-socket "$path" http://corral/v1/sandbox; echo $?; [ -e "$(dirname "$path")" ] || echo absent; curl -s --unix-socket "$CORRAL_SOCKET" http://corral/v1/sandbox | jq -r .worker`,
      ),
    };
    await using project = await openProject({
      workers: { finder, knocker, other: { command: sh("echo up; exec sleep 60") } },
      zones: { docs: "ro" },
    });
    const cancel = new AbortController();
    const running = project.run("other", { signal: cancel.signal });
    await project.printed("other", "up");
    expect(await project.run("finder")).toMatchObject({ stdout: "/.corral/socket\n" });
    const path = project.planOf("other").mounts.find((mount) => mount.path === "/.corral/socket")?.host;
    const { stdout } = await project.run("knocker", { input: { path } });
    expect(stdout).toMatch(/^7\nabsent\nknocker\n$/);
    cancel.abort();
    await running;
  });
});
