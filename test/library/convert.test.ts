import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type ConvertedFile, convert } from "../../src/index.ts";
import { giveGate } from "../tiers/give-gate.ts";

describe("convert", () => {
  it("makes texts of files, and says of each what became of it", async () => {
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    try {
      await giveGate(join(base, "s"));
      await writeFile(join(base, "a.txt"), "words\n");
      await writeFile(join(base, "b.pdf"), "%PDF-1.4\n");
      const ended: ConvertedFile[] = [];
      const how = { to: "text", out: join(base, "out"), stateDir: join(base, "s"), env: process.env } as const;
      const files = [join(base, "a.txt"), join(base, "b.pdf")];
      const onFile = (file: ConvertedFile): void => void ended.push(file);
      expect(await convert(files, { ...how, onFile })).toEqual({ done: 1, reasons: { damaged: 1 }, isWhole: true });
      expect(ended.map(({ file, verdict }) => [file, verdict]).toSorted()).toEqual([
        ["a.txt", "done"],
        ["b.pdf", "not possible"],
      ]);
      expect(await readFile(join(base, "out/a.txt/text.txt"), "utf8")).toContain("words");
    } finally {
      await rm(base, { recursive: true, force: true });
    }
  });

  it("refuses what is misspelt, missing or in its own way, before anything runs", async () => {
    const wrong = { to: "text", out: "/tmp/x", dip: 1 } as unknown as Parameters<typeof convert>[1];
    await expect(convert("a", wrong)).rejects.toThrow("convert has no `dip`, did you mean `dpi`?");
    await expect(convert("a", { to: "words" as "text", out: "x" })).rejects.toThrow("must be one of: text, pdf");
    const missing = convert("/nowhere/at-all", { to: "text", out: join(tmpdir(), "corral-convert-none") });
    await expect(missing).rejects.toMatchObject({ code: "CONVERSION" });
  });
});
