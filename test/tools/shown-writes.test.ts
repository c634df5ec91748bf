import { describe, expect, it } from "vitest";
import { ShownWrites, shownEffects, type WriteEffect } from "../../src/tools/shown-effects.ts";
import { at } from "../sandbox/sandboxes.ts";

const MIB = 1024 ** 2;

function created(name: string, text: string): WriteEffect {
  const content = Buffer.from(text);
  const after = { bytes: content.length, mode: null, content };
  return { kind: "write", path: at(`/w/${name}`), before: null, after };
}

describe("what a person sees of many files", () => {
  it("is a whole diff of each as long as there is room, and only that is agreed to", () => {
    const shown = new ShownWrites();
    for (const name of ["a", "b", "c"]) shown.add(created(name, `${name}\n`.repeat(200_000)));
    shown.add(created("small", "evil\n"));
    const { diff } = shown;
    expect(diff.length).toBeLessThan(MIB + 1000);
    expect(diff).toMatch(/create \/w\/b \(400000 bytes; not shown; SHA-256 /);
    expect(diff).toContain("+evil");
    const covered = ["a", "b", "c", "small"].filter((name) => shown.coveredAt(at(`/w/${name}`)) !== null);
    expect(covered).toEqual(["a", "small"]);
  });

  it("compares no more than a few MiB, and counts what it cannot name", () => {
    const shown = new ShownWrites();
    for (let index = 0; index < 5; index += 1) shown.add(created(`big${index}`, "x".repeat(2 * MIB)));
    expect(shown.diff.split("\n").at(-1)).toBe("create /w/big4 (2097152 bytes; not shown)");
    for (let index = 0; index < 30_000; index += 1) shown.add(created(`file-with-a-long-name-${index}`, "x"));
    expect(shown.diff.length).toBeLessThan(MIB + 1000);
    expect(shown.diff).toMatch(/\nand \d+ more files, which are not shown$/);
    expect(shown.coveredAt(at("/w/file-with-a-long-name-29999"))).toBeNull();
  });
});

describe("what a person sees of one file", () => {
  it("is all of its lines, also of very many", () => {
    const content = "\n".repeat(400_000);
    const { diff, covered } = shownEffects(
      { operation: "write", path: "/w/a", content },
      { effects: [created("a", content)], places: [] },
    );
    expect(diff.split("\n").length).toBeGreaterThan(400_000);
    expect(covered).toHaveLength(1);
  });
});
