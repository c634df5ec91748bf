import { setTimeout as pause } from "node:timers/promises";
import type { BlobStore } from "../blobs/blob.ts";
import { StoredFiles } from "../blobs/fetched-files.ts";
import type { ImageFacts } from "../isolation/plan/plan-for.ts";
import { type Driver, EngineTrouble } from "../isolation/port/driver.ts";
import { pinSources } from "../isolation/sources/pin.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { unmadeViolation } from "../run/model/worker-images.ts";
import type { Violation } from "../sandbox/violation.ts";
import { formatBytes } from "../text/amounts.ts";
import { agreedFacts, agreementDigest, calledBy, fleetFacts, imageAsk } from "./cache/agreement.ts";
import { FleetCache } from "./cache/fleet-cache.ts";
import { attachedHost, begunItems, type FleetJob, readByAll } from "./items/item-job.ts";
import { checkPaths, type TemplatePath } from "./items/item-template.ts";
import { type Collisions, collisionsIn } from "./items/path-template.ts";
import { ATTACHED_LIMITS, type FleetSpec, type ItemAttachment, type ItemRequest, isFailure } from "./model/item.ts";
import type { ApplyingItem, FleetStore, LoadProblem, TakenOver } from "./model/store.ts";
import { finishBegun } from "./running/begun-effects.ts";
import type { OnFleetEvent } from "./running/events.ts";
import { LOOKED_AT, refusedAlike } from "./running/first-items.ts";
import {
  type Elsewhere,
  type FleetPermission,
  fleetPermission,
  MachineShare,
  RunTroubles,
  type Transport,
} from "./running/fleet-parts.ts";
import { freshCells } from "./running/fresh-cells.ts";
import type { ItemExecutor } from "./running/item-result.ts";
import { withFetchedAttachments } from "./running/items-here.ts";
import { RunningFleet } from "./running/running-fleet.ts";
import { ScrubbedPool } from "./scrubbed/scrubbed-pool.ts";

/** Items whose files are read and stored at the same time. A database takes each file as a whole. */
const AT_ONCE = 4;

/**
 * The same requests, whose attachments are stored for machines as they are now. An item whose files cannot be sent is refused, and
 * keeps their paths: they can be sent again.
 */
export async function* sentAttachments(
  items: AsyncIterable<ItemRequest>,
  { job, blobs, signal }: { readonly job: FleetJob; readonly blobs: BlobStore; readonly signal: AbortSignal },
): AsyncGenerator<ItemRequest, void, undefined> {
  const files = new StoredFiles(blobs);
  const window: Promise<ItemRequest>[] = [];
  try {
    for await (const item of items) {
      const sent = sentItem(item, { job, blobs, signal }, files);
      // It is awaited in its turn.
      sent.catch(() => {});
      window.push(sent);
      if (window.length >= AT_ONCE) yield await (window.shift() ?? sent);
    }
    while (window.length > 0) yield await (window.shift() as Promise<ItemRequest>);
    await blobs.flush();
  } finally {
    await Promise.allSettled(window);
  }
}

async function sentItem(
  { refusal, ...request }: ItemRequest,
  { job, blobs, signal }: Parameters<typeof sentAttachments>[1],
  files: StoredFiles,
): Promise<ItemRequest> {
  const { attachments } = request;
  // Its template was refused.
  if (refusal !== undefined && attachments.length === 0) return { ...request, refusal };
  if (attachments.length === 0) return request;
  const unsent = (reason: string): ItemRequest => ({
    ...request,
    attachments: attachments.map(({ path, name }) => ({ path, name })),
    refusal: reason,
  });
  if (attachments.length > ATTACHED_LIMITS.files)
    return unsent(
      `it has ${attachments.length} attachments, and at most ${ATTACHED_LIMITS.files} can be sent to machines`,
    );
  const sent: ItemAttachment[] = [];
  let bytes = 0;
  for (const { path, name } of attachments) {
    signal.throwIfAborted();
    const host = attachedHost(path, job.caller, false);
    const pinning = await pinSources([host], job.env.refusedSources);
    const why = (reason: string): ItemRequest => unsent(`the attachment ${path} cannot be sent to machines: ${reason}`);
    if (!pinning.ok) return why(pinning.refusals.map(({ reason }) => reason).join("; "));
    await using pins = pinning.pins;
    const source = pins.sources.get(host);
    if (source?.kind !== "file") return why("an attachment is one regular file");
    if (source.bytes > blobs.maxBytes) return why(tooLarge(source.bytes, blobs.maxBytes));
    bytes += source.bytes;
    if (bytes > ATTACHED_LIMITS.bytes)
      return why(`all files of an item may have ${formatBytes(ATTACHED_LIMITS.bytes)} together`);
    const blob = await files.store(source.descriptorPath, signal);
    if (blob === null) return why("it changes while it is read. Try again when no program writes to it");
    sent.push({ path, name, sent: blob });
  }
  return { ...request, attachments: sent };
}

