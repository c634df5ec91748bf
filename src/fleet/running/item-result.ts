import { bugText } from "../../platform/errno.ts";
import type { Job } from "../../run/model/job.ts";
import type { RunResult } from "../../run/model/result.ts";
import { ItemRefusal, TemplateError } from "../items/item-fields.ts";
import { hashOf, usesHash } from "../items/item-job.ts";
import { itemFiller } from "../items/item-template.ts";
import { folderOf, type ItemReading, type ItemSource, readItems } from "../items/read-items.ts";
import {
  HAS_LAST_WORDS,
  type ItemRequest,
  type ItemResult,
  type ItemTemplate,
  type ManifestItem,
} from "../model/item.ts";
import type { ClaimedItem } from "../model/queue.ts";

export interface RequestsOf {
  readonly source: ItemSource;
  readonly template: ItemTemplate;
  /** Directories, in addition to the source's own, in which items may name files by absolute paths. */
  readonly within: readonly string[];
  /** The base for paths whose template starts with literal text. Absolute. */
  readonly templateDir: string;
}

/**
 * The requests of all items, in order. An item that makes no valid request is refused alone, so one hostile line or file
 * name does not affect the other items. A field that the first item does not have is a mistake of the template.
 *
 * @throws TemplateError, for every mistake before the first request
 */
export async function* itemRequests(
  { source, template, within, templateDir }: RequestsOf,
  reading: ItemReading,
): AsyncGenerator<ItemRequest> {
  const manifestDir = folderOf(source, reading.cwd);
  const fill = itemFiller(template, { manifestDir, templateDir, within });
  const isHashed = usesHash(template);
  const alike = new Alikeness();
  let isFirst = true;
  for await (const item of readItems(source, reading)) {
    if (item.refusal !== undefined) {
      const { index, place, refusal } = item;
      yield { index, key: place, place, attachments: [], refusal };
      continue;
    }
    try {
      const request = fill(isHashed ? { ...item, hash: await hashOf(item) } : item);
      alike.see(request);
      yield { ...request, ...keptFields(item) };
    } catch (error) {
      if (!(error instanceof ItemRefusal)) throw error;
      const { index, place } = item;
      if (isFirst && error.ofTemplate.length > 0) throw new TemplateError(error.ofTemplate);
      const refusal = error.problems.join("; ");
      yield { index, key: error.key ?? `item ${index}`, place, attachments: [], refusal, ...keptFields(item) };
    }
    isFirst = false;
  }
  if (alike.areAll) reading.note?.(ALL_ALIKE);
}

const ALL_ALIKE =
  "the worker gets the same for every item: neither the attachments nor the paths nor the input name a field of an item, as `{path}=in.pdf` does";

/** Whether items differ in anything but their names. */
class Alikeness {
  #first: string | null = null;
  #count = 0;
  #differ = false;

