import type { ToolResult } from "../../tools/run-tool.ts";
import type { RunEnvironment } from "../model/environment.ts";
import { type Job, placeOf } from "../model/job.ts";
import { toolUsed } from "./tool-record.ts";

/** Of one session; a loop may use as many tools as it likes. */
const MAX_RECORDS = 10_000;

/** What a session's tools are written down by. Nobody waits for the disk; what cannot be written is told to a person. */
export class ToolRecords {
  readonly #job: Job;
  readonly #env: Pick<RunEnvironment, "audit" | "emit">;
  #count = 0;

  constructor(job: Job, env: Pick<RunEnvironment, "audit" | "emit">) {
    this.#job = job;
    this.#env = env;
  }

  add(tool: string, rawInput: unknown, result: ToolResult): void {
    this.#count += 1;
    if (this.#count > MAX_RECORDS) return;
    const note = this.#count === MAX_RECORDS ? "further tools of this session are not recorded" : undefined;
    const { audit, emit } = this.#env;
    audit.append({ ...toolUsed(this.#job, tool, rawInput, result), note }).catch((error: Error) => {
      emit({ type: "trouble", ...placeOf(this.#job), detail: error.message });
    });
  }
}
