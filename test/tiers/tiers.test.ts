import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/connect.ts";
import { LONG, namedIn, tierOf, tiersOf } from "./tiers.ts";

const ROOT = join(import.meta.dirname, "../..");
const CONNECTS = "src/isolation/engine/connect.ts";

describe("the tier of a test", () => {
  it.each([
    ["engine", "it loads what connects, through others", { "test/a.test.ts": ["test/b.ts"], "test/b.ts": [CONNECTS] }],
    ["engine", "it uses the package", {}, "test/package.test.ts"],
    ["unit", "it uses the engine in memory", { "test/a.memory.test.ts": [CONNECTS] }, "test/a.memory.test.ts"],
    ["unit", "it loads nothing of that", { "test/a.test.ts": ["src/sandbox/derive.ts"] }],
    ["long", "it is known to be long", {}, LONG[0]],
    ["engine", "it is long and connects", { [LONG[0] ?? ""]: [CONNECTS] }, LONG[0]],
  ] as const)("is %s if %s", (tier, _, loads: Record<string, readonly string[]>, file = "test/a.test.ts") => {
    expect(tierOf(file, (each) => loads[each] ?? [])).toBe(tier);
  });

  it.each([
    ['import { a } from "../src/a.ts";', ["src/a.ts"]],
    ['import type { A } from "../src/a.ts";\nimport { b } from "./b.ts";', ["test/b.ts"]],
    ['const { a } = await import("../src/a.ts");', ["src/a.ts"]],
    ['fork(join(import.meta.dirname, "child.ts"));', ["test/child.ts"]],
    ['join(ROOT, "src/cli/corral.ts")', ["src/cli/corral.ts"]],
    ['join(base, "c/src/cli/corral.ts")', ["src/cli/corral.ts"]],
  ])("follows %s", (code, named) => {
    expect(namedIn(code, "test/a.test.ts")).toEqual(named);
  });

  it("is told for every file of this repository", () => {
    const { unit, long, engine } = tiersOf(ROOT);
    expect(unit).toContain("test/sandbox/derive.test.ts");
    expect(engine).toEqual(expect.arrayContaining(["test/cli/run.test.ts", "test/tiers/tiers.test.ts"]));
    expect(long).toEqual([...LONG].sort());
    expect(LONG.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
  });
});

it("a tier without an Engine fails what asks for one, and names the tier", async () => {
  const before = process.env.DOCKER_HOST;
  try {
    await import("./no-engine.ts");
    await expect(connect(process.env)).rejects.toThrow("no-engine-in-this-tier");
  } finally {
    if (before === undefined) delete process.env.DOCKER_HOST;
    else process.env.DOCKER_HOST = before;
  }
});
