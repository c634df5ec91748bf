import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { namesOther, TOLERATED } from "../scripts/declarations.ts";

const ROOT = join(import.meta.dirname, "..");

describe("the package's types", () => {
  it("mention no engine's own client, so that a second engine changes none of them", async () => {
    const found = await reachable(await entries());
    expect(found.size).toBeGreaterThan(50);
    const leaks = [...found].filter(([, text]) => /["'](dockerode|docker-modem)["']/.test(text)).map(([file]) => file);
    expect(leaks).toEqual([]);
  });

  it("need no package that a program may not have: an import of one is marked, so that its types are `any` there", async () => {
    const { dependencies } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
    const bare = [...(await reachable(await entries()))].flatMap(([file, text]) => {
      const lines = text.split("\n");
      const other = lines.filter((line) => namesOther(line, Object.keys(dependencies)));
      const marked = lines.filter((line, index) => other.includes(line) && lines[index - 1] === TOLERATED);
      return marked.length === other.length ? [] : [file];
    });
    expect(bare).toEqual([]);
  });

  it("of `corral/sandbox` mention no package of others, and have `openFiles`", async () => {
    const entry = (await entries()).filter((file) => file.endsWith("sandbox.d.ts"));
    const found = await reachable(entry);
    expect([...found.values()].join()).toContain("export declare function openFiles(");
    const packages = [...found.values()].flatMap((text) => [...text.matchAll(/from ["']([^."'][^"']*)["']/g)]);
    expect([...new Set(packages.map(([, name]) => name))].filter((name) => !name?.startsWith("node:"))).toEqual([]);
  });
});

/** The declaration files that `exports` of package.json names; `npm run build` makes them. */
async function entries(): Promise<string[]> {
  const { exports } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  return Object.values(exports as Record<string, { types: string }>).map(({ types }) => join(ROOT, types));
}

/** All declaration files that a program's compiler reads for these, with their text. */
async function reachable(files: readonly string[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const waiting = [...files];
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (found.has(file)) continue;
    const text = await readFile(file, "utf8");
    found.set(file, text);
    for (const [, target = ""] of text.matchAll(/(?:from|import)\s*\(?["'](\.[^"']+)["']/g)) {
      const path = resolve(dirname(file), target.replace(/\.[jt]s$/, ".d.ts"));
      if (!existsSync(path)) throw new Error(`${file} imports ${target}, which is not in dist/: build it first`);
      waiting.push(path);
    }
  }
  return found;
}
