import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openScript } from "../../../src/agent/open-script.ts";

describe("the file of a script", () => {
  let dir = "";
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "corral-script-"));
  });
  afterAll(() => rm(dir, { recursive: true }));

  it("may be a transcript as long as one is kept, with all that tools answered in it", async () => {
    const result = JSON.stringify({ type: "result", text: "x".repeat(200_000) });
    const lines = ['{"type":"answer","say":"I look."}', ...Array(50).fill(result), '{"type":"answer","say":"Done."}'];
    await writeFile(join(dir, "long.jsonl"), lines.join("\n"));
    expect(await openScript("long.jsonl", dir)).toMatchObject({
      name: "script/long.jsonl",
      price: { input: 0, output: 0 },
    });
  });

  it.each([
    ["long.yaml", `# ${"x".repeat(2_000_000)}`, "is larger than"],
    ["broken.yaml", "- shout: x", "unknown key `shout`"],
    ["broken.jsonl", "{", "is not JSON"],
  ])("cannot be %s", async (name, text, why) => {
    await writeFile(join(dir, name), text);
    await expect(openScript(name, dir)).rejects.toMatchObject({
      code: "SCRIPT_FAILED",
      message: expect.stringContaining(why),
    });
  });

  it("must be there", async () => {
    await expect(openScript("nowhere.yaml", dir)).rejects.toMatchObject({
      message: "The script nowhere.yaml cannot be used: it does not exist",
    });
  });
});
