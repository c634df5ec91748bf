import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Mirrors } from "../../../src/blobs/mirrors.ts";
import { sendMounts } from "../../../src/blobs/send-mounts.ts";
import { CELL_USER } from "../../../src/changes/view/lending.ts";
import { agreedFacts } from "../../../src/fleet/cache/agreement.ts";
import type { FleetSpec } from "../../../src/fleet/model/item.ts";
import type { Agreement, ClaimedWork, Offer } from "../../../src/fleet/model/work.ts";
import { fleetPermission } from "../../../src/fleet/running/fleet-parts.ts";
import { hostFleets } from "../../../src/fleet/work/host-fleet.ts";
import type { HostedFleet, HostFleet } from "../../../src/fleet/work/hosted-fleets.ts";
import { newRunId } from "../../../src/run/model/job.ts";
import { lockOwner } from "../../../src/state/owner.ts";
import { type MachinePair, machinePair, NEVER } from "../../blobs/machine-pair.ts";
import { SPEC } from "../../fleet/fleet-fixture.ts";
import { openProject, type ProjectFixture, python, writable } from "../../run/project-fixture.ts";
import { RUNNER } from "../scrubbed-looks.ts";

const LINK = "MOUNT_SOURCE_REFUSED";
const CANARY = "CANARY: no cell may show this";

/** What a cell has: its directories, network, environment, user and limits. */
const LOOK = `
import json, os
def read(path):
    try: return open(path).read().strip()
    except OSError as error: return error.strerror
def names(path):
    try: return sorted(os.listdir(path))
    except OSError as error: return error.strerror
print(json.dumps({
    'mounts': sorted([one.split()[4] for one in open('/proc/self/mountinfo') if ' - proc ' not in one]),
    'options': sorted([one.split()[4:6] for one in open('/proc/self/mountinfo') if one.split()[4] in ('/data', '/out')]),
    'files': [names('/data'), names('/out'), names('/out/leak'), names('/data/leak'), names('/attachments')],
    'network': names('/sys/class/net'),
    'environment': sorted(os.environ),
    'user': [os.getuid(), os.getgid(), os.getgroups()],
    'status': [line for line in open('/proc/self/status') if line.startswith(('Cap', 'Seccomp:', 'NoNewPrivs'))],
    'limits': [read('/sys/fs/cgroup/' + name) for name in ('memory.max', 'pids.max', 'cpu.max')],
}))`;

type Honest = Offer & { readonly spec: FleetSpec; readonly agreement: Agreement };

let project: ProjectFixture;
let pair: MachinePair;
let host: HostFleet;
let canary: string;

beforeEach(async () => {
  pair = machinePair();
  canary = join(pair.path, "canary");
  fs.mkdirSync(canary, { mode: 0o777 });
  fs.chmodSync(canary, 0o777);
  fs.writeFileSync(join(canary, "secret"), CANARY);
  project = await openProject({
    policy: "batch",
    workers: {
      w: {
        ...{ image: "corral/python", command: python(RUNNER), limits: { timeout: "20s", memory: "128m", pids: 48 } },
        sandbox: { zones: [{ name: "data" }, { ...writable("out"), stage: true }] },
      },
      other: { command: ["true"] },
    },
    zones: { data: "ro", out: "rw", closed: "rw" },
    files: { "data/word": "hello\n", "closed/secret": CANARY },
  });
  // The coordinator sends links that lead to files of the machine's host.
  for (const zone of ["data", "out"]) fs.symlinkSync(canary, join(project.dir, zone, "leak"));
  const { store: blobs, mirrorsDir } = pair;
  const mirrors = new Mirrors({ dir: mirrorsDir, owner: lockOwner(), user: CELL_USER });
  host = hostFleets({
    ...{ run: project.corral.environment, version: "0", blobs, mirrorsFor: () => mirrors, mirrorsDir, slots: 1 },
    questions: { of: () => ({ [Symbol.dispose]() {} }) },
  });
});

