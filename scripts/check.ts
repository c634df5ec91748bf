/**
 * Runs the linter, the compiler and the tests, and stops at the first that fails, with its exit status. `npm test` runs
 * all tests, and builds the images that are missing while it runs what needs none. Where runc cannot make cells, all of them run
 * on the Engine, once. `npm run test:unit` passes `unit`, and runs the quick tests that need no Engine.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEngine } from "../src/isolation/open-engine.ts";
import type { Driving } from "../src/isolation/port/engine.ts";
import { letKeptImagesGo } from "../test/run/kept-for-runc.ts";

const root = join(import.meta.dirname, "..");
const modules = join(root, "node_modules");
const isUnit = process.argv[2] === "unit";

const images = isUnit ? null : begun(join(root, "scripts/images.ts"));
await pass("lint", "@biomejs/biome/bin/biome", "check", ".");
await pass("types", "typescript/bin/tsc", "--noEmit");
await pass("types of the page", "typescript/bin/tsc", "--noEmit", "-p", "tsconfig.web.json");
await pass("unit tests (no Engine)", "vitest/vitest.mjs", "run", "--project", "unit");
if (images !== null) {
  await ended("images", images);
  const { driver, why } = await driving();
  if (driver !== "runc") {
    process.stderr.write(`check: no tests on cells of runc: ${why}\n`);
    process.env.CORRAL_TESTS = "engine";
  }
  await pass(
    `all other tests (on a real Engine${driver === "runc" ? ", and on runc" : ""})`,
    "vitest/vitest.mjs",
    "run",
    "--project",
    "!unit",
  );
}

async function pass(what: string, program: string, ...args: string[]): Promise<void> {
  process.stderr.write(`check: ${what}\n`);
  await ended(what, begun(join(modules, program), ...args));
}

/** What makes the cells of this machine. */
async function driving(): Promise<Driving> {
  const stateDir = await mkdtemp(join(tmpdir(), "corral-check-"));
  try {
    const driving = await (await openEngine({ stateDir, engineEnv: process.env })).driving();
    await letKeptImagesGo(stateDir, process.env);
    return driving;
  } finally {
    await rm(stateDir, { recursive: true });
  }
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
