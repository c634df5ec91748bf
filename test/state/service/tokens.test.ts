import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { writeAtomically } from "../../../src/platform/write-file.ts";
import { Tokens } from "../../../src/state/service/tokens.ts";
import { statePaths } from "../../../src/state/state-dir.ts";

let dir: string;
let tokens: Tokens;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-tokens-"));
  tokens = new Tokens(dir);
});
afterEach(async () => await rm(dir, { recursive: true }));

const value = (letter: string): string => `corral_${letter.repeat(43)}`;

describe("tokens", () => {
  it.each(["--token-file", "-x", "", "a\nb", "x".repeat(101)])("have no name such as %j", async (name) => {
    await expect(tokens.create(name, ["read"])).rejects.toThrow(RangeError);
    expect(await tokens.list()).toEqual([]);
  });

  it("take the token of a file in place of the one before, also where there is no room for more", async () => {
    await tokens.adopt("--token-file", ["admin"], value("a"));
    const [one] = await tokens.list();
    const others = Array.from({ length: 999 }, (_, n) => ({
      ...one,
      id: String(n),
      name: `n${n}`,
      sha256: "0".repeat(64),
    }));
    const stored = { ...one, sha256: "1".repeat(64) };
    await writeAtomically(join(statePaths(dir).service, "tokens.json"), JSON.stringify([...others, stored]));
    await tokens.adopt("--token-file", ["admin"], value("b"));
    expect((await tokens.list()).filter(({ name }) => name === "--token-file")).toHaveLength(1);
    expect(await tokens.find(value("b"))).toMatchObject({ name: "--token-file" });
    await expect(tokens.create("more", ["read"])).rejects.toThrow(/1000 tokens/);
  });
});
