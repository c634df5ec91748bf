import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { putBytes } from "../../../src/blobs/blob.ts";
import { Mirrors } from "../../../src/blobs/mirrors.ts";
import { sendMounts } from "../../../src/blobs/send-mounts.ts";
import { CELL_USER } from "../../../src/changes/view/lending.ts";
import type { WorkerDefinition } from "../../../src/declarations/worker/worker.ts";
import { agreedFacts } from "../../../src/fleet/cache/agreement.ts";
import type { ItemRequest } from "../../../src/fleet/model/item.ts";
import type { ClaimedWork } from "../../../src/fleet/model/work.ts";
import { fleetPermission } from "../../../src/fleet/running/fleet-parts.ts";
import { hostFleets } from "../../../src/fleet/work/host-fleet.ts";
import type { HostedFleet, HostFleet } from "../../../src/fleet/work/hosted-fleets.ts";
import { newRunId } from "../../../src/run/model/job.ts";
import { lockOwner } from "../../../src/state/owner.ts";
import { type MachinePair, machinePair, NEVER } from "../../blobs/machine-pair.ts";
import { SPEC } from "../../fleet/fleet-fixture.ts";
import { openProject, type ProjectFixture, python, writable } from "../../run/project-fixture.ts";
import { RUNNER } from "../scrubbed-looks.ts";

/** What an item sees of its cell, but for what is its own. */
const LOOK = `
import json, os, stat
def names(path): return sorted(os.listdir(path))
def kind(path):
    s = os.lstat(path)
    return [stat.filemode(s.st_mode), s.st_uid, s.st_mtime < 1e9]
print(json.dumps({
    'processes': [pid for pid in names('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())],
    'files': {path: names(path) for path in ('/tmp', '/dev/shm', '/attachments', '/.corral/io', '/data')},
    'kinds': [kind(path) for path in ('/tmp', '/dev/shm', '/attachments', '/attachments/own', '/.corral/io/in', '/data', '/data/word')],
    'ipc': [len(open('/proc/sysvipc/' + kind).readlines()) for kind in ('shm', 'msg', 'sem')],
    'unix': [line.split()[-1] for line in open('/proc/net/unix').readlines()[1:] if '@' in line],
    'environment': sorted(os.environ),
}))`;
/** Leaves whatever it can. */
const PLANT = `
import os, signal, socket, time
for base in ('/tmp', '/dev/shm'): open(base + '/..planted', 'w').write(open('/attachments/own').read())
for path in ('/tmp', '/dev/shm', '/attachments', '/attachments/own', '/data', '/data/word'):
    for act in (lambda: os.utime(path, (0, 0)), lambda: os.chmod(path, 0o777), lambda: open(path + '/planted', 'w')):
        try: act()
        except OSError: pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for which in range(1, 32):
            if which not in (9, 19): signal.signal(which, signal.SIG_IGN)
        server = socket.socket(socket.AF_UNIX); server.bind(b'\\0planted'); server.listen()
        os.closerange(0, 3); time.sleep(300)
    os._exit(0)
time.sleep(0.1); print(open('/attachments/own').read())`;
/** Nothing in the cell can remove it. */
const PLANT_FOR_GOOD = "import ctypes; assert ctypes.CDLL(None).shmget(7, 4096, 0o1666) >= 0";
/** Which cell it is: when its first process began. */
const CELL = "print(open('/proc/1/stat').read().split()[21])";

const READER = { image: "corral/python", command: python(RUNNER), sandbox: { zones: [{ name: "data" }] } };
const WRITER = { ...READER, sandbox: { zones: [{ name: "data" }, { ...writable("out"), stage: true }] } };
const LIMITS = { limits: { timeout: "20s", memory: "128m", pids: 48 } };

let project: ProjectFixture;
let pair: MachinePair;
let host: HostFleet;

beforeEach(async () => {
  pair = machinePair();
  project = await openProject({
    policy: "batch",
    workers: { w: { ...READER, ...LIMITS }, writer: { ...WRITER, ...LIMITS } },
    zones: { data: "ro", out: "rw" },
    files: { "data/word": "hello\n" },
  });
  const run = project.corral.environment;
  const questions = { of: () => ({ [Symbol.dispose]() {} }) };
  const { store: blobs, mirrorsDir } = pair;
  // As `corral work` has them: the files belong to the user of the cell.
  const mirrors = new Mirrors({ dir: mirrorsDir, owner: lockOwner(), user: CELL_USER });
  host = hostFleets({ run, version: "0", blobs, mirrorsFor: () => mirrors, mirrorsDir, slots: 1, questions });
});

afterEach(async () => {
  await project[Symbol.asyncDispose]();
  await pair[Symbol.asyncDispose]();
});

/** Hosts a fleet, as a machine that is offered it. */
async function hosted(fleet: string, worker = "w", policy: string | null = null): Promise<HostedFleet> {
  const run = project.corral.environment;
  const spec = { ...SPEC, worker, policy, reuse: "scrubbed" as const };
  const permission = await fleetPermission({ ...spec, reuse: "fresh" }, run);
  if (!permission.ok) throw new Error(JSON.stringify(permission));
  const { facts } = await agreedFacts(permission, run, { version: "0", signal: NEVER });
  const sent = await sendMounts(permission.sandbox.mounts, { store: pair.store, signal: NEVER });
  const trees = Object.fromEntries(sent.map(({ path, digest }) => [path, digest]));
  const offer = { needs: [], priority: 0, weight: 1, fleet, project: "0", spec, hasMore: true };
  const hosting = await host({ ...offer, agreement: { ...facts, trees } }, NEVER);
  if (!hosting.ok) throw new Error(hosting.why);
  return hosting.fleet;
}