afterEach(async () => {
  expect(fs.readdirSync(canary)).toEqual(["secret"]);
  expect(fs.readFileSync(join(canary, "secret"), "utf8")).toBe(CANARY);
  await project[Symbol.asyncDispose]();
  await pair[Symbol.asyncDispose]();
});

async function honestOffer(): Promise<Honest> {
  const run = project.corral.environment;
  const spec = { ...SPEC, worker: "w", policy: null, reuse: "fresh" as const };
  const permission = await fleetPermission(spec, run);
  if (!permission.ok) throw new Error(JSON.stringify(permission));
  const { facts } = await agreedFacts(permission, run, { version: "0", signal: NEVER });
  const sent = await sendMounts(permission.sandbox.mounts, { store: pair.store, signal: NEVER });
  const trees = Object.fromEntries(sent.map(({ path, digest }) => [path, digest]));
  const named = { needs: [], priority: 0, weight: 1, fleet: "f", project: "0", hasMore: true };
  return { ...named, spec, agreement: { ...facts, trees } };
}

async function hosted(offer: Offer): Promise<HostedFleet> {
  const hosting = await host(offer, NEVER);
  if (!hosting.ok) throw new Error(hosting.why);
  return hosting.fleet;
}

async function attempted(fleet: HostedFleet, more: object, code = LOOK) {
  const request = { index: 0, key: "k", place: "", input: code, attachments: [], ...more };
  const item = { fleet: "f", request, attempt: 1, earlier: 0, run: newRunId(), cell: null } as unknown as ClaimedWork;
  const brought = await fleet.attempt(item, { signal: NEVER, turn: async () => {} });
  if (brought.outcome !== "delivery") throw new Error(brought.why);
  return brought.delivery;
}

async function seen(fleet: HostedFleet, more: object): Promise<unknown> {
  const { result, streams } = await attempted(fleet, more);
  expect(result, JSON.stringify([result, streams?.stderr])).toMatchObject({ status: "succeeded" });
  return JSON.parse(streams?.stdout ?? "");
}

/** What a worker, a sandbox or a job has, and no request of an item. */
const MORE = (): object => ({
  ...{ image: "corral/node", command: ["cat", "/etc/shadow"], worker: "other", policy: "default", run: "0".repeat(12) },
  ...{ mounts: [{ path: "/canary", host: canary, mode: "rw" }], zones: [{ name: "closed" }], inherit: true },
  ...{ network: ["example.com"], secrets: ["TOKEN"], environment: { TOKEN: "x" }, env: { TOKEN: "x" }, user: 0 },
  ...{ limits: { memoryBytes: 1e12, pids: 1e6, timeoutMs: 1e9 }, root_user: true, callerSandbox: { mounts: [] } },
  narrow: { allowRead: ["/"], allowWrite: ["/"] },
});

