import { z } from "zod";
import { openModel } from "../../agent/open-model.ts";
import { type Approver, denied } from "../../approval/approver.ts";
import { type BlobStore, type Digest, isDigest } from "../../blobs/blob.ts";
import type { Mirrors, TreeMirror } from "../../blobs/mirrors.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import { exportChangeset } from "../../changes/wire/document.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { examine } from "../../json/parse-json.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { Job } from "../../run/model/job.ts";
import { brokenResult, describeAll, type RunResult } from "../../run/model/result.ts";
import { RecordedApprover } from "../../run/recorded/run-history.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { agreedFacts, agreementDigest, calledBy, whyDifferent } from "../cache/agreement.ts";
import { type FleetJob, itemJob, readByAll } from "../items/item-job.ts";
import { ATTACHED_LIMITS, type FleetSpec, type ItemRequest, type ItemResult } from "../model/item.ts";
import type { Agreement, AttemptDelivery, ClaimedWork, Offer } from "../model/work.ts";
import { fleetPermission, RunTroubles } from "../running/fleet-parts.ts";
import { freshCells } from "../running/fresh-cells.ts";
import { type ItemExecutor, itemResult, unrunResult } from "../running/item-result.ts";
import { withFetchedAttachments } from "../running/items-here.ts";
import { ScrubbedPool } from "../scrubbed/scrubbed-pool.ts";
import { boundedResult, boundedStream } from "../stored/rows.ts";
import type { AskingCoordinator } from "./asking-coordinator.ts";
import type { Brought, HostedFleet, HostFleet, Hosting } from "./hosted-fleets.ts";

const name = z.string().refine((text) => nameFault(text) === null);
const count = z.number().int().min(0).max(1_000_000_000);

const offered = z.object({
  version: z.literal(1),
  worker: name,
  policy: name.nullable(),
  concurrency: z.union([z.literal("auto"), count]),
  reuse: z.enum(["fresh", "scrubbed"]),
  timeoutMs: z.number().positive().nullable(),
  retries: count,
  maxFailures: count.nullable(),
  cache: z.boolean(),
  source: z.string().max(10_000),
});

/** The spec of a fleet as another machine wrote it into the database; null if it is none that this version can read. */
function offeredSpec(raw: unknown): FleetSpec | null {
  const parsed = examine(offered, raw);
  return parsed.success ? parsed.data : null;
}

/** A longer one is none that Corral makes. */
const MAX_TEXT = 10_000;
const texts = z.record(z.string().max(MAX_TEXT), z.string().max(MAX_TEXT));
const agreement = z.object({ declarations: texts, images: texts, trees: texts });

/** What must agree, as another machine wrote it; null if it is none that this version can read. */
function offeredAgreement(raw: unknown): Agreement | null {
  const parsed = examine(agreement, raw);
  return parsed.success ? parsed.data : null;
}

/** No run is granted a directory of this machine, whatever the rules say: an item reads and writes those of its coordinator. */
export function deniesDirectories(run: Pick<RunEnvironment, "approver" | "audit" | "emit" | "now">): Approver {
  const denying = new RecordedApprover({ decide: async () => denied(NO_DIRECTORIES) }, run.audit, run);
  return {
    decide: (request, signal) =>
      (request.operations.some((one) => one === "grant_read" || one === "grant_write") ? denying : run.approver).decide(
        request,
        signal,
      ),
  };
}

const NO_DIRECTORIES =
  "the item runs on another machine, and its coordinator's other directories are not there; declare the directory as a mount of the worker, or run the fleet without machines";

/** What a machine runs items with. */
export interface MachineParts {
  /** Of this machine's own copy of the project. */
  readonly run: RunEnvironment;
  /** Of Corral. */
  readonly version: string;
  readonly blobs: BlobStore;
  /** Those that a cell with this sandbox can read all of. */
  readonly mirrorsFor: (sandbox: Sandbox) => Mirrors;
  /** Items that run at once. */
  readonly slots: number;
  /** The directory of the mirrors: what cells may be shown of Corral's own. */
  readonly mirrorsDir: string;
  /** Asks for the approvals that runs need. */
  readonly questions: Pick<AskingCoordinator, "of">;
}