let index = 0;

/** One item that attaches its own file, which it prints or leaves. */
async function attempted(fleet: HostedFleet, code: string, signal = NEVER) {
  index += 1;
  const content = Buffer.from(`secret of item ${index}`);
  const digest = await putBytes(pair.store, content);
  const attachments = [{ path: "/elsewhere/own", name: "own", sent: { digest, bytes: content.length } }];
  const request: ItemRequest = { index, key: `k${index}`, place: "", input: code, attachments };
  const item: ClaimedWork = { fleet: "f", request, attempt: 1, earlier: 0, run: newRunId(), cell: null };
  return await fleet.attempt(item, { signal, turn: async () => {} });
}

async function printed(fleet: HostedFleet, code: string): Promise<string> {
  const brought = await attempted(fleet, code);
  if (brought.outcome !== "delivery") throw new Error(brought.why);
  const { result, streams } = brought.delivery;
  expect(result, JSON.stringify(result)).toMatchObject({ status: "succeeded" });
  return streams?.stdout ?? "";
}

const cells = async (): Promise<number> => (await project.corral.environment.driver.list()).length;

describe.skipIf(process.getuid?.() !== 0)("on a machine, a cell that serves many items", () => {
  it("has nothing for an item of what the one before left", async () => {
    await using fleet = await hosted("f");
    const first = JSON.parse(await printed(fleet, LOOK));
    expect(first).toMatchObject({ processes: [], files: { "/tmp": [], "/attachments": ["own"], "/data": ["word"] } });
    const cell = await printed(fleet, CELL);
    expect(await printed(fleet, PLANT)).toContain("secret of item");
    expect(JSON.parse(await printed(fleet, LOOK))).toEqual(first);
    const own = await printed(fleet, "print(open('/attachments/own').read(), open('/data/word').read())");
    expect(own).toBe(`secret of item ${index} hello\n\n`);
    expect(await printed(fleet, CELL)).toBe(cell);
    // One that cannot be cleaned is thrown away.
    await printed(fleet, PLANT_FOR_GOOD);
    expect(JSON.parse(await printed(fleet, LOOK))).toEqual(first);
    expect(await printed(fleet, CELL)).not.toBe(cell);
    expect(await cells()).toBe(1);
  });

  it("serves one fleet alone, and ends with it", async () => {
    const one = await hosted("one");
    await Promise.all([1, 2].map(() => printed(one, "import time; time.sleep(1)")));
    expect(await cells()).toBe(2);
    const other = await hosted("other");
    // Each fleet may keep fewer then.
    await vi.waitFor(async () => expect(await cells()).toBe(1), { timeout: 30_000 });
    const cell = await printed(one, CELL);
    expect(await printed(one, CELL)).toBe(cell);
    expect(await printed(other, CELL)).not.toBe(cell);
    expect(await cells()).toBe(2);
    await one[Symbol.asyncDispose]();
    expect(await cells()).toBe(1);
    await other[Symbol.asyncDispose]();
    expect(await cells()).toBe(0);
  });

  it("holds no mirror if the worker cannot be read when its fleet is hosted", async () => {
    const run = project.corral.environment;
    const { store: blobs, mirrorsDir } = pair;
    let [opened, held] = [0, 0];
    const mirrors = new Mirrors({ dir: mirrorsDir, owner: lockOwner(), user: CELL_USER });
    const counted: Pick<Mirrors, "open"> = {
      async open(...given) {
        const mirror = await mirrors.open(...given);
        opened += 1;
        held += 1;
        return {
          path: mirror.path,
          tree: mirror.tree,
          async [Symbol.asyncDispose]() {
            held -= 1;
            await mirror[Symbol.asyncDispose]();
          },
        };
      },
    };
    const workers = new (class extends Map<string, WorkerDefinition> {
      override get(name: string) {
        if (held > 0) throw new Error("it cannot be read");
        return super.get(name);
      }
    })(run.project.workers);
    host = hostFleets({
      ...{ version: "0", blobs, mirrorsDir, slots: 1, questions: { of: () => ({ [Symbol.dispose]() {} }) } },
      run: { ...run, project: { ...run.project, workers } },
      mirrorsFor: () => counted as Mirrors,
    });
    const fleet = await hosted("f").catch(() => null);
    await fleet?.[Symbol.asyncDispose]();
    expect([opened, held]).toEqual([1, 0]);
  });

  it("is removed with an item that is ended, and the next one has another", async () => {
    await using fleet = await hosted("f");
    const cell = await printed(fleet, CELL);
    const ends = new AbortController();
    const ended = attempted(fleet, "import time; time.sleep(60)", ends.signal);
    setTimeout(() => ends.abort(new Error("a test")), 500);
    expect(await ended).toMatchObject({ outcome: "given_up", isUnwell: false });
    expect(await cells()).toBe(0);
    expect(await printed(fleet, CELL)).not.toBe(cell);
  });

  it("serves no item that may write, and none under a policy that forbids it, whatever the offer says", async () => {
    for (const [worker, policy] of [
      ["writer", null],
      ["w", "default"],
    ] as const) {
      await using fleet = await hosted(worker, worker, policy);
      await printed(fleet, "open('/tmp/x', 'w').close()");
      expect([worker, await cells()]).toEqual([worker, 0]);
    }
    await using writer = await hosted("writer", "writer");
    const brought = await attempted(writer, "open('/out/made', 'w').write('made')");
    expect(brought).toMatchObject({
      outcome: "delivery",
      delivery: { changeset: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
  });
});
