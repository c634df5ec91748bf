/** Builds the images that are missing or stale. Prints nothing if there is nothing to do. */
import { join } from "node:path";
import { openEngine } from "../src/isolation/open-engine.ts";
import type { ImageProgress } from "../src/isolation/port/images.ts";
import { stateDirFrom } from "../src/state/state-dir.ts";

const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => stop.abort(new Error(`stopped by ${signal}`)));

try {
  await main();
} catch (error) {
  process.stderr.write(`corral: ${(error as Error).message}\n`);
  process.exitCode = 1;
}

async function main(): Promise<void> {
  const imagesDir = join(import.meta.dirname, "../images");
  const { images } = await openEngine({ stateDir: stateDirFrom(process.env), engineEnv: process.env });
  const statuses = await images.status(imagesDir);
  if (statuses.every(({ state }) => state === "present")) return;
  // The output of each program is shown only if a build fails.
  const onProgress = ({ image, step, text }: ImageProgress) => step || say(`${image}: ${text}`);
  await images.build({ imagesDir, env: process.env, onProgress, signal: stop.signal });
}

function say(line: string): void {
  process.stderr.write(`${line.length > 160 ? `${line.slice(0, 159)}…` : line}\n`);
}
