import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import { shellWord } from "../../src/platform/shell-word.ts";

it("is one word that a shell reads as the text, whatever the text has", () => {
  const texts = ["", "/a b/c", "it's", '$HOME `id` \\ "x"', "a;b|c&d", "*", "~/x", "-n", "line\nline", "é"];
  const read = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(shellWord).join(" ")}`], { encoding: "utf8" });
  expect(read.split("\0").slice(0, -1)).toEqual(texts);
});

it("has no quotes if it needs none", () => {
  expect(shellWord("/var/lib/corral/changes/0123456789ab/owner")).toBe("/var/lib/corral/changes/0123456789ab/owner");
});