function tooLarge(bytes: number, maxBytes: number): string {
  return (
    `it has ${formatBytes(bytes)}, and the blob store takes at most ${formatBytes(maxBytes)}. ` +
    "Set CORRAL_BLOBS to a directory that all machines share, or run it without `machines`"
  );
}

/** What the fleets of one project need to run. */
export interface FleetEnvironment {
  readonly run: RunEnvironment;
  readonly store: FleetStore;
  readonly onEvent: OnFleetEvent;
  /** Stops everything immediately. Items that were running run again on resume. */
  readonly stop: AbortSignal;
  /** Absent: no machine can take part. */
  readonly transport?: Transport;
}

/** A fleet that is ready to run, or why it is not. Disposing removes its cells; its results stay in the store. */
export type OpenedFleet =
  | ({ readonly ok: true; readonly fleet: RunningFleet } & AsyncDisposable)
  | { readonly ok: false; readonly violations: readonly Violation[] }
  | { readonly ok: false; readonly problem: LoadProblem<Collisions> }
  | { readonly ok: false; readonly reason: string };

/**
 * Starts many runs of one worker, one for each item. All items are written to the store and checked for colliding outputs
 * before any runs. From then on the fleet survives the end of this process and of the Engine. `paths`: literal beginnings of
 * paths in templates. Nothing is in the store before the first item is known.
 *
 * @throws TemplateError for a path at which the worker has nothing, and what `items` throws
 */
export async function startFleet(
  spec: FleetSpec,
  items: AsyncIterable<ItemRequest>,
  env: FleetEnvironment,
  paths: readonly TemplatePath[] = [],
): Promise<OpenedFleet> {
  const allowed = await permitted(spec, env);
  if (!("job" in allowed)) return allowed;
  checkPaths(paths, allowed.job.sandbox);
  const { store, onEvent, stop } = env;
  await using begun = await begunItems(items, LOOKED_AT);
  const reason = await refusedAlike(begun.first, spec, allowed.job, env.run);
  if (reason !== null) return { ok: false, reason };
  const id = await store.create(spec);
  const loaded = await store.load(id, forMachines(begun.items, spec, allowed, env), { collisionsIn, signal: stop });
  if (!loaded.ok) return loaded;
  onEvent({ type: "loaded", fleet: id, items: loaded.total, done: 0 });
  try {
    return await opened(id, spec, allowed, env);
  } catch (error) {
    // Otherwise the fleet would count as running until this process ends.
    await store.pause(id, "the fleet could not be started");
    throw error;
  }
}

/**
 * Resumes a fleet that no process runs. Items that ran when its process died are fenced off before they run again; what others had
 * begun to change is finished, and they do not run again.
 */
export async function resumeFleet(id: string, env: FleetEnvironment): Promise<OpenedFleet> {
  const { store, onEvent } = env;
  const taken = await store.takeOver(id);
  if (!taken.ok) return { ok: false, reason: taken.reason };
  try {
    const { counts, spec } = taken.fleet;
    const applying = await fenceOff(taken, env);
    const allowed = await permitted(spec, env);
    if (!("job" in allowed)) {
      const ports = { queue: await store.queue(id), changesets: env.run.changesets };
      for (const item of applying) await finishBegun(item, spec.worker, ports);
      await store.pause(id, "the worker is no longer allowed to run");
      return allowed;
    }
    onEvent({ type: "loaded", fleet: id, items: counts.total, done: counts.done, failed: counts.failed });
    return await opened(id, spec, allowed, env, applying);
  } catch (error) {
    await store.pause(id, "the fleet could not be resumed");
    throw error;
  }
}

