import { execFileSync } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readDeclarationFile } from "../../../src/declarations/yaml/document.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";
import { parseDuration, parseSize } from "../../../src/declarations/yaml/shape.ts";

describe("the file of a declaration", () => {
  let dir = "";
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "corral-decl-"));
  });
  afterAll(() => rm(dir, { recursive: true }));

  it("is read whole", async () => {
    await writeFile(join(dir, "a.yaml"), "version: 1\n# é\n");
    expect(await readDeclarationFile(join(dir, "a.yaml"), "a.yaml")).toBe("version: 1\n# é\n");
  });

  it.each([
    ["a FIFO, which nobody may ever write to", (file: string) => void execFileSync("mkfifo", [file])],
    ["an endless device", (file: string) => symlink("/dev/zero", file)],
    ["larger than a parser takes", (file: string) => writeFile(file, Buffer.alloc(5_000_000, 0x23))],
  ])("is not %s", async (name, make) => {
    const file = join(dir, name.replaceAll(" ", "-"));
    await make(file);
    const reading = readDeclarationFile(file, "corral.yaml");
    await expect(reading).rejects.toThrow(DeclarationError);
    await expect(reading).rejects.toThrow(/^corral\.yaml:1:1/);
  });
});

describe("units in YAML files", () => {
  it.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["5m", 300_000],
    ["1h", 3_600_000],
  ])("reads the duration %s as %d milliseconds", (text, ms) => expect(parseDuration(text)).toBe(ms));

  it.each(["30", 30, "0s", "-1s", "1.5h", "1 h", "1d", "", "s", null, ["30s"], "9999999999s", "1S"])(
    "refuses the duration %j",
    (raw) => expect(parseDuration(raw)).toBeNull(),
  );

  it.each([
    ["512k", 524_288],
    ["64m", 67_108_864],
    ["1g", 1_073_741_824],
    ["100", 100],
    [100, 100],
  ])("reads the size %j as %d bytes", (raw, bytes) => expect(parseSize(raw)).toBe(bytes));

  it.each(["0", 0, -1, 1.5, "1.5g", "1kb", "1G", "", [1], null, true, "999999999999999g", 1e300])(
    "refuses the size %j",
    (raw) => expect(parseSize(raw)).toBeNull(),
  );
});
