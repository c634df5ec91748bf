import { spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const MODULE = join(import.meta.dirname, "../../src/cli/compiled-files.ts");

/** What a new process prints that was prepared for this command; `null`: for none. */
function printed(command: string | null, code: string): string {
  const made = command === null ? "" : `prepareShort(${JSON.stringify(command)});`;
  const start = `import(${JSON.stringify(MODULE)}).then(async ({ prepareShort }) => { ${made} ${code} });`;
  const { stdout, stderr } = spawnSync(process.execPath, ["-e", start], { encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout;
}

const ROOM = `console.log(require("node:v8").getHeapSpaceStatistics().find((space) => space.space_name === "new_space").space_size)`;

it("has zod compile no shape of an object for a short command", () => {
  const zod = JSON.stringify(import.meta.resolve("zod"));
  const compiled = `const { z } = await import(${zod}); const was = Function; let made = 0;
    globalThis.Function = function (...given) { made += 1; return new was(...given); };
    z.object({ a: z.string() }).parse({ a: "" }); console.log(made);`;
  expect(printed("run", compiled)).toBe("0\n");
  expect(printed("serve", compiled)).not.toBe("0\n");
});

describe("room for the objects of a short command", () => {
  it("is there at once, and not for a command that may run for hours", () => {
    expect(Number(printed("run", ROOM))).toBeGreaterThanOrEqual(8 * 1024 ** 2);
    for (const lasting of ["serve", "map", "fleet", "mcp"])
      expect(Number(printed(lasting, ROOM)), lasting).toBeLessThan(8 * 1024 ** 2);
  });

  it("is made without a setting that stays: what other processes compiled is still taken", async () => {
    const dir = await mkdtemp(join(tmpdir(), "corral-short-"));
    const script = `const { Script } = require("node:vm"); const fs = require("node:fs"); const file = ${JSON.stringify(join(dir, "form"))};`;
    try {
      printed(null, `${script} fs.writeFileSync(file, new Script("(x) => x + 1").createCachedData());`);
      const taken = `${script} console.log(new Script("(x) => x + 1", { cachedData: fs.readFileSync(file) }).cachedDataRejected);`;
      expect(printed("run", taken)).toBe("false\n");
      const other = `require("node:v8").setFlagsFromString("--semi-space-growth-factor=32"); ${taken}`;
      expect(printed(null, other)).toBe("true\n");
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
});