/**
 * Runs the failed items of a fleet again, in the same fleet; if it was paused, its other items too. Each result is replaced when
 * its new attempt ends. The worker is that of now.
 */
export async function retryFleet(id: string, spec: FleetSpec, env: FleetEnvironment): Promise<OpenedFleet> {
  const { store, onEvent } = env;
  const allowed = await permitted(spec, env);
  if (!("job" in allowed)) return allowed;
  const taken = await store.takeOver(id, { retries: true });
  if (!taken.ok) return { ok: false, reason: taken.reason };
  try {
    const applying = taken.running.length + taken.applying.length > 0 ? await fenceOff(taken, env) : [];
    // What their files contain now is what counts now.
    if (spec.machines != null) await store.work?.replace(id, forMachines(store.failed(id), spec, allowed, env));
    await dropFailed(id, env);
    await store.retryFailed(id);
    const { total, done, failed } = await (await store.queue(id)).counts();
    onEvent({ type: "loaded", fleet: id, items: total, done, failed });
    return await opened(id, spec, allowed, env, applying);
  } catch (error) {
    await store.pause(id, "its items could not be retried");
    throw error;
  }
}

/** What failed attempts wrote is written again by those that come in their place. */
async function dropFailed(id: string, { store, run: { changesets } }: FleetEnvironment): Promise<void> {
  for await (const { status, run, changeset } of store.results(id))
    if (isFailure(status) && run !== null && changeset?.id != null)
      await changesets.drop(run, "its item failed, and runs again");
}

/**
 * No cell of a dead process may still work on an item when the next attempt starts, and nothing of the attempt that does not count may
 * wait for a person. Returns the items that had begun to change files: they are to be finished.
 */
async function fenceOff(
  { fleet: { id }, running, applying }: Extract<TakenOver, { ok: true }>,
  { run: { driver, changesets }, store }: FleetEnvironment,
): Promise<readonly ApplyingItem[]> {
  await driver.reap();
  const left = (await driver.list()).filter(({ ownerAlive }) => !ownerAlive);
  if (left.length > 0) throw new EngineTrouble(`${left.length} cells of a dead process could not be removed`);
  const runs = running.map(({ run }) => run);
  await changesets.withdraw(runs, "its process died, and the item runs again");
  for (const item of running) await store.fenced(id, item);
  return applying;
}

interface Allowed {
  readonly job: FleetJob;
  readonly digest: string | null;
}

async function permitted(
  spec: FleetSpec,
  env: FleetEnvironment,
): Promise<Allowed | Extract<OpenedFleet, { ok: false }>> {
  const { run, stop } = env;
  const permission = await fleetPermission(spec, run);
  if (!permission.ok) return permission;
  const { worker, caller, sandbox } = permission;
  const alone = whyAlone(spec, permission, env);
  if (alone !== null) return { ok: false, reason: alone };
  const ready = await run.images.ready(worker, imageAsk(worker, run, stop));
  if (ready.state === "unmade") return { ok: false, violations: ready.parts.map(unmadeViolation) };
  if (ready.state === "refused") return { ok: false, violations: ready.violations };
  const image = await run.driver.imageFacts(ready.name);
  if (image === null) return { ok: false, violations: [{ code: "IMAGE_MISSING", image: worker.image }] };
  const { digest, images } = await fleetFacts(worker, sandbox, run, stop);
  const reads = readByAll(sandbox, spec.reuse);
  const { database } = env.store;
  const at = database === null ? {} : { database };
  return { job: { worker, caller, sandbox, reads, env: withImages(run, images), ...at }, digest };
}

/** Why no machine can run items of a fleet that wants machines; null if they can, or if it wants none. */
function whyAlone(
  { machines = null, concurrency }: FleetSpec,
  { worker, sandbox }: Extract<FleetPermission, { ok: true }>,
  { store, run, transport }: FleetEnvironment,
): string | null {
  if (machines === null) return concurrency === 0 ? NO_MACHINES : null;
  if (store.work === null || transport === undefined)
    return "machines need a queue that they can reach: set `queue: postgres://…` in corral.yaml, or CORRAL_QUEUE";
  const workers = [worker, ...calledBy(worker, run.project.workers)];
  const pushes = workers.find(({ git = [] }) => git.length > 0);
  if (pushes !== undefined)
    return `worker ${pushes.name} uses repositories, which only this machine has: run it without \`machines\``;
  const asks = sandbox.withheld?.[0];
  if (asks !== undefined)
    return `reading ${asks.path} needs consent, which machines cannot ask for: run it without \`machines\``;
  return null;
}

