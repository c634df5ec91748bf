import { randomBytes } from "node:crypto";
import type { Readable } from "node:stream";
import type { ModelMessage } from "ai";
import type { Spending } from "../../agent/spending.ts";
import type { Blob } from "../../blobs/blob.ts";
import type { ChangedItem } from "../../changes/model/changeset.ts";
import type { BoundedChecks } from "../../declarations/schema/bounded-mismatch.ts";
import type { JsonSchema } from "../../declarations/schema/json-schema.ts";
import { isOnlyForSessions, type WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Meter } from "../../egress/traffic/traffic.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../json/parse-json.ts";
import type { MountView } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { ROOTED_BASE } from "../../sandbox/virtual-path.ts";
import type { RunIdentity } from "./events.ts";
import type { Grantee } from "./grantee.ts";
import type { NotBegun, RunError, RunResult } from "./result.ts";

/** How a value differs from a schema, or null. Rejects with the reason of the signal. */
export type SchemaCheck = (value: unknown, signal?: AbortSignal) => Promise<string | null>;

/** Checks values for all runs of one project, a few at once. */
export class SchemaChecks {
  #checks: Promise<BoundedChecks> | null = null;

  /** Null if there is no schema. The schema validator is loaded only if there is one. */
  by(schema: JsonSchema | undefined): SchemaCheck | null {
    if (schema === undefined) return null;
    return async (value, signal) => {
      this.#checks ??= import("../../declarations/schema/bounded-mismatch.ts").then(
        (loaded) => new loaded.BoundedChecks(),
      );
      return await (await this.#checks).mismatch(schema, value, signal);
    };
  }
}

/** Why the output of a worker that succeeded is not what it declares; null if it is. */
export async function outputError(
  { name, outputSchema }: Pick<WorkerDefinition, "name" | "outputSchema">,
  output: unknown,
  schemas: SchemaChecks,
): Promise<RunError | null> {
  const mismatch = (await schemas.by(outputSchema)?.(output)) ?? null;
  if (mismatch === null) return null;
  const message = `What worker ${name} printed does not match its \`output_schema\`: ${mismatch}`;
  return { code: "OUTPUT_NOT_VALID", message };
}

/** Why a worker cannot be run, or does not take its input. An input that cannot be serialized is refused. */
export async function inputViolations(
  { worker, input }: Pick<Job, "worker" | "input">,
  schemas: SchemaChecks,
): Promise<Violation[]> {
  if (isOnlyForSessions(worker)) return [{ code: "NOTHING_TO_RUN", worker: worker.name }];
  const refused = (reason: string): Violation[] => [{ code: "INPUT_NOT_VALID", worker: worker.name, reason }];
  if (isTooDeep(input)) return refused(`it is nested more than ${MAX_JSON_DEPTH} levels deep`);
  const reason = (await schemas.by(worker.inputSchema)?.(input)) ?? null;
  return reason === null ? [] : refused(reason);
}

type StreamName = "stdout" | "stderr";

/** Keeps what a worker prints, both streams apart, up to a bound on both together; the rest is dropped. */
export class BoundedOutput {
  readonly #kept: Record<StreamName, GrowingBytes> = { stdout: new GrowingBytes(), stderr: new GrowingBytes() };
  readonly #maxBytes: number;
  readonly #onKept: (stream: StreamName, chunk: Buffer) => void;
  readonly #onOverflow: () => void;
  #bytes = 0;
  #truncated = false;

  constructor(maxBytes: number, onKept: (stream: StreamName, chunk: Buffer) => void, onOverflow: () => void) {
    this.#maxBytes = maxBytes;
    this.#onKept = onKept;
    this.#onOverflow = onOverflow;
  }

  add(stream: StreamName, chunk: Buffer): void {
    const kept = chunk.subarray(0, this.#maxBytes - this.#bytes);
    if (kept.length > 0) {
      this.#bytes += kept.length;
      this.#kept[stream].append(kept);
      this.#onKept(stream, kept);
    }
    if (kept.length < chunk.length && !this.#truncated) {
      this.#truncated = true;
      this.#onOverflow();
    }
  }

  get truncated(): boolean {
    return this.#truncated;
  }

  /** As UTF-8; a byte that is none becomes U+FFFD. */
  text(stream: StreamName): string {
    return this.#kept[stream].text();
  }
}

/** Bytes are copied together: else a worker that prints single bytes would cost a hundred times what it printed. */
class GrowingBytes {
  #bytes = Buffer.alloc(0);
  #length = 0;