/**
 * Takes a fleet only if the declarations and images here are those of its coordinator: neither it nor the database can make this machine
 * run what is not declared here.
 */
export function hostFleets({ run, version, blobs, mirrorsFor, mirrorsDir, slots, questions }: MachineParts): HostFleet {
  const pools = new Set<ScrubbedPool>();
  // Some more items than run wait with their cells ready. All fleets together keep about as many cells, and at most one more for each.
  const size = (): number => Math.ceil((2 * slots) / Math.max(1, pools.size));
  return async (offer: Offer, signal: AbortSignal): Promise<Hosting> => {
    const [spec, agreement] = [offeredSpec(offer.spec), offeredAgreement(offer.agreement)];
    if (spec === null || agreement === null) return refused("another version of Corral wrote its declaration");
    const permission = await fleetPermission({ ...spec, reuse: "fresh" }, run);
    if (!permission.ok) return refused("reason" in permission ? permission.reason : violationText(permission));
    const { worker, sandbox } = permission;
    const why = whyDifferent(await agreedFacts(permission, run, { version, signal }), agreement);
    if (why !== null) return refused(why);
    const missing = await whatIsMissing(permission, run, signal);
    if (missing !== null) return refused(missing);
    const mayShare = spec.reuse === "scrubbed" && (await fleetPermission(spec, run)).ok;

    const shown = await mirrored(sandbox, agreement.trees, { mirrors: mirrorsFor(sandbox), blobs, signal });
    const sent = new SentChanges(blobs);
    const troubles = new RunTroubles();
    const env = troubles.listeningIn({
      ...run,
      approver: deniesDirectories(run),
      refusedSources: { ...run.refusedSources, mirrors: mirrorsDir },
      handsOver: (job, changeset) => sent.send(job, changeset),
    });
    const own = { worker: inheriting(worker), sandbox: shown.sandbox };
    const ends = new AbortController();
    const pool =
      mayShare && onlyReads(shown.sandbox)
        ? new ScrubbedPool({ worker: own.worker, fleet: own.sandbox, env, size, signal: ends.signal })
        : null;
    if (pool !== null) {
      pools.add(pool);
      for (const other of pools) other.trim();
    }
    const cells = withFetchedAttachments(pool ?? freshCells(own.sandbox, env), { blobs, ownerDir: env.ownerDir });
    const reads = readByAll(shown.sandbox, spec.reuse);
    const job: FleetJob = { ...own, caller: shown.sandbox, reads, env, isElsewhere: true };
    return {
      ok: true,
      fleet: {
        worker: worker.name,
        attempt: attemptWith({
          fleet: offer.fleet,
          job,
          cells,
          troubles,
          sent,
          questions,
          agreed: agreementDigest(agreement),
        }),
        async [Symbol.asyncDispose]() {
          ends.abort(new Error("the fleet is over"));
          if (pool !== null) pools.delete(pool);
          await cells[Symbol.asyncDispose]();
          await shown[Symbol.asyncDispose]();
        },
      },
    };
  };
}

/**
 * Its items can share cells that are scrubbed. What an item writes has to leave this machine as a list of changes, which is made from a view
 * of its own: such an item has a cell of its own too.
 */
function onlyReads({ mounts }: Sandbox): boolean {
  return mounts.every((mount) => mount.mode === "ro" && deliveryOf(mount) === "direct");
}

function refused(why: string): Hosting {
  return { ok: false, why };
}

function violationText({ violations }: { readonly violations: Parameters<typeof describeAll>[0] }): string {
  return describeAll(violations)
    .map(({ message }) => message)
    .join("; ");
}

/**
 * Why this machine could run no item of a fleet although its declarations agree: a secret or the key of a model that it does not have.
 * Null if it has all. Their values are read once and forgotten.
 */
