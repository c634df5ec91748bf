import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { DeclarationError } from "./problem.ts";

/** Four bytes for each character that the parser accepts at most. */
const MAX_BYTES = 4 * 256 * 1024;

/**
 * The text of a declaration. Only of a regular file and only so much as the parser takes: a project may be a stranger's,
 * and what it calls `corral.yaml` a FIFO or an endless device. `shown`: the file as a person knows it.
 */
export async function readDeclarationFile(path: string, shown: string, maxBytes = MAX_BYTES): Promise<string> {
  const wrong = (message: string) => new DeclarationError([{ file: shown, line: 1, column: 1, path: "", message }]);
  // Not to wait for the other end of a FIFO.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const found = await file.stat();
  if (found.isDirectory()) throw wrong("is a folder, not a file");
  if (!found.isFile()) throw wrong("is not a regular file");
  if (found.size > maxBytes) throw wrong(`is larger than ${maxBytes} bytes`);
  return await file.readFile("utf8");
}
