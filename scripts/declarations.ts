import { globSync, readFileSync, rmSync } from "node:fs";
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
