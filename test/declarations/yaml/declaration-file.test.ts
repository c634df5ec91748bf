import { execFileSync } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readDeclarationFile } from "../../../src/declarations/yaml/document.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";

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
