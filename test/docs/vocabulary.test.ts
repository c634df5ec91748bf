import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { AUDIT_TYPES } from "../../src/audit/records.ts";
import { projectPaths, statePaths } from "../../src/state/state-dir.ts";
import { TOOLS } from "../../src/tools/toolbox.ts";

const ROOT = join(import.meta.dirname, "../..");
const read = async (path: string): Promise<string> => await readFile(join(ROOT, path), "utf8");

/** The first cells of the table below a heading, or of the whole page. */
function firstCells(page: string, heading: string | null): string[] {
  const [, rest = ""] = heading === null ? ["", page] : page.split(`\n${heading}\n`);
  const section = rest.split(/^## /m)[0] ?? "";
  return [...section.matchAll(/^\| `(\w+)` +\|/gm)].map(([, name = ""]) => name);
}

describe("the pages", () => {
  it("name every tool", async () => {
    const [, listed = ""] = /## Tools\n\n`([^`]+)`/.exec(await read("README.md")) ?? [];
    expect(listed.split(/\s+/).toSorted()).toEqual([...TOOLS.keys()].toSorted());
  });

  it("name every type of audit record", async () => {
    expect(firstCells(await read("docs/formats/audit-trail.md"), null).toSorted()).toEqual([...AUDIT_TYPES].toSorted());
  });

  it("name every path of the state directory", async () => {
    const table = await read("docs/state.md");
    const { trail, ...others } = projectPaths("/state", "/project");
    const paths = [...Object.values(statePaths("/state")), ...Object.values(others), trail.dir];
    const names = paths.map((path) => path.replace("/state/", "").replace(/\b[0-9a-f]{16}\b/, "PROJECT"));
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter((name) => !table.includes(`\`${name}`))).toEqual([]);
    expect(table.match(/^\| `/gm)?.length).toBeLessThanOrEqual(15);
  });

  it("name no code that the sources do not have", async () => {
    const sources = await Promise.all(
      (
        await Array.fromAsync(
          glob(
            ["src/**/*.ts", "templates/g*/*", "images/base/*", "python/src/**/*.py", "test/hosts/*.ts", "compose.yaml"],
            {
              cwd: ROOT,
            },
          ),
        )
      ).map(read),
    );
    const text = sources.join("\n");
    const unknown: string[] = [];
    for (const page of await Array.fromAsync(glob(["*.md", "docs/**/*.md"], { cwd: ROOT }))) {
      const codes = [...(await read(page)).matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)].map(([, code = ""]) => code);
      unknown.push(...codes.filter((code) => !text.includes(code)).map((code) => `${page}: ${code}`));
    }
    expect(unknown).toEqual([]);
  });
});
