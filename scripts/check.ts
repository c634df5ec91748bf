/**
 * Runs the linter, and the compiler beside the unit tests, then all other tests; stops at the first that fails, with its exit status. `npm test` runs
 * all tests, and builds the images that are missing while it runs what needs none. Where runc cannot make cells, all of them run
 * on the Engine, once. `npm run test:unit` passes `unit`, and runs the quick tests that need no Engine.
 *
 * Test files that fail beside others, on a machine that is busy with them, run once more, alone: what fails there too has failed. The last lines
 * name both kinds.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEngine } from "../src/isolation/open-engine.ts";
import type { Driving } from "../src/isolation/port/engine.ts";
import { FAILED_FILES, type FailedFile } from "../test/tiers/last-lines.ts";

const root = join(import.meta.dirname, "..");
const modules = join(root, "node_modules");
const running = new Set<ChildProcess>();
/** With more than these, the tests are not noisy but broken. */
const MOST_REPEATED = 6;
const isUnit = process.argv[2] === "unit";

const images = isUnit ? null : begun(join(root, "scripts/images.ts"));
await pass("lint", "@biomejs/biome/bin/biome", "check", ".");
// The compiler uses one processor, and prints nothing unless it fails.
await Promise.all([typed(), tests("unit tests (no Engine)", "unit")]);
if (images !== null) {
  await ended("images", images);
  const { driver, why } = await driving();
  if (driver !== "runc") {
    process.stderr.write(`check: no tests on cells of runc: ${why}\n`);
    process.env.CORRAL_TESTS = "engine";
  }
  await tests(`all other tests (on a real Engine${driver === "runc" ? ", and on runc" : ""})`, "!unit");
}

async function typed(): Promise<void> {
  // Checkers that work at the same time check much of it twice: two processors are quicker with one, beside the tests.
  await pass("types", "typescript/bin/tsc", "--noEmit", "--checkers", "1");
  await pass("types of the page", "typescript/bin/tsc", "--noEmit", "--checkers", "1", "-p", "tsconfig.web.json");
}

async function pass(what: string, program: string, ...args: string[]): Promise<void> {
  process.stderr.write(`check: ${what}\n`);
  await ended(what, begun(join(modules, program), ...args));
}

async function tests(what: string, project: string): Promise<void> {
  process.stderr.write(`check: ${what}\n`);
  const dir = await mkdtemp(join(tmpdir(), "corral-check-"));
  try {
    const list = join(dir, "failed.json");
    const vitest = (...args: string[]) => begun(join(modules, "vitest/vitest.mjs"), "run", ...args);
    process.env[FAILED_FILES] = list;
    const status = await vitest("--project", project);
    delete process.env[FAILED_FILES];
    if (status === 0) return;
    const failed = await failedFiles(list);
    if (failed === null || failed.length > MOST_REPEATED) await ended(what, Promise.resolve(status));
    for (const { project, file } of failed ?? []) {
      process.stderr.write(`check: ${project} ${file} failed beside others; once more, alone\n`);
      await ended(`${what}: ${project} ${file}, alone too`, vitest("--project", project, file));
    }
    const names = failed?.map(({ project, file }) => `  ${project} ${file}`).join("\n");
    process.stderr.write(`check: passed only alone:\n${names}\n`);
  } finally {
    await rm(dir, { recursive: true });
  }
}

/** Null where something failed that is no file's. */
async function failedFiles(list: string): Promise<readonly FailedFile[] | null> {
  const text = await readFile(list, "utf8").catch(() => "[]");
  const failed = JSON.parse(text) as readonly FailedFile[];
  return failed.length === 0 ? null : failed;
}

/** What makes the cells of the tests `runc`. */
async function driving(): Promise<Driving> {
  const stateDir = await mkdtemp(join(tmpdir(), "corral-check-"));
  try {
    const engineEnv = { ...process.env, CORRAL_DRIVER: "prefer-runc" };
    const driving = await (await openEngine({ stateDir, engineEnv })).driving("runs");
    return driving;
  } finally {
    await rm(stateDir, { recursive: true });
  }
}

function begun(...args: string[]): Promise<number> {
  const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit" });
  running.add(child);
  return new Promise((resolve, reject) => {
    child.once("error", reject).once("exit", (status) => {
      running.delete(child);
      resolve(status ?? 1);
    });
  });
}

async function ended(what: string, begun: Promise<number>): Promise<void> {
  const status = await begun;
  if (status === 0) return;
  process.stderr.write(`check: failed: ${what}\n`);
  const ends = [...running].map((child) => once(child, "exit"));
  for (const child of running) child.kill();
  await Promise.all(ends);
  process.exit(status);
}
