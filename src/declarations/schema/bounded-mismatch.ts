import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import PQueue from "p-queue";
import { hasCode } from "../../platform/errno.ts";
import { type JsonSchema, schemaMismatch } from "./json-schema.ts";
import type { ThreadTask } from "./schema-thread.ts";

/** The time limit for one value. A valid value of the greatest size takes a fraction of it. */
const LIMIT_MS = 5000;
const LIMIT_MEGABYTES = 512;
/** A fleet's answers come at once; more threads would only take time from each other. */
const MAX_THREADS = 4;
/** Up to this, and with none of the keywords below, a check takes no noticeable time. */
const MAX_CHARACTERS_IN_PLACE = 10_000;
/** These backtrack, compare all pairs, or recurse: a small value can keep them busy forever. */
const COSTLY = /"(?:pattern|patternProperties|uniqueItems|\$ref|\$dynamicRef)":/;

const TOO_BIG = `it could not be checked within ${LIMIT_MEGABYTES} MB of memory`;

/** Checks values, as many at once as there are threads for: what uses it shares those. */
export class BoundedChecks {
  readonly #threads = new PQueue({ concurrency: MAX_THREADS });
  readonly #limitMs: number;

  constructor({ limitMs = LIMIT_MS }: { readonly limitMs?: number } = {}) {
    this.#limitMs = limitMs;
  }

  /**
   * What of a value is not as the schema asks, as `schemaMismatch` has it. Values come from cells and models, and may be made
   * to be checked forever: a check that could take long runs on its own thread, which is ended at a limit. A value that
   * cannot be checked within it does not match. Rejects with the reason of `signal` if that is aborted.
   */
  async mismatch(schema: JsonSchema, value: unknown, signal: AbortSignal = NEVER): Promise<string | null> {
    const json: string | undefined = JSON.stringify(value);
    const isCheap = json === undefined || json.length <= MAX_CHARACTERS_IN_PLACE;
    if (isCheap && !COSTLY.test(JSON.stringify(schema))) return schemaMismatch(schema, value);
    return await this.#threads.add(() => onThread({ schema, json: json ?? "null" }, this.#limitMs, signal), { signal });
  }
}

const NEVER = new AbortController().signal;

async function onThread(task: ThreadTask, limitMs: number, signal: AbortSignal): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  // The source, the compiled library and the bundled command line each have it beside this file, under their own ending.
  const program = new URL(`./schema-thread${extname(import.meta.url)}`, import.meta.url);
  const thread = new Worker(program, {
    workerData: task,
    env: {},
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: LIMIT_MEGABYTES },
  });
  const timer = setTimeout(() => resolve(`it could not be checked within ${limitMs / 1000} s`), limitMs);
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  thread.once("message", resolve);
  thread.once("error", (error: unknown) => {
    if (hasCode(error, "ERR_WORKER_OUT_OF_MEMORY")) resolve(TOO_BIG);
    else reject(error);
  });
  thread.once("exit", () => reject(new Error("the thread that checks values against schemas ended without an answer")));
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
    await thread.terminate();
  }
}
