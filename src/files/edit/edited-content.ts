import { isUtf8 } from "node:buffer";
import { FileTooLargeError } from "../../sandbox/errors.ts";
import { MAX_EDIT_BYTES } from "../model/bounds.ts";
import type { Edit } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import { type ByteSource, readAll } from "../read/byte-source.ts";
import { utf16Of } from "../read/content-kind.ts";
import { applyEdits } from "./apply-edits.ts";

export interface EditedContent {
  readonly bytes: Buffer;
  readonly replacements: number;
  /** In how many places each edit was applied. */
  readonly places: readonly number[];
}

const UTF_16 = "it is UTF-16 text, and only UTF-8 can be edited. Read it, and write it anew as a whole.";

/** The content of an opened text file after the edits. A byte order mark is kept. */
export async function editedContent(source: ByteSource, path: string, edits: readonly Edit[]): Promise<EditedContent> {
  if (source.size > MAX_EDIT_BYTES) throw new FileTooLargeError(path, source.size, MAX_EDIT_BYTES);
  const whole = await readAll(source);
  if (utf16Of(whole) !== null) throw unfit("edit", path, UTF_16);
  if (!isUtf8(whole)) throw notText(path, null);
  const { text, places } = applyEdits(path, whole.toString(), edits);
  const bytes = Buffer.from(text);
  if (bytes.length > MAX_EDIT_BYTES) throw new FileTooLargeError(path, bytes.length, MAX_EDIT_BYTES);
  return { bytes, replacements: places.reduce((all, one) => all + one, 0), places };
}
