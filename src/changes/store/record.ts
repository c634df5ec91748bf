import { z } from "zod";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ChangeVerdict } from "../apply/fitness.ts";
import type { Changeset } from "../model/changeset.ts";

/** The outcomes of a kept changeset, and the fields that a list shows, so that a list need not read all of it. */
export interface KeptState extends Omit<Changeset, "root" | "mounts" | "changes" | "hostExecuted"> {
  readonly changes: readonly KeptOutcome[];
}

export interface KeptOutcome extends ChangeVerdict {
  readonly index: number;
}

/** Why the changes of a run that failed wait; after it comes how it ended. */
export const OF_FAILED_RUN = "the run did not succeed";

/** True if nothing of it waits but what a run wrote that then failed: few look at it, and none has to. */
export function isOfFailedRun({ changes }: Pick<KeptState, "changes">): boolean {
  return changes.every(
    ({ outcome, reason }) =>
      outcome === "refused" || (outcome === "held" && reason?.startsWith(OF_FAILED_RUN) === true),
  );
}

const MAX_CHANGES = 100_000;
const MAX_MOUNTS = 1000;

const text = z.string().max(65_536);
const index = z.number().int().min(0);
const id = z.string().refine(isChangesetId, "is not a changeset id");
const absolute = text.refine((path) => path.startsWith("/"), "is not absolute");
// It is only shown and compared, so its names may contain characters that a worker's path may not, such as line breaks.
const virtual = absolute.transform((path) => path as VirtualPath);
const decimal = z.string().regex(/^-?[0-9]{1,24}$/);
const entryType = z.enum(["file", "directory", "link"]);

const facts = z.strictObject({
  type: entryType,
  inode: decimal,
  size: z.number().int().min(0),
  mode: z.number().int().min(0).max(0o7777),
  mtimeNs: decimal,
  ctimeNs: decimal,
});

const change = z.strictObject({
  index,
  mount: index,
  parts: z.array(text).min(1).max(1024),
  path: virtual,
  kind: z.enum(["create", "modify", "delete"]),
  type: entryType,
  base: facts.nullable(),
  next: facts.nullable(),
  linkText: text.exactOptional(),
  refusal: text.nullable(),
});

const mount = z.strictObject({
  path: virtual,
  target: absolute,
  targetIdentity: z.string().regex(/^[0-9]+:[0-9]+$/),
  content: absolute,
  closed: z.array(virtual).max(MAX_MOUNTS),
  lent: z.literal(true).exactOptional(),
});

const about = {
  version: z.literal(1),
  id,
  run: text,
  worker: text,
  project: text,
  createdAt: z.iso.datetime(),
  fleet: z
    .strictObject({ id: text, item: index, key: text.exactOptional(), store: text.exactOptional() })
    .exactOptional(),
};

const changeset = z
  .strictObject({
    ...about,
    root: text,
    hostExecuted: z.literal("allow").exactOptional(),
    mounts: z.array(mount).max(MAX_MOUNTS),
    changes: z.array(change).max(MAX_CHANGES),
  })
  .refine(({ changes }) => isAscending(changes), "its changes are not in order")
  .refine(({ changes, mounts }) => changes.every((one) => one.mount < mounts.length), "a change has no mount");

const state = z
  .strictObject({
    ...about,
    changes: z
      .array(
        z.strictObject({
          index,
          outcome: z.enum(["applied", "refused", "conflict", "denied", "held"]),
          reason: text.nullable(),
        }),
      )
      .max(MAX_CHANGES),
  })
  .refine(({ changes }) => isAscending(changes), "its changes are not in order");

/** Throws if it is not valid. */
export function parseChangeset(raw: unknown): Changeset {
  return changeset.parse(raw);
}

/** Throws if it is not valid. */
export function parseState(raw: unknown): KeptState {
  return state.parse(raw);
}

function isAscending(all: readonly { readonly index: number }[]): boolean {
  return all.every(({ index }, at) => at === 0 || index > (all[at - 1]?.index ?? 0));
}

/** A run's id, and the number of the commit if the run made several. Only such a text ever becomes part of a path. */
export function isChangesetId(text: string): boolean {
  return /^[0-9a-f]{12}(\.[0-9]{1,6})?$/.test(text);
}