async function whatIsMissing(
  { worker, sandbox }: { readonly worker: WorkerDefinition; readonly sandbox: Sandbox },
  run: RunEnvironment,
  signal: AbortSignal,
): Promise<string | null> {
  const missing: string[] = [];
  const look = async (read: () => Promise<unknown>): Promise<void> => {
    try {
      await read();
    } catch (error) {
      missing.push((error as Error).message);
    }
  };
  for (const name of sandbox.secrets ?? []) await look(() => run.secretInside(name, signal));
  for (const name of ofNetwork(sandbox)) await look(() => run.secretOf(name, signal));
  for (const { agent } of [worker, ...calledBy(worker, run.project.workers)])
    if (agent !== undefined) await look(() => openModel(agent.model, run.models, signal));
  return missing.length === 0 ? null : `this machine lacks what its items need: ${[...new Set(missing)].join("; ")}`;
}

function ofNetwork({ network }: Sandbox): ReadonlySet<string> {
  if (typeof network === "boolean") return new Set();
  return new Set(network.allow.flatMap(({ set = {} }) => Object.values(set).map(({ secret }) => secret)));
}

/** What a fleet's items read on this machine. Disposing lets the mirrors go. */
export interface Mirrored extends AsyncDisposable {
  /** With mirrors in the place of all directories; whatever is writable is staged. */
  readonly sandbox: Sandbox;
}

