import { z } from "zod";

/** A path as an LLM writes it: absolute, or relative to the working directory. */
export const pathField = (what: string) => z.string().min(1).max(4096).describe(what);

/** Text that becomes a file's content. */
export const contentField = (what: string) => z.string().max(50_000_000).describe(what);
