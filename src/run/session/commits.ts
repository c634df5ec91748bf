import PQueue from "p-queue";
import type { Stage } from "../../changes/stage.ts";
import type { CommitAnswer } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { commitSoFar } from "../changes/commit.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/** Each is written down in the audit trail with its changes. */
const MAX_COMMITS = 500;

/** The commits of one session, one after another: each is compared with what the one before has left. */
export class Commits {
  readonly #job: Job;
  readonly #stage: Stage;
  readonly #env: RunEnvironment;
  readonly #queue = new PQueue({ concurrency: 1 });
  /** The session's end counts as the first. */
  #count = 1;

  constructor(job: Job, stage: Stage, env: RunEnvironment) {
    this.#job = job;
    this.#stage = stage;
    this.#env = env;
  }

  /** Applies what was changed so far, as far as somebody agrees to it. */
  async next(signal: AbortSignal): Promise<CommitAnswer> {
    return await this.#queue.add(async () => {
      signal.throwIfAborted();
      if (this.#count > MAX_COMMITS) throw new ToolRefusal("COMMIT_LIMIT", TOO_MANY);
      this.#count += 1;
      return await commitSoFar(this.#job, this.#stage, this.#count, this.#env, signal);
    });
  }
}

const TOO_MANY = `A run commits at most ${MAX_COMMITS} times; the rest is applied at its end.`;
