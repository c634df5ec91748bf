import { globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Removes the declaration files that no program of a user can reach from the package's entries. */
export function removeUnreachable(dist: string, entries: readonly string[]): void {
  const waiting = entries.map((entry) => join(dist, entry));
  const reached = new Set<string>();
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (reached.has(file)) continue;
    reached.add(file);
    for (const [, target = ""] of readFileSync(file, "utf8").matchAll(/(?:from|import)\s*\(?["'](\.[^"']+)["']/g))
      waiting.push(join(dirname(file), target.replace(/\.[jt]s$/, ".d.ts")));
  }
  for (const name of globSync("**/*.d.ts", { cwd: dist })) {
    const file = join(dist, name);
    if (!reached.has(file)) rmSync(file);
  }
}

/**
 * A program may have no package but those that the package brings: types that need another one, such as the optional `ai`, are `any` there, and no
 * error.
 */
export function toleratePackages(dist: string, brought: readonly string[]): void {
  for (const name of globSync("**/*.d.ts", { cwd: dist })) {
    const file = join(dist, name);
    const lines = readFileSync(file, "utf8").split("\n");
    const tolerant = lines.flatMap((line, index) =>
      namesOther(line, brought) && lines[index - 1] !== TOLERATED ? [TOLERATED, line] : [line],
    );
    if (tolerant.length > lines.length) writeFileSync(file, tolerant.join("\n"));
  }
}

export const TOLERATED = "// @ts-ignore: the package may not be there";

/** A line that takes types of a package which is neither Node nor one of `brought`. */
export function namesOther(line: string, brought: readonly string[]): boolean {
  return [...line.matchAll(/(?:\bfrom|\bimport)\s*\(?["']([^."'][^"']*)["']/g)].some(
    ([, name = ""]) => !name.startsWith("node:") && !brought.includes(name),
  );
}
