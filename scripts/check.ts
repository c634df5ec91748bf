/**
 * Runs the linter, the compiler and the tests, and stops at the first that fails, with its exit status. `npm test` runs
 * all tests; `npm run test:unit` passes `unit`, and runs the quick tests that need no Engine.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const modules = join(root, "node_modules");
const isUnit = process.argv[2] === "unit";
const CHECKS: readonly (readonly [what: string, ...command: string[]])[] = [
  ["lint", "@biomejs/biome/bin/biome", "check", "."],
  ["types", "typescript/bin/tsc", "--noEmit"],
  isUnit
    ? ["unit tests (no Engine; `npm test` runs all)", "vitest/vitest.mjs", "run", "--project", "unit"]
    : ["all tests: unit, then long and engine (on a real Engine)", "vitest/vitest.mjs", "run"],
];

for (const [what, program = "", ...args] of CHECKS) {
  process.stderr.write(`check: ${what}\n`);
  const { status, error } = spawnSync(process.execPath, [join(modules, program), ...args], {
    cwd: root,
    stdio: "inherit",
  });
  if (error) throw error;
  if (status !== 0) {
    process.stderr.write(`check: failed: ${what}\n`);
    process.exit(status ?? 1);
  }
}