const NO_MACHINES =
  "`concurrency: 0` leaves all items to machines, and the fleet has no `machines`: add them, or use a number from 1";

/** The same items, and whatever they attach is stored for machines, if the fleet wants those. */
function forMachines(
  items: AsyncIterable<ItemRequest>,
  { machines = null }: FleetSpec,
  { job }: Allowed,
  { transport, stop }: FleetEnvironment,
): AsyncIterable<ItemRequest> {
  if (machines === null || transport === undefined) return items;
  return sentAttachments(items, { job, blobs: transport.blobs, signal: stop });
}

/** Sends machines what its items read. */
async function elsewhereOf(
  id: string,
  spec: FleetSpec,
  { job }: Allowed,
  { store: { work }, transport, stop }: FleetEnvironment,
  cache: FleetCache | null,
): Promise<Elsewhere | null> {
  if (spec.machines == null || work === null || transport === undefined) return null;
  const { version, sendTrees, settleChanges } = transport;
  const { facts } = await agreedFacts(job, job.env, { version, signal: stop });
  await cache?.beforeSending();
  const agreement = { ...facts, trees: await sendTrees(job.sandbox, stop) };
  return {
    work,
    agreed: agreementDigest(agreement),
    offer: async () => await work.offer(id, agreement),
    settleChanges,
    pause: (ms, signal) => pause(ms, undefined, { signal }).catch(() => {}),
  };
}

/** All items run in the images that the fleet's cache keys contain, even if an image's name is moved later. */
function withImages(run: RunEnvironment, images: ReadonlyMap<string, ImageFacts>): RunEnvironment {
  const { driver } = run;
  const imageFacts: Driver["imageFacts"] = async (name) => images.get(name) ?? (await driver.imageFacts(name));
  return { ...run, driver: { ...driver, imageFacts } };
}

async function opened(
  id: string,
  spec: FleetSpec,
  allowed: Allowed,
  env: FleetEnvironment,
  applying: readonly ApplyingItem[] = [],
): Promise<OpenedFleet> {
  const { store, onEvent, stop } = env;
  const { job, digest } = allowed;
  const { sandbox } = job;
  const queue = await store.queue(id);
  const needs = spec.machines?.needs ?? null;
  const cached = { id, digest, job, store, needs, signal: stop };
  const cache = spec.cache && digest !== null ? await FleetCache.open({ ...cached, digest }) : null;
  const elsewhere = await elsewhereOf(id, spec, allowed, env, cache);
  const memory = sandbox.limits.memoryBytes ?? sandbox.policy.maxLimits.memoryBytes;
  const share = await MachineShare.take(id, spec, env.run.ownerDir, memory);
  const troubles = new RunTroubles();
  const listened = troubles.listeningIn(job.env);
  const cells: ItemExecutor =
    spec.reuse === "fresh"
      ? freshCells(sandbox, listened)
      : new ScrubbedPool({
          worker: job.worker,
          fleet: sandbox,
          env: listened,
          size: () => share.concurrency.running,
          signal: stop,
        });
  const { transport } = env;
  const isShared = elsewhere !== null && transport !== undefined;
  const { ownerDir } = env.run;
  const executor = isShared ? withFetchedAttachments(cells, { blobs: transport.blobs, ownerDir }) : cells;
  const fleet = new RunningFleet({
    id,
    spec,
    job,
    store,
    queue,
    cache,
    applying,
    executor,
    troubles,
    share,
    elsewhere,
    onEvent,
    stop,
  });
  return {
    ok: true,
    fleet,
    async [Symbol.asyncDispose]() {
      try {
        await executor[Symbol.asyncDispose]();
      } finally {
        await share[Symbol.asyncDispose]();
      }
    },
  };
}
