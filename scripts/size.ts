/** Prints how big `src/` is, and where: `node scripts/size.ts`. The rules about it are in `test/architecture.ts`. */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { longestChain } from "../test/architecture.ts";

const src = join(import.meta.dirname, "../src");
const sources = new Map(
  globSync("**/*.{ts,tsx}", { cwd: src })
    .toSorted()
    .map((path) => [path, readFileSync(join(src, path), "utf8")]),
);
const linesOf = (text: string): number => text.split("\n").length - 1;
const lines = new Map([...sources].map(([path, text]) => [path, linesOf(text)]));

const importers = new Map<string, Set<string>>();
const names = new Map<string, Set<string>>();
let importLines = 0;
for (const [path, text] of sources) {
  for (const [statement, from = ""] of text.matchAll(/^(?:import|export)\b[^;]*?from "([^"]+)";$/gm)) {
    importLines += linesOf(`${statement}\n`);
    const target = posix.join(dirname(path), from);
    if (from.startsWith(".")) importers.set(target, (importers.get(target) ?? new Set()).add(path));
  }
  for (const [, name = ""] of text.matchAll(
    /^export (?:async )?(?:function\*?|const|class|interface|type|enum) (\w+)/gm,
  ))
    names.set(name, (names.get(name) ?? new Set()).add(path));
}

const sum = (list: Iterable<number>): number => [...list].reduce((all, one) => all + one, 0);
const sorted = [...lines.values()].toSorted((a, b) => a - b);
const folders = Map.groupBy(sources.keys(), dirname);
const full = [...folders].map(([folder, files]) => ({ folder, files: files.length }));
const several = [...names].filter(([, files]) => files.size > 1);

console.log(
  `${sources.size} files, ${sum(sorted)} lines, ${importLines} of them imports; the median file has ${sorted[sorted.length >> 1]}`,
);
console.log(`${[...sources.keys()].filter((path) => importers.get(path)?.size === 1).length} files have one importer`);
console.log(
  `${several.length} names are exported by several files; the longest chain of imports has ${longestChain(sources).length} files`,
);
console.log(`${full.filter(({ files }) => files > 16).length} of ${folders.size} folders have more than 16 files:`);
for (const { folder, files } of full.toSorted((a, b) => b.files - a.files).slice(0, 12))
  console.log(`  ${files} ${folder}`);
console.log("layers, by lines:");
const layers = Map.groupBy(lines, ([path]) => path.split("/")[0] ?? "");
const sizes = [...layers].map(([layer, all]) => ({
  layer,
  files: all.length,
  lines: sum(all.map(([, count]) => count)),
}));
for (const { layer, files, lines } of sizes.toSorted((a, b) => b.lines - a.lines))
  console.log(`  ${lines} in ${files} ${layer}`);
