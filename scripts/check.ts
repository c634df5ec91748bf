/** What `npm test` is: lint, types, tests, in that order, up to the first that fails. Its exit status is kept. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const modules = join(root, "node_modules");
const CHECKS: readonly (readonly string[])[] = [
  ["@biomejs/biome/bin/biome", "check", "."],
  ["typescript/bin/tsc", "--noEmit"],
  ["vitest/vitest.mjs", "run"],
];

for (const [program = "", ...args] of CHECKS) {
  const { status, error } = spawnSync(process.execPath, [join(modules, program), ...args], {
    cwd: root,
    stdio: "inherit",
  });
  if (error) throw error;
  if (status !== 0) {
    process.stderr.write(`check: ${program.split("/").at(-1)} ${args.join(" ")} failed\n`);
    process.exit(status ?? 1);
  }
}