describe.skipIf(process.getuid?.() !== 0)("an item that asks a machine for more than its own declarations give", () => {
  it("has a cell with nothing more, whatever else its request and its offer say", async () => {
    const offer = await honestOffer();
    const { spec, agreement } = offer;
    const trees = {
      ...agreement.trees,
      "/canary": agreement.trees["/data"] ?? "",
      "/closed": agreement.trees["/data"] ?? "",
    };
    const forged = {
      ...offer,
      ...MORE(),
      spec: { ...spec, ...MORE(), worker: "w", policy: null },
      agreement: { ...agreement, trees },
    };
    await using honest = await hosted(offer);
    await using fleet = await hosted({ ...forged, fleet: "g" } as Offer);
    const was = await seen(honest, {});
    expect(was).toMatchObject({
      files: [["leak", "word"], ["leak"], "No such file or directory", "No such file or directory", expect.anything()],
    });
    expect(await seen(fleet, {})).toEqual(was);
    expect(await seen(fleet, MORE())).toEqual(was);
    expect(
      await seen(fleet, JSON.parse('{"__proto__": {"allowWrite": ["/"]}, "constructor": {"prototype": {}}}')),
    ).toEqual(was);
  });

  it.each<[string, (at: string) => object, code?: string]>([
    ["a path of its host", (at) => ({ allowRead: [at] })],
    ["a directory that is read-only", () => ({ allowWrite: ["/data"] }), "WRITE_NOT_AVAILABLE"],
    ["a mount of the project that its worker lacks", () => ({ allowRead: ["/closed"] })],
    ["the same to write", () => ({ allowWrite: ["/closed/x"] })],
    ["a path that leaves its mount", () => ({ allowRead: ["/data/../../canary"] })],
    ["the same to write", () => ({ allowWrite: ["/out/../../canary"] }), "REFUSED"],
    ["files of the system", () => ({ allowRead: ["/etc/shadow"] })],
    ["Corral's own mount", () => ({ allowWrite: ["/.corral"] })],
    ["what a link leads to", () => ({ allowRead: ["/data/leak"] }), LINK],
    ["a file that a link leads to", () => ({ allowRead: ["/data/leak/secret"] }), LINK],
    ["what a link leads to, to write", () => ({ allowWrite: ["/out/leak"] }), LINK],
    ["a new directory below a link", () => ({ allowWrite: ["/out/leak/made/"] }), LINK],
  ])("is refused before a cell starts if it names %s", async (_, more, code = "PATH_NOT_AVAILABLE") => {
    await using fleet = await hosted(await honestOffer());
    const { result } = await attempted(fleet, more(canary));
    expect(result).toMatchObject({ status: "refused", error: { code } });
    expect(project.events.filter(({ type }) => type === "started")).toEqual([]);
  });

  it("gets, for the root of all, what its worker has anyway", async () => {
    await using fleet = await hosted(await honestOffer());
    const was = await seen(fleet, {});
    expect(await seen(fleet, { allowRead: ["/"], allowWrite: ["/"] })).toEqual(was);
  });
});

describe("an offer of a fleet", () => {
  const declared = (offer: Honest, more: object): object => ({
    agreement: { ...offer.agreement, declarations: { ...offer.agreement.declarations, ...more } },
  });
  it.each<[string, (offer: Honest) => object, RegExp]>([
    ["another worker under the same agreement", ({ spec }) => ({ spec: { ...spec, worker: "other" } }), /worker w/],
    ["a worker that is a path", ({ spec }) => ({ spec: { ...spec, worker: "../w" } }), /another version/],
    ["a worker that is not declared", ({ spec }) => ({ spec: { ...spec, worker: "none" } }), /no worker none/],
    ["another policy", ({ spec }) => ({ spec: { ...spec, policy: "default" } }), /policy batch/],
    ["a policy that is a path", ({ spec }) => ({ spec: { ...spec, policy: "../p" } }), /another version/],
    ["more time than the worker has", ({ spec }) => ({ spec: { ...spec, timeoutMs: 1e9 } }), /longer than the limit/],
    ["a mount more", (offer) => declared(offer, { "mount /etc": "0".repeat(64) }), /mount \/etc is missing here/],
    ["another mount", (offer) => declared(offer, { "mount /data": "0".repeat(64) }), /mount \/data differs/],
    ["other limits, network or secrets", (offer) => declared(offer, { sandbox: "0".repeat(64) }), /sandbox differs/],
    ["another command", (offer) => declared(offer, { "worker w: command": "0".repeat(64) }), /differs in command/],
    [
      "another image",
      ({ agreement }) => ({ agreement: { ...agreement, images: { "corral/python": `sha256:${"0".repeat(64)}` } } }),
      /the image corral\/python is another one here/,
    ],
    [
      "no content for a mount",
      ({ agreement }) => ({ agreement: { ...agreement, trees: { "/data": "../../etc" } } }),
      /does not offer \/data/,
    ],
    ["an agreement that is none", () => ({ agreement: { declarations: null } }), /another version/],
    ["an agreement that cannot be read", () => ({ agreement: undefined }), /another version/],
  ])("is refused before anything runs if it says %s", async (_, more, why) => {
    const offer = await honestOffer();
    await expect(hosted({ ...offer, ...more(offer) } as Offer)).rejects.toThrow(why);
    expect(await project.corral.environment.driver.list()).toEqual([]);
  });
});
