import type { SandboxError } from "../../sandbox/errors.ts";
import { unfit } from "../model/refusals.ts";

/** The way out for what is no text: a worker that has the tools for it gets the file as it is. */
export function notText(path: string, mimeType: string | null): SandboxError {
  const what = mimeType === null ? "it is not UTF-8 text" : `it is ${mimeType}, not text`;
  return unfit("read", path, `${what}. Pass it as an attachment to a worker that can handle it.`);
}
