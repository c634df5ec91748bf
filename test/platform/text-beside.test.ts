import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { filledIn, textBeside } from "../../src/platform/text-beside.ts";

const ROOT = join(import.meta.dirname, "../..");
const SCRIPTS = ["src", "scripts", "examples", "templates", "images", "test"].flatMap((folder) =>
  globSync(`${folder}/**/*.{sh,bash}`, { cwd: ROOT, exclude: ["**/node_modules"] }),
);

describe("a text beside a module", () => {
  it("is read as it is", () => {
    expect(textBeside(import.meta.url, "text-beside.test.ts")).toContain("is read as it is");
    const spaced = pathToFileURL(join(ROOT, "a b/x.ts")).href;
    expect(() => textBeside(spaced, "none.sh")).toThrow(/a b\/none\.sh/);
  });

  it("takes every value, once or more, as it is written", () => {
    expect(filledIn("a @ONE@ b @ONE@@TWO_X@ $@ '@'", { ONE: "$&", TWO_X: 2 })).toBe("a $& b $&2 $@ '@'");
  });

  it("is refused if a place has no value, or a value no place", () => {
    expect(() => filledIn("@ONE@", {})).toThrow("no value for @ONE@");
    expect(() => filledIn("", { ONE: "1" })).toThrow("no place for ONE");
  });
});

const shellcheck = (process.env.PATH ?? "").split(delimiter).some((dir) => existsSync(join(dir, "shellcheck")));

describe.skipIf(!shellcheck)(
  `shell scripts${shellcheck ? "" : " (there is no shellcheck: apt-get install shellcheck)"}`,
  () => {
    it("are found", () => expect(SCRIPTS.length).toBeGreaterThan(12));

    it.each(SCRIPTS)("are read by shellcheck without an error: %s", (file) => {
      // What Corral fills in is a word or a number.
      const input = readFileSync(join(ROOT, file), "utf8").replace(/@[A-Z][A-Z_]*@/g, "1");
      const dialect = file.endsWith(".bash") ? "bash" : "dash";
      const { stdout, status } = spawnSync("shellcheck", ["-f", "gcc", "-S", "warning", "-s", dialect, "-"], {
        input,
        encoding: "utf8",
      });
      expect({ stdout, status }).toEqual({ stdout: "", status: 0 });
    });
  },
);