/** Brings the directories of a fleet here. @throws BlobRefused, TreeRefused, or an error for people */
async function mirrored(
  sandbox: Sandbox,
  trees: Agreement["trees"],
  { mirrors, blobs, signal }: { readonly mirrors: Mirrors; readonly blobs: BlobStore; readonly signal: AbortSignal },
): Promise<Mirrored> {
  const opened: TreeMirror[] = [];
  const close = async (): Promise<void> => {
    for (const mirror of opened) await mirror[Symbol.asyncDispose]();
  };
  try {
    const mounts: Mount[] = [];
    for (const mount of sandbox.mounts) {
      const digest = trees[mount.path];
      if (digest === undefined || !isDigest(digest)) throw new Error(`its coordinator does not offer ${mount.path}`);
      const mirror = await mirrors.open(digest, blobs, signal);
      opened.push(mirror);
      mounts.push(stagedAt(mount, mirror.path));
    }
    return { sandbox: { ...sandbox, mounts }, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What is written leaves this machine as a changeset alone, whatever it is at home. */
function stagedAt({ view: _, ...mount }: Mount, host: string): Mount {
  return mount.mode === "ro" || mount.discard ? { ...mount, host } : { ...mount, host, stage: true };
}

/**
 * The worker as one that inherits its files: the sandbox that it is run under is its own already. Everything else that it needs is
 * derived again.
 */
function inheriting(worker: WorkerDefinition): WorkerDefinition {
  const { zones: _, paths: __, allowRead: ___, allowWrite: ____, ...needs } = worker.needs;
  return { ...worker, needs: { ...needs, inherit: true } };
}

/** What items changed, stored for their coordinator. */
export class SentChanges {
  readonly #blobs: BlobStore;
  /** By run, until it is taken; as many as run at once. */
  readonly #sent = new Map<string, Digest>();

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  async send({ run, signal }: Pick<Job, "run" | "signal">, changeset: Changeset): Promise<void> {
    this.#sent.set(run, await exportChangeset(changeset, this.#blobs, signal));
  }

  /** The list of its changes; null: it has none. */
  take(run: string): Digest | null {
    const digest = this.#sent.get(run) ?? null;
    this.#sent.delete(run);
    return digest;
  }
}

/** Of paths that an item may read or write. */
const MAX_PATHS = 100_000;

const text = z.string().max(MAX_TEXT);
const attachment = z.strictObject({
  path: text,
  name: z.string().refine(isAttachmentName),
  sent: z
    .strictObject({
      digest: z.custom<Digest>((value) => typeof value === "string" && isDigest(value)),
      bytes: z.number().int().min(0).max(ATTACHED_LIMITS.bytes),
    })
    .optional(),
});
const claimed = z.object({
  index: z.number().int().min(0),
  key: text,
  place: text,
  input: z.unknown().optional(),
  attachments: z
    .array(attachment)
    .max(ATTACHED_LIMITS.files)
    .refine((all) => new Set(all.map(({ name }) => name)).size === all.length),
  allowRead: z.array(text).max(MAX_PATHS).optional(),
  allowWrite: z.array(text).max(MAX_PATHS).optional(),
  fields: z.record(z.string(), z.unknown()).optional(),
  refusal: z.string().optional(),
});

/** The request of an item as another machine wrote it into the database; null if it is none. */
function claimedRequest(raw: unknown): ItemRequest | null {
  const parsed = examine(claimed, raw);
  return parsed.success ? (parsed.data as ItemRequest) : null;
}

interface HostedParts {
  readonly fleet: string;
  readonly job: FleetJob;
  readonly cells: ItemExecutor;
  readonly troubles: RunTroubles;
  readonly sent: SentChanges;
  readonly questions: Pick<AskingCoordinator, "of">;
  /** SHA-256 of what this machine agreed to. */
  readonly agreed: string;
}

/** Attempts that end by an error of this machine or of Corral, before the item counts as lost. */
const MAX_BROKEN = 6;
/** The database makes it, and a machine need not believe that. */
const RUN_ID = /^[0-9a-f]{12}$/;
/** These say that this machine lacks something, and nothing of the item. */
const UNWELL: ReadonlySet<string> = new Set(["HOST_TROUBLE", "ENGINE_TROUBLE"]);

/** How items of one fleet run on this machine. */
export function attemptWith({
  fleet,
  job,
  cells,
  troubles,
  sent,
  questions,
  agreed,
}: HostedParts): HostedFleet["attempt"] {
  return async (item, { signal, turn }) => {
    const { run } = item;
    const refused = (message: string): Brought => {
      const error = { code: "ITEM_REFUSED", message };
      return delivered({ ...unrunResult(item, "refused"), run, attempt: item.attempt, error }, null, null);
    };
    if (!RUN_ID.test(run)) return refused("the id of its run, which names folders here, is not valid");
    const request = claimedRequest(item.request);
    if (request === null) return refused("what its coordinator asks for is no request of an item");
    const refusal = request.refusal ?? whyNotHere(request);
    if (refusal !== null) return refused(refusal);
    using _ = questions.of(item);
    let startedAt: Date | null = null;
    const begun = async (): Promise<void> => {
      await turn();
      startedAt = new Date();
    };
    const ran = await cells
      .run(itemJob(job, request, { run, fleet, signal, turn: begun }))
      .catch((error: Error) => brokenAs(item, error, troubles));
    const changeset = sent.take(run);
    const told = troubles.take(run);
    if (signal.aborted) return { outcome: "given_up", why: "it was ended", isUnwell: false };
    if (typeof ran === "string") return { outcome: "given_up", why: ran, isUnwell: true };
    if (UNWELL.has(ran.error?.code ?? ""))
      return { outcome: "given_up", why: [ran.error?.message, ...told].join(" "), isUnwell: true };
    return delivered(itemResult(item, ran, startedAt, told), ran, changeset, agreed);
  };
}

/** A run that an error ended: another machine may do better, but not for ever. */
function brokenAs({ run, attempt, earlier }: ClaimedWork, error: Error, troubles: RunTroubles): RunResult | string {
  if (attempt - earlier < MAX_BROKEN) return error.message;
  troubles.add(run, error.message);
  return brokenResult({ run, worker: "" });
}

/** `agreed`: what it ran with. A result whose output was cut does not name it, so that it is no cache entry. */
function delivered(
  result: ItemResult,
  printed: RunResult | null,
  changeset: AttemptDelivery["changeset"],
  agreed: string | null = null,
): Brought {
  const { json, isWhole } = boundedResult(result);
  const bounded = { ...(JSON.parse(json) as ItemResult), fields: {} };
  const more = isWhole && agreed !== null ? { agreed } : null;
  const streams =
    printed === null ? null : { stdout: boundedStream(printed.stdout), stderr: boundedStream(printed.stderr) };
  return { outcome: "delivery", delivery: { result: bounded, streams, changeset, more } };
}

/** Null: it can run here. */
function whyNotHere({ attachments }: ItemRequest): string | null {
  const unsent = attachments.find(({ sent }) => sent === undefined);
  return unsent === undefined ? null : `its coordinator did not send the attachment ${unsent.path}`;
}
