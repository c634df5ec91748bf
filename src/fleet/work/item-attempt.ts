import { z } from "zod";
import { type BlobStore, type Digest, isDigest } from "../../blobs/blob.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import { exportChangeset } from "../../changes/wire/export.ts";
import { examine } from "../../json/parse-json.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import type { Job } from "../../run/model/job.ts";
import { brokenResult, type RunResult } from "../../run/model/result.ts";
import type { RunTroubles } from "../fleet-parts.ts";
import { type ItemExecutor, itemResult, unrunResult } from "../item-result.ts";
import { type FleetJob, itemJob } from "../items/item-job.ts";
import { ATTACHED_LIMITS, type ItemRequest, type ItemResult } from "../model/item.ts";
import type { AttemptDelivery, ClaimedWork } from "../model/work.ts";
import { boundedStream } from "../stored/request-batches.ts";
import { boundedResult } from "../stored/result-row.ts";
import type { AskingCoordinator } from "./asking-coordinator.ts";
import type { Brought, HostedFleet } from "./hosted-fleets.ts";

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

const MAX_TEXT = 10_000;
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

interface Parts {
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
export function attemptWith({ fleet, job, cells, troubles, sent, questions, agreed }: Parts): HostedFleet["attempt"] {
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