  see({ attachments, allowRead, allowWrite, input }: ItemRequest): void {
    if (this.#differ) return;
    const asked = JSON.stringify([attachments, allowRead, allowWrite, input]);
    this.#first ??= asked;
    this.#count += 1;
    this.#differ = this.#first !== asked;
  }

  get areAll(): boolean {
    return this.#count > 1 && !this.#differ;
  }
}

/** JSON of one field, and of all of one item. */
const MAX_FIELD_CHARS = 4000;
const MAX_FIELDS_CHARS = 16 * 1024;

/** The item's own fields as the journal keeps them for exports: those that are too long are left out. */
function keptFields({ record }: ManifestItem): Pick<ItemRequest, "fields"> {
  let left = MAX_FIELDS_CHARS;
  const kept = Object.entries(record).filter(([name, value]) => {
    const chars = name.length + (typeof value === "string" ? value.length : (jsonOf(value)?.length ?? MAX_FIELD_CHARS));
    if (chars > MAX_FIELD_CHARS || chars > left) return false;
    left -= chars;
    return true;
  });
  return kept.length === 0 ? {} : { fields: Object.fromEntries(kept) };
}

/** A program's value may be no JSON. */
function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** The result of an attempt. `troubles`: what was reported to the user during the run. */
export function itemResult(
  claimed: ClaimedItem,
  result: RunResult,
  startedAt: Date | null,
  troubles: readonly string[],
): ItemResult {
  const { exitCode, output, usage, changeset } = result;
  return {
    ...unrunResult(claimed, isPending(result) ? "pending" : result.status),
    run: claimed.run,
    attempt: claimed.attempt,
    exitCode,
    output,
    error: explained(result, troubles),
    stderrLine: lastLines(result.stderr).at(-1) ?? null,
    startedAt: startedAt?.toISOString() ?? null,
    durationMs: startedAt === null ? 0 : Math.max(0, Date.now() - startedAt.getTime()),
    memoryBytesPeak: usage.memoryBytesPeak,
    ...(changeset === null ? {} : { changeset }),
  };
}

/** Why a run's result is no success although its worker succeeded: only its changes are not all applied. */
const OF_CHANGES: ReadonlySet<string> = new Set([
  "APPROVAL_DENIED",
  "APPROVAL_TIMED_OUT",
  "CHANGES_HELD",
  "CHANGES_REFUSED",
  "CHANGES_CONFLICT",
]);

interface Changed {
  readonly status: string;
  readonly changeset: RunResult["changeset"];
  readonly error: RunResult["error"];
}

/** Changes of a worker that succeeded wait for an answer. What a rule or a person denied does not wait. */
export function isPending({ status, changeset, error }: Changed): boolean {
  if (status !== "denied" && status !== "refused") return false;
  return changeset !== null && changeset.id !== null && changeset.counts.held > 0 && OF_CHANGES.has(error?.code ?? "");
}

/** `lost` and `failed` do not give the cause, so the message gets the reported troubles, or begins with the end of standard error. */
function explained({ status, error, stderr }: RunResult, troubles: readonly string[]): RunResult["error"] {
  if (error === null) return null;
  if (status === "lost" && troubles.length > 0)
    return { ...error, message: `${error.message} (${troubles.join("; ")})` };
  const words = HAS_LAST_WORDS.has(status)
    ? lastLines(stderr).join(" / ").slice(-MAX_LAST_CHARACTERS).toWellFormed()
    : "";
  return words === "" ? error : { ...error, message: `${words} (${error.message})` };
}

const MAX_LAST_LINES = 3;
const MAX_LAST_CHARACTERS = 500;

/** The last lines that are not empty. */
function lastLines(stderr: string): string[] {
  const lines = stderr
    .slice(-4 * MAX_LAST_CHARACTERS)
    .split("\n")
    .map((line) => line.trim().slice(-MAX_LAST_CHARACTERS).toWellFormed())
    .filter((line) => line !== "");
  return lines.slice(-MAX_LAST_LINES);
}

/** The result of an item whose output is that of an earlier one. Nothing else of that counts here: no run, no machine, no changes. */
export function cachedResult(item: Pick<ClaimedItem, "request">, { output }: ItemResult): ItemResult {
  return { ...unrunResult(item, "cached"), exitCode: 0, output };
}

/** The result of an item that did not run. */
export function unrunResult({ request }: Pick<ClaimedItem, "request">, status: string): ItemResult {
  return {
    index: request.index,
    key: request.key,
    status,
    run: null,
    attempt: 0,
    exitCode: null,
    output: null,
    error: null,
    stderrLine: null,
    fields: request.fields ?? {},
    startedAt: null,
    endedAt: new Date().toISOString(),
    durationMs: 0,
    memoryBytesPeak: null,
  };
}

/** For the user: a bug has ended the work on one item. */
export function lostText(key: string, bug: unknown): string {
  return `item ${key} is lost, other items continue: internal error: ${bugText(bug)}`;
}

/** Runs items: each in its own cell, or many in one cell that is scrubbed between items. */
export interface ItemExecutor extends AsyncDisposable {
  /** Every outcome is a result; rejects only for bugs. */
  run(job: Job): Promise<RunResult>;
}
