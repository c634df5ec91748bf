import { describe, expect, it } from "vitest";
import type { ItemResult } from "../../../src/fleet/model/item.ts";
import { inSizeClasses } from "../../../src/operations/convert/conversion.ts";
import { ConversionCounts, conversionReport, convertedFile } from "../../../src/operations/convert/converted.ts";

function result(more: Partial<ItemResult>): ItemResult {
  return {
    index: 0,
    key: "sub/a.pdf",
    status: "succeeded",
    run: "0123456789ab",
    attempt: 1,
    exitCode: 0,
    output: null,
    error: null,
    stderrLine: null,
    fields: { file: "sub/a.pdf" },
    startedAt: null,
    endedAt: "2026-01-01T00:00:00.000Z",
    durationMs: 1,
    memoryBytesPeak: null,
    ...more,
  };
}

const verdictOf = (more: Partial<ItemResult>) => {
  const { verdict, reason } = convertedFile(result(more)) ?? {};
  return [verdict, reason];
};

describe("what became of a file", () => {
  it("is done by the word of its container and by its end together", () => {
    const done = '{"verdict": "done", "type": "pdf", "files": ["text.txt"]}';
    expect(verdictOf({ output: done })).toEqual(["done", null]);
    expect(verdictOf({ output: done, status: "cached" })).toEqual(["done", null]);
    expect(verdictOf({ output: done, status: "failed" })).toEqual(["not possible", "failed"]);
    expect(verdictOf({ output: "nonsense" })).toEqual(["not possible", "failed"]);
    expect(verdictOf({ output: "[1]" })).toEqual(["not possible", "failed"]);
  });

  it("is not possible for a reason in words, whichever way it ended", () => {
    const output = '{"verdict": "not possible", "reason": "encrypted", "words": "it needs a password"}';
    expect(verdictOf({ output, status: "failed" })).toEqual(["not possible", "encrypted"]);
    expect(verdictOf({ output: output.replace("encrypted", "of my own"), status: "failed" })).toEqual([
      "not possible",
      "other",
    ]);
    expect(verdictOf({ status: "timed_out" })).toEqual(["not possible", "timed out"]);
    expect(verdictOf({ status: "oom_killed" })).toEqual(["not possible", "too large"]);
    expect(verdictOf({ status: "disk_limit" })).toEqual(["not possible", "too large"]);
    expect(verdictOf({ status: "signaled" })).toEqual(["not possible", "damaged"]);
    expect(verdictOf({ status: "failed" })).toEqual(["not possible", "failed"]);
    const error = { code: "X", message: "no" };
    expect(verdictOf({ status: "refused", error })).toEqual(["refused", "refused"]);
    expect(verdictOf({ status: "lost", error })).toEqual(["refused", "lost"]);
    expect(convertedFile(result({ status: "cancelled" }))).toBeNull();
  });

  it("is cut and harmless, whatever a container says", async () => {
    const output = JSON.stringify({
      verdict: "done",
      type: "\u001b[2Jpdf".padEnd(500, "x"),
      files: Array.from({ length: 1000 }, () => "<script>"),
      pages: -1,
      notes: [7, "a\u202Eb"],
    });
    const file = convertedFile(result({ output }));
    expect(file).toMatchObject({ pages: null, notes: ["a\\u{202e}b"] });
    expect(file?.type?.length).toBeLessThanOrEqual(60);
    expect(file?.type).not.toContain("\u001b");
    expect(file?.files).toHaveLength(20);
    const counts = new ConversionCounts();
    const files = [file, convertedFile(result({ key: "x", fields: { file: '"><img src=x>' } }))].flatMap(
      (one) => one ?? [],
    );
    for (const one of files) counts.see(one);
    const pieces = await Array.fromAsync(
      conversionReport(
        "corral convert --to text",
        counts,
        (async function* () {
          yield* files;
        })(),
      ),
    );
    const page = pieces.join("");
    expect(page).toContain("1 file done, 1 not possible (1 failed)");
    expect(page).toContain('<a href="./sub/a.pdf/">');
    expect(page).not.toMatch(/<script|<img/);
  });
});

describe("the files of one size", () => {
  it("get limits that grow with a file", () => {
    const file = (bytes: number) => ({ path: Buffer.from("/a"), folder: "a", shown: "a", bytes, isNameable: true });
    const classes = inSizeClasses([file(0), file(4 * 1024 ** 2), file(4 * 1024 ** 2 + 1), file(5 * 1024 ** 3)]);
    expect(classes.map(({ size, files }) => [size.limits.memory, files.length])).toEqual([
      ["1g", 2],
      ["2g", 1],
      ["8g", 1],
    ]);
  });
});
