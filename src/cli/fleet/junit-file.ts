import { type FileHandle, open } from "node:fs/promises";
import { resolve } from "node:path";
import { inChunks } from "../../fleet/report/results-export.ts";
import { type FleetPlace, fleetJunit } from "../../operations/fleets.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/**
 * The file of `--junit`, empty until the fleet has ended: a place that cannot be written is an error before anything runs, and what an earlier
 * fleet left there is never taken for the report of this one.
 *
 * @throws UsageError
 */
export async function openJunitFile(path: string, { cwd }: Pick<Terminal, "cwd">): Promise<FileHandle> {
  return await open(resolve(cwd, path), "w").catch((error: Error) => {
    throw new UsageError(`--junit ${path}: ${error.message}`, { cause: error });
  });
}

export async function writeJunit(file: FileHandle, fleet: string, place: FleetPlace): Promise<void> {
  for await (const piece of inChunks(await fleetJunit(place, fleet))) await file.appendFile(piece);
}
