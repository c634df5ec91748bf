/**
 * Runs the linter, the compiler and the tests, and stops at the first that fails, with its exit status. `npm test` runs
 * all tests, and builds the images that are missing while it runs what needs none. `npm run test:unit` passes `unit`, and
 * runs the quick tests that need no Engine.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const modules = join(root, "node_modules");
const isUnit = process.argv[2] === "unit";

const images = isUnit ? null : begun(join(root, "scripts/images.ts"));
await pass("lint", "@biomejs/biome/bin/biome", "check", ".");
await pass("types", "typescript/bin/tsc", "--noEmit");
await pass("unit tests (no Engine)", "vitest/vitest.mjs", "run", "--project", "unit");
if (images !== null) {
  await ended("images", images);
  await pass("all other tests (on a real Engine)", "vitest/vitest.mjs", "run", "--project", "!unit");
}

async function pass(what: string, program: string, ...args: string[]): Promise<void> {
  process.stderr.write(`check: ${what}\n`);
  await ended(what, begun(join(modules, program), ...args));
}

interface Begun {
  readonly child: ChildProcess;
  readonly status: Promise<number>;
}

function begun(...args: string[]): Begun {
  const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit" });
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  child.once("error", reject).once("exit", (status) => resolve(status ?? 1));
  return { child, status: promise };
}

async function ended(what: string, { status: promise }: Begun): Promise<void> {
  const status = await promise;
  if (status === 0) return;
  process.stderr.write(`check: failed: ${what}\n`);
  images?.child.kill();
  await images?.status;
  process.exit(status);
}