  append(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(length, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  text(): string {
    return this.#bytes.toString("utf8", 0, this.#length);
  }
}

/** A file that a caller hands to a worker: its name under `/attachments`, and its path on the host. */
export interface Attachment {
  readonly name: string;
  readonly host: string;
  /** Its name for the caller or the item of a fleet; absent if a user or a program attached a file of the host. */
  readonly asked?: string;
  /** `device:inode` if the caller's own cell was given this very file; it must still be that file. */
  readonly identity?: string;
  /** Present if it is a file of its caller's view. */
  readonly view?: MountView;
  /** The content that the run must see. It is fetched before the run, also if the file at `host` has changed. Absent: the content at `host`. */
  readonly sent?: Blob;
}

/** The conversation of an earlier run. */
export interface Continued {
  readonly run: string;
  readonly messages: readonly ModelMessage[];
}

/** What a caller takes away from a worker, beyond what the worker itself leaves out. */
export interface Narrow {
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  readonly readonly?: boolean;
  /** Only these of the caller's hosts, each as `host:port`: those of the command that calls. */
  readonly network?: readonly string[];
}

/** One execution that was asked for: who, with what, under whom, until when. */
export interface Job {
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: WorkerDefinition;
  /** The caller's sandbox; a root run's caller is the project. */
  readonly callerSandbox: Sandbox;
  /** The run that calls, which would have to be granted what this one asks for; null for a root run. */
  readonly caller: Grantee | null;
  /** The words of its command that a user or a program gave. Absent: none. */
  readonly words?: readonly string[];
  /** Names of the workers from the root run to this one. */
  readonly path: readonly string[];
  readonly input: unknown;
  /** What its command reads on standard input after `input`, such as Corral's own. Absent: nothing. It stays its giver's. */
  readonly stdin?: Readable;
  readonly attachments: readonly Attachment[];
  readonly narrow: Narrow | null;
  /**
   * Called before a run of this tree changes files outside of its sandbox, with its result as it will be if all of them can be
   * changed; null: the root run continues. Returns why nothing may be changed, or null. Absent: nothing has to know.
   */
  readonly begin?: (foreseen: RunResult | null) => Promise<NotBegun | null>;
  /** The item of a fleet that this run is an attempt at; absent: none. */
  readonly fleet?: ChangedItem;
  /** Directories that this run writes and that do not exist are made in its views, below the mounts of this sandbox. Absent: none. */
  readonly makesBelow?: Sandbox;
  /** On the environment's clock; a child's is never later than its parent's. */
  readonly deadline: number;
  readonly signal: AbortSignal;
  readonly tree: CallTree;
  /** Of the agent that called it, directly or through commands: what is spent here counts there. Null: no agent called it. */
  readonly spending: Spending | null;
  /** The budget for the network of the run that called it; null: it has none. */
  readonly callerMeter: Meter | null;
  /** For an agent: the conversation that it continues. It carries no rights. */
  readonly continues?: Continued;
  /** The user wants to be asked about every host that this tree of runs tries to reach. Absent: false. */
  readonly learnsNetwork?: boolean;
  /** What the run changed is settled as that of a success, even if its worker fails. Absent: false. */
  readonly appliesFailed?: boolean;
  /**
   * Settles when the worker may begin; absent: at once. Its verified cell waits at the gate meanwhile, and the time
   * limit has not begun. Rejects with the reason of `signal`.
   */
  readonly turn?: () => Promise<void>;
  /** Says so if the item's files are read or copied for long before it can start. Absent: nothing does. */
  readonly reading?: <T>(work: Promise<T>) => Promise<T>;
}

/** A job that a person or a program asks for: the first of its tree, under the project. */
export function rootJob(
  asked: Pick<Job, "run" | "worker" | "callerSandbox" | "signal"> &
    Partial<Pick<Job, "words" | "input" | "stdin" | "attachments" | "continues" | "learnsNetwork" | "appliesFailed">>,
  delegation: { maxDepth: number; maxCalls: number },
): Job {
  return {
    input: undefined,
    attachments: [],
    ...asked,
    root: asked.run,
    parent: null,
    caller: null,
    path: [asked.worker.name],
    narrow: null,
    deadline: Number.POSITIVE_INFINITY,
    spending: null,
    callerMeter: null,
    tree: new CallTree(delegation),
  };
}

/** What all runs of one tree count together. */
export class CallTree {
  readonly maxDepth: number;
  readonly maxCalls: number;
  #calls = 0;
  #refusals = 0;

  constructor(bounds: { maxDepth: number; maxCalls: number }) {
    this.maxDepth = bounds.maxDepth;
    this.maxCalls = bounds.maxCalls;
  }

  /** False if the tree has made all the calls that it may. */
  takeCall(): boolean {
    if (this.#calls >= this.maxCalls) return false;
    this.#calls += 1;
    return true;
  }

  /** False if as many refusals are kept as calls may be made: a worker that is refused for ever costs no more memory. */
  keepsRefusal(): boolean {
    if (this.#refusals >= this.maxCalls) return false;
    this.#refusals += 1;
    return true;
  }
}

/** Twelve characters: enough to be unique on one machine, short enough for the path of a socket. */
export function newRunId(): string {
  return randomBytes(6).toString("hex");
}

export function identityOf(job: Job): RunIdentity {
  const attachments = job.attachments.map((attachment) => attachment.name);
  const { run, root, parent, worker, words = [], continues } = job;
  const said = words.length === 0 ? {} : { arguments: words };
  const identity = { run, root, parent, worker: worker.name, attachments, ...said };
  return continues === undefined ? identity : { ...identity, continues: continues.run };
}

/** What a worker reads on its standard input. */
export function inputBytes(input: unknown): Buffer {
  return Buffer.from(input === undefined ? "" : `${JSON.stringify(input)}\n`);
}

/** Linux gives a program no variable of more than 128 KiB, and Engines pass all of them around. Of one, and of all of one input. */
const MAX_VARIABLE_BYTES = 64 * 1024;
const MAX_VARIABLES_BYTES = 128 * 1024;
const MAX_FIELDS = 200;

/**
 * The same as variables, so that a shell script needs no parser: `CORRAL_INPUT` is the JSON, and `CORRAL_FIELD_NAME` each member that is a
 * text, a number, true or false. What no variable can hold is left out, and names that become one.
 */
export function inputEnvironment(input: unknown): Readonly<Record<string, string>> {
  if (input === undefined) return {};
  const isMap = typeof input === "object" && input !== null && !Array.isArray(input);
  const members = isMap ? Object.entries(input).slice(0, MAX_FIELDS) : [];
  const found = members.flatMap(([key, value]): [string, string][] => {
    const name = `CORRAL_FIELD_${key.replaceAll(/[^A-Za-z0-9]+/g, "_").toUpperCase()}`;
    const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
    return /[A-Za-z0-9]/.test(key) && isPlain ? [[name, String(value)]] : [];
  });
  const isAlone = (name: string): boolean => found.filter(([other]) => other === name).length === 1;
  const fields = found.filter(([name]) => isAlone(name));
  let left = MAX_VARIABLES_BYTES;
  const fits = ([name, value]: [string, string]): boolean => {
    const bytes = Buffer.byteLength(value) + name.length + 2;
    if (bytes > MAX_VARIABLE_BYTES || bytes > left || value.includes("\0") || !value.isWellFormed()) return false;
    left -= bytes;
    return true;
  };
  const whole = { CORRAL_INPUT: JSON.stringify(input) };
  return Object.fromEntries([...fields, ...Object.entries(whole)].filter(fits));
}

/** The path at which a cell sees what is at `path`. */
export function inCell(path: string, { rooted }: Pick<Sandbox, "rooted">): string {
  if (!rooted) return path;
  return path === "/" ? ROOTED_BASE : ROOTED_BASE + path;
}
