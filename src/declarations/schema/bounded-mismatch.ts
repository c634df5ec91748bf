import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import PQueue from "p-queue";
import { hasCode } from "../../platform/errno.ts";
import { type JsonSchema, schemaMismatch } from "./json-schema.ts";
import type { ThreadTask } from "./schema-thread.ts";

/** How long one value may be checked: a sound one of the greatest size takes a fraction of it. */
const LIMIT_MS = 5000;
const LIMIT_MEGABYTES = 512;
/** A fleet's answers come at once; more threads than this would only take the limit from each other. */
const MAX_THREADS = 4;
/** Up to this, and with none of the keywords below, a check takes no time that anybody would notice. */
const MAX_CHARACTERS_IN_PLACE = 10_000;
/** Backtracks, compares each with each, goes on in itself: a small value can keep these busy for ever. */
const COSTLY = /"(?:pattern|patternProperties|uniqueItems|\$ref|\$dynamicRef)":/;

const TOO_LONG = `it could not be checked within ${LIMIT_MS / 1000} s`;
const TOO_BIG = `it could not be checked within ${LIMIT_MEGABYTES} MB of memory`;

/** Checks values, as many at once as there are threads for: what uses it shares those. */
export class BoundedChecks {
  readonly #threads = new PQueue({ concurrency: MAX_THREADS });

  /**
   * What of a value is not as the schema asks, as `schemaMismatch` has it. Values come from cells and models, and may be made
   * to be checked for ever: what could take long is done on a thread of its own, which is ended at a limit. A value that
   * cannot be checked within it does not match. Rejects with the reason of `signal`, where nobody wants to know any more.
   */
  async mismatch(schema: JsonSchema, value: unknown, signal: AbortSignal = NEVER): Promise<string | null> {
    const json: string | undefined = JSON.stringify(value);
    const isCheap = json === undefined || json.length <= MAX_CHARACTERS_IN_PLACE;
    if (isCheap && !COSTLY.test(JSON.stringify(schema))) return schemaMismatch(schema, value);
    return await this.#threads.add(() => onThread({ schema, json: json ?? "null" }, signal), { signal });
  }
}

const NEVER = new AbortController().signal;

async function onThread(task: ThreadTask, signal: AbortSignal): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  // The source, the compiled library and the bundled command line each have it beside this file, under their own ending.
  const program = new URL(`./schema-thread${extname(import.meta.url)}`, import.meta.url);
  const thread = new Worker(program, {
    workerData: task,
    env: {},
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: LIMIT_MEGABYTES },
  });
  const timer = setTimeout(() => resolve(TOO_LONG), LIMIT_MS);
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
