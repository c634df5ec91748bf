import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { FAILED_FILES } from "./last-lines.ts";

const ROOT = join(import.meta.dirname, "../..");

it("a run names at its end the tests that passed only when they were repeated, and then what failed, with why", async () => {
  // Below the root, for the packages.
  const dir = await mkdtemp(join(ROOT, "node_modules/.last-lines-"));
  try {
    await writeFile(
      join(dir, "some.test.ts"),
      `import { expect, it } from "vitest";
      let tries = 0;
      it("fails once", () => { tries += 1; expect(tries, "how often").toBe(2); });
      it("passes", async () => {
        setTimeout(() => { throw new Error("late"); });
        await new Promise((resolve) => setTimeout(resolve, 50));
      });
      it("fails", () => { throw new Error("always\\nsecond line"); });`,
    );
    await writeFile(join(dir, "unloaded.test.ts"), `throw new Error("not loaded");`);
    const config = `import { LastLines } from ${JSON.stringify(join(ROOT, "test/tiers/last-lines.ts"))};
      export default { test: { include: ["*.test.ts"], exclude: [], retry: { count: 1 }, fileParallelism: false, reporters: ["default", new LastLines()] } };`;
    await writeFile(join(dir, "vitest.config.ts"), config);
    const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
    const env = { ...process.env, [FAILED_FILES]: join(dir, "failed.json") };
    const run = (...files: string[]) =>
      spawnSync(process.execPath, [vitest, "run", ...files], { cwd: dir, encoding: "utf8", env });
    const listed = async () => JSON.parse(await readFile(join(dir, "failed.json"), "utf8"));
    const { status, stderr } = run();
    expect([status, await listed()]).toEqual([1, []]);
    expect([run("unloaded").status, await listed()]).toEqual([1, [{ project: "", file: "unloaded.test.ts" }]]);
    const lines = stderr.trim().split("\n");
    expect(lines.slice(lines.findIndex((line) => line.startsWith("check:")))).toEqual([
      "check: passed only when repeated (1):",
      expect.stringMatching(/^ {2} *some\.test\.ts > fails once$/),
      "    how often: expected 1 to be 2 // Object.is equality",
      "check: failed (3):",
      expect.stringMatching(/^ {2} *some\.test\.ts > fails$/),
      "    always",
      "    second line",
      "    always",
      "    second line",
      expect.stringMatching(/^ {2} *unloaded\.test\.ts$/),
      "    not loaded",
      "  an error outside of tests",
      "    late",
    ]);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
