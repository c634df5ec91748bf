import { z } from "zod";

/*
 * The lines of a run's record, in the order in which they are written: one `begin`, then what happened, then the `ended` of the
 * root run. A process that is killed leaves whole lines and at most a part of the last one.
 */

const text = z.string();
const count = z.number().nonnegative();
const error = z.object({ code: text, message: text }).nullable();

export const BeginEntry = z.object({
  type: z.literal("begin"),
  version: z.literal(1),
  run: text,
  /** `session`: the tools of a worker for a user, a program or an MCP client. */
  kind: z.enum(["run", "session"]),
  worker: text,
  /** Its absolute folder. */
  project: text,
  /** The process, as `formatOwner` writes it. */
  owner: text,
  /** ISO 8601. */
  at: text,
  /** Of what the worker reads on its standard input; the input itself is not kept. Null: it has none. */
  input: z.object({ bytes: count, sha256: text }).nullable(),
  /** What was added to the command of its worker. */
  arguments: z.array(text).optional(),
  /** By name. */
  attachments: z.array(text),
  /** The run whose conversation it continues. */
  continues: text.optional(),
  /** The project's retention. */
  keep: z.object({ days: count, runs: count }),
});

/** What a file was when the run began. */
export const AttachmentEntry = z.object({
  type: z.literal("attachment"),
  name: text,
  bytes: count,
  /** Null for a file that is too large to read it for this. */
  sha256: text.nullable(),
});

/** A run that a run of the tree asked for. */
export const CalledEntry = z.object({
  type: z.literal("called"),
  run: text,
  parent: text.nullable(),
  worker: text,
  at: text,
  attachments: z.array(text),
});

/**
 * What a run had: its mounts, in the paths of its container, with their modes; the hosts that it reached (`open`: all, null: not recorded);
 * the names of its secrets; and the tools of an agent. Lists may be cut.
 */
export const HeldEntry = z.object({
  mounts: z.array(z.object({ path: text, mode: z.enum(["ro", "rw"]) })),
  network: z.union([z.literal("open"), z.array(text)]).nullable(),
  secrets: z.array(text),
  tools: z.array(text).nullable(),
});

/** Its container runs, or its model is asked. */
export const StartedEntry = z.object({
  type: z.literal("started"),
  run: text,
  at: text,
  policy: text,
  image: text.nullable(),
  model: text.nullable(),
  limits: z.record(text, z.number()).nullable(),
  /** Absent: an older version wrote the record. */
  held: HeldEntry.optional(),
});

export const EndedEntry = z.object({
  type: z.literal("ended"),
  run: text,
  at: text,
  status: text,
  exitCode: z.number().nullable(),
  signal: text.nullable(),
  error,
  durationMs: count,
  cpuMs: z.number().nullable(),
  memoryBytesPeak: z.number().nullable(),
  /** The worker printed more than its limit. */
  truncated: z.boolean(),
  changeset: z.object({ id: text.nullable(), counts: z.record(text, z.number()) }).nullable(),
  /** As in the result of the run; null without an allow list, or if it is too long. */
  network: z.record(text, z.unknown()).nullable(),
  agent: z.record(text, z.unknown()).nullable(),
  /** How many calls are not in the record, because it was full. */
  leftOut: count,
});

export type BeginEntry = z.output<typeof BeginEntry>;
export type HeldEntry = z.output<typeof HeldEntry>;
export type StartedEntry = z.output<typeof StartedEntry>;
export type EndedEntry = z.output<typeof EndedEntry>;
export type AttachmentEntry = z.output<typeof AttachmentEntry>;
export type CalledEntry = z.output<typeof CalledEntry>;

export const HistoryEntry = z.discriminatedUnion("type", [
  BeginEntry,
  AttachmentEntry,
  CalledEntry,
  StartedEntry,
  EndedEntry,
]);
export type HistoryEntry = z.output<typeof HistoryEntry>;

/** Null for a line that is not one of these: it was cut off, or another version wrote it. */
export function parseEntry(line: string): HistoryEntry | null {
  try {
    return HistoryEntry.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}
