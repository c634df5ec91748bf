import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

it("a run names at its end the tests that passed only when they were repeated, with why they failed", async () => {
  // Below the root, for the packages.
  const dir = await mkdtemp(join(ROOT, "node_modules/.retried-"));
  try {
    await writeFile(
      join(dir, "some.test.ts"),
      `import { expect, it } from "vitest";
      let tries = 0;
      it("fails once", () => { tries += 1; expect(tries, "how often").toBe(2); });
      it("passes", () => {});`,
    );
    const config = `import { RetriedReporter } from ${JSON.stringify(join(ROOT, "test/tiers/retried.ts"))};
      export default { test: { include: ["*.test.ts"], exclude: [], retry: 1, reporters: [new RetriedReporter()] } };`;
    await writeFile(join(dir, "vitest.config.ts"), config);
    const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
    const args = ["-c", `"$0" "$1" run 2>&1`, process.execPath, vitest];
    const said = execFileSync("sh", args, { cwd: dir, encoding: "utf8" });
    expect(said.trim().split("\n")).toEqual([
      "check: passed only when repeated (1):",
      expect.stringMatching(/^ {2} *some\.test\.ts > fails once$/),
      "    how often: expected 1 to be 2 // Object.is equality",
    ]);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
