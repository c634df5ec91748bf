import { z } from "zod";

/** For the main path of a tool. */
export const PATH_RULE = "Absolute, or relative to the working directory.";

/** A path as an LLM writes it. `what` describes it. */
export const pathField = (what: string) => z.string().min(1).max(4096).describe(what);

/** A commit as `git_stage` returned it. */
export const commitField = z
  .string()
  .regex(/^[0-9a-f]{40}$/)
  .describe("The commit's full hash, as returned by `git_stage`.");

/** Text that becomes content of a file. */
export const contentField = (what: string) => z.string().max(50_000_000).describe(what);
