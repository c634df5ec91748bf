import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

/** Where one session keeps the whole of what its commands printed; gone with it. */
export interface OutputDir extends AsyncDisposable {
  readonly path: string;
}

/** Below this process's own directory, so that it is reaped with it. Readable, for the cell's user is another one. */
export async function makeOutputDir(ownerDir: string, run: string): Promise<OutputDir> {
  const path = join(ownerDir, `${run}.out`);
  await mkdir(path, { mode: 0o755 });
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
