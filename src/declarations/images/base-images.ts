import type { Read } from "./read.ts";

/** More than any Dockerfile has. */
const MAX_BASES = 50;

/**
 * The images that a Dockerfile begins with or copies from, but for its own stages and `scratch`. An `ARG` before the first
 * `FROM` counts with its default: Corral passes none.
 */
export function baseImagesOf(dockerfile: string): Read<readonly string[]> {
  const defaults = new Map<string, string>();
  const stages = new Set<string>();
  const bases = new Set<string>();
  let begun = false;
  for (const line of instructionsOf(dockerfile)) {
    const [word = "", ...rest] = line.split(/\s+/);
    const instruction = word.toUpperCase();
    if (instruction === "ARG" && !begun) {
      for (const argument of rest) {
        const [name = "", ...value] = argument.split("=");
        if (value.length > 0) defaults.set(name, unquoted(value.join("=")));
      }
    } else if (instruction === "FROM") {
      begun = true;
      const [written = "", as, stage] = rest.filter((option) => !option.startsWith("--"));
      const base = filledIn(unquoted(written), defaults);
      if (base === null) return { ok: false, fault: `its Dockerfile has FROM ${written}, which has no default` };
      if (!stages.has(base.toLowerCase()) && base !== "scratch") bases.add(base);
      if (as?.toUpperCase() === "AS" && stage !== undefined) stages.add(stage.toLowerCase());
    } else {
      const from = /\s--from=(\S+)/.exec(line)?.[1];
      if (from !== undefined && !/^\d+$/.test(from) && !stages.has(from.toLowerCase())) bases.add(from);
    }
  }
  if (!begun) return { ok: false, fault: "its Dockerfile has no FROM" };
  if (bases.size > MAX_BASES) return { ok: false, fault: `its Dockerfile names more than ${MAX_BASES} images` };
  return { ok: true, value: [...bases].sort() };
}

/** Without comments. A backslash at the end of a line joins it with the next one. */
function instructionsOf(dockerfile: string): string[] {
  return dockerfile
    .split(/\r?\n/)
    .filter((line) => !/^\s*#/.test(line))
    .join("\n")
    .replace(/\\[ \t]*\n/g, " ")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** `$NAME`, `${NAME}` and `${NAME:-default}`; null if a name has no value. */
function filledIn(text: string, values: ReadonlyMap<string, string>): string | null {
  let isKnown = true;
  const filled = text.replace(
    /\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))/g,
    (_, braced?: string, other?: string, bare?: string) => {
      const value = values.get(braced ?? bare ?? "") || other;
      isKnown &&= value !== undefined;
      return value ?? "";
    },
  );
  return isKnown && filled !== "" ? filled : null;
}

function unquoted(text: string): string {
  return text.replace(/^(["'])(.*)\1$/, "$2");
}
