import { parentPort, workerData } from "node:worker_threads";
import { type JsonSchema, schemaMismatch } from "./json-schema.ts";

/** What the thread is told: both as JSON, which is what a value was or becomes. */
export interface ThreadTask {
  readonly schema: JsonSchema;
  readonly json: string;
}

// A program of its own: it answers once, and ends. The build makes it a file beside whoever starts it.
const { schema, json } = workerData as ThreadTask;
parentPort?.postMessage(schemaMismatch(schema, JSON.parse(json)));
