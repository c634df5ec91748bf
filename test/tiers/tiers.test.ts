import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { ENGINE_ONLY, filesByDriver, ONCE } from "./drivers.ts";
import { LONG, namedIn, SLOW, tierOf, tiersOf } from "./tiers.ts";

const ROOT = join(import.meta.dirname, "../..");
const CONNECTS = "src/isolation/engine/open.ts";

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
    expect([...LONG, ...SLOW].filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
    expect(SLOW.filter((file) => !engine.includes(file))).toEqual([]);
  });
});

describe("the files of each driver", () => {
  const { engine: tier } = tiersOf(ROOT);
  const { runc, engine } = filesByDriver(tier, { hasRunc: true });

  it("are together all of the tier, and every attack and agreement is on both, but for those with a reason", () => {
    expect([...new Set([...runc, ...engine])].sort()).toEqual([...tier].sort());
    const twice = runc.filter((file) => engine.includes(file));
    const asked = tier.filter((file) => /^test\/(attacks|agreement)\//.test(file));
    expect(asked.filter((file) => !twice.includes(file) && !ENGINE_ONLY[file] && !ONCE[file])).toEqual([]);
    expect(twice).toEqual(expect.arrayContaining(["test/attacks/escape.test.ts", "test/run/session/cell.test.ts"]));
  });

  it("are not on the other driver if there is a reason, and each of those with one is a test of the tier", () => {
    const named = [...Object.keys(ENGINE_ONLY), ...Object.keys(ONCE)];
    expect(named.filter((file) => !tier.includes(file))).toEqual([]);
    expect(runc.filter((file) => ENGINE_ONLY[file])).toEqual([]);
    expect(engine.filter((file) => ONCE[file])).toEqual([]);
  });

  it("are each there once where runc makes no cells", () => {
    const alone = filesByDriver(tier, { hasRunc: false });
    expect([...alone.runc, ...alone.engine].sort()).toEqual([...tier].sort());
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
