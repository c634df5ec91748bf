import { parentPort, workerData } from "node:worker_threads";
import { type JsonSchema, schemaMismatch } from "./json-schema.ts";

/** The input of the thread. */
export interface ThreadTask {
  readonly schema: JsonSchema;
  readonly json: string;
}

// A separate program: it answers once and ends. The build puts it next to the file that starts it.
const { schema, json } = workerData as ThreadTask;
parentPort?.postMessage(schemaMismatch(schema, JSON.parse(json)));
