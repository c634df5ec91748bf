import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DirectoryBlobs } from "../../../src/blobs/directory-blobs.ts";
import { Agreed, collectChanges } from "../../../src/changes/collect.ts";
import { exportChangeset } from "../../../src/changes/wire/document.ts";
import type { ItemRequest, ItemResult } from "../../../src/fleet/model/item.ts";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import { settlingDelivered } from "../../../src/fleet/running/begun-effects.ts";
import { fleetPermission } from "../../../src/fleet/running/fleet-parts.ts";
import { FleetTaken, OwnedQueue } from "../../../src/fleet/running/owned-queue.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { OF, viewOf } from "../../blobs/machine-pair.ts";
import { sh } from "../../run/project-fixture.ts";
import { type FleetFixture, openFleetProject, requests, SPEC } from "../fleet-fixture.ts";

const RUN = OF.run;

/** An item that a machine has delivered: it adds a line to a file of the project. */
async function delivered(f: FleetFixture) {
  const blobsDir = join(f.project.stateDir, "blobs");
  mkdirSync(blobsDir, { mode: 0o700 });
  const blobs = new DirectoryBlobs(blobsDir);
  const out = join(f.project.dir, "out");
  const mount = { name: "out", path: "/out" as VirtualPath, host: out, mode: "rw" } as const;
  const view = await viewOf(mount, join(f.project.stateDir, "view"));
  appendFileSync(join(view.host, "a"), "once\n");
  const collected = await collectChanges([view], new Agreed(), 1024 ** 2, OF, undefined);
  if (collected === null) throw new Error("nothing was changed");
  const changeset = await exportChangeset(collected.changeset, blobs);
  await view.close();

  const permission = await fleetPermission(SPEC, f.project.corral.environment);
  if (!permission.ok) throw new Error(JSON.stringify(permission));
  const fleet = await f.journal.create(SPEC);
  await f.journal.load(fleet, requests([{ key: "k" }]), { collisionsIn: async () => null });
  const queue = await f.journal.queue(fleet);
  const [item] = (await queue.claim(1, () => ({ run: RUN, cell: null }))).items;
  const request = item?.request as ItemRequest;
  const result: ItemResult = {
    ...{ index: 0, key: "k", status: "succeeded", run: RUN, attempt: 1, exitCode: 0, output: "printed\n", error: null },
    ...{ stderrLine: null, fields: {}, startedAt: null, endedAt: new Date().toISOString(), durationMs: 1 },
    memoryBytesPeak: null,
  };
  const job = { ...permission, reads: [], env: f.project.corral.environment };
  const settle = settlingDelivered(blobs);
  return {
    queue,
    /** As a coordinator does it, with this queue. */
    settle: (of: FleetQueue) =>
      settle(
        {
          delivered: {
            index: 0,
            key: "k",
            attempt: 1,
            earlier: 0,
            run: RUN,
            machine: "m",
            result,
            streams: null,
            changeset,
            more: null,
          },
          ...{ request, result, streams: null },
        },
        { fleet, job, queue: ownedBy(of), signal: new AbortController().signal, onBegun: () => {} },
      ),
  };
}

function project(approval = "pre_approved"): Promise<FleetFixture> {
  const zone = { name: "out", mode: "rw", stage: true, approval };
  return openFleetProject({
    workers: { w: { command: sh("true"), sandbox: { zones: [zone] } } },
    zones: { out: "rw" },
    files: { "out/a": "" },
  });
}

const content = (f: FleetFixture): string => readFileSync(join(f.project.dir, "out/a"), "utf8");
const leftIn = (f: FleetFixture): string[] => {
  try {
    return readdirSync(join(f.project.stateDir, "changes"));
  } catch {
    return [];
  }
};

/** As a coordinator has it. */
function ownedBy(queue: FleetQueue): OwnedQueue {
  return new OwnedQueue(
    queue,
    // So much passes between two steps that the queue is asked each time.
    () => 10_000 * steps++,
    () => {},
  );
}
let steps = 0;

/** The queue with another way to begin. */
function withBegin(queue: FleetQueue, begin: FleetQueue["begin"]): FleetQueue {
  return withPart(queue, { begin });
}

function withPart(queue: FleetQueue, part: Partial<FleetQueue>): FleetQueue {
  return new Proxy(queue, {
    get(of, name) {
      const value: unknown = Reflect.get(part, name) ?? Reflect.get(of, name);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

describe("what a machine delivers", () => {
  it("is begun in the queue before it is applied, and applied once", async () => {
    await using f = await project();
    const { queue, settle } = await delivered(f);
    const before: string[] = [];
    const watched = withBegin(queue, async (...begun) => {
      before.push(content(f));
      return await queue.begin(...begun);
    });
    const settled = await settle(watched);
    expect(settled).toMatchObject({
      hasBegun: true,
      result: { status: "succeeded", changeset: { counts: { applied: 1 } } },
    });
    expect([before, content(f), leftIn(f)]).toEqual([[""], "once\n", []]);
    expect(await queue.requeue(0, 1, 0)).toMatchObject({ ok: false });
  });

  it("is decided on anew if its coordinator died before it had begun", async () => {
    await using f = await project();
    const { queue, settle } = await delivered(f);
    const dying = withBegin(queue, async () => {
      throw new Error("killed");
    });
    await expect(settle(dying)).rejects.toThrow("killed");
    expect([content(f), leftIn(f)]).toEqual(["", [RUN]]);
    expect(await settle(queue)).toMatchObject({ result: { status: "succeeded" } });
    expect([content(f), leftIn(f)]).toEqual(["once\n", []]);
  });

  it("changes nothing if another attempt counts meanwhile", async () => {
    await using f = await project();
    const { queue, settle } = await delivered(f);
    await queue.requeue(0, 1, 0);
    expect(await settle(queue)).toBe(null);
    expect([content(f), leftIn(f)]).toEqual(["", []]);
  });

  it("is its next owner's if the fleet was taken over meanwhile: what is kept stays", async () => {
    await using f = await project();
    const { queue, settle } = await delivered(f);
    const taken = (isInherited: boolean) =>
      withBegin(queue, async () => ({ ok: false, code: "taken", reason: "another process took it over", isInherited }));
    expect(await settle(taken(true))).toBe(null);
    expect([content(f), leftIn(f)]).toEqual(["", [RUN]]);
    expect(await settle(taken(false))).toBe(null);
    expect([content(f), leftIn(f)]).toEqual(["", []]);
  });

  it("adds and removes no changes that wait if the fleet was taken over meanwhile, since no next owner can do so while it is asked", async () => {
    await using f = await project("ask");
    const { queue, settle } = await delivered(f);
    const held: boolean[] = [];
    const claim: FleetQueue["claim"] = async (...asked) => {
      held.push(existsSync(join(f.project.stateDir, "changes", RUN, "owner")));
      const claimed = await queue.claim(...asked);
      return held.at(-1) === true ? { ...claimed, fleet: "taken" } : claimed;
    };
    const late = withPart(queue, { claim });
    await expect(settle(late)).rejects.toThrow(FleetTaken);
    expect([content(f), leftIn(f)]).toEqual(["", []]);
    expect(await settle(queue)).toMatchObject({ hasBegun: false, result: { status: "pending" } });
    await expect(settle(late)).rejects.toThrow(FleetTaken);
    expect(held).toEqual([false, true, false, true]);
    expect(leftIn(f)).toEqual([RUN]);
  });
});
