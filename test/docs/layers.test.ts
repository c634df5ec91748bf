import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { MAY_IMPORT } from "../architecture.ts";

const PAGE = new URL("../../docs/architecture.md", import.meta.url);

interface Row {
  readonly layer: number;
  readonly folder: string;
  readonly mayImport: string;
}

async function rows(): Promise<Row[]> {
  const page = await readFile(PAGE, "utf8");
  return [...page.matchAll(/^\| (\d) +\| `(\w+)\/` +\| ([^|]+?) +\|/gm)].map(
    ([, layer, folder = "", mayImport = ""]) => {
      return { layer: Number(layer), folder, mayImport };
    },
  );
}

/** `layer 0`, `layers 0 to 2`, and folders by name. */
function foldersOf(text: string, all: readonly Row[]): string[] {
  const [, from = "", to = from] = /layers? (\d)(?: to (\d))?/.exec(text) ?? [];
  const inLayers = all.filter(({ layer }) => from !== "" && layer >= Number(from) && layer <= Number(to));
  const named = [...text.matchAll(/`(\w+)\/`/g)].map(([, folder = ""]) => folder);
  return [...new Set([...inLayers.map(({ folder }) => folder), ...named])].sort();
}

describe("the table of folders in docs/architecture.md", () => {
  it("says what test/architecture.ts enforces", async () => {
    const table = await rows();
    const isDocumented = (folder: string): boolean => table.some((row) => row.folder === folder);
    const documented = table.map((row) => [row.folder, foldersOf(row.mayImport, table)]);
    const enforced = Object.entries(MAY_IMPORT).map(([folder, others]) => [
      folder,
      others.filter((other) => other !== folder && isDocumented(other)).sort(),
    ]);
    // Entries of the package are files; `serve` has its place and no file yet.
    const isListed = (folder: string): boolean => !folder.endsWith(".ts") && folder !== "serve";
    expect(Object.fromEntries(documented)).toEqual(
      Object.fromEntries(enforced.filter(([folder]) => isListed(String(folder)))),
    );
  });

  it("has its folders in the picture above it", async () => {
    const page = await readFile(PAGE, "utf8");
    const picture = page.slice(page.indexOf("flowchart TB"), page.indexOf("<!-- layers"));
    for (const { folder } of await rows()) expect(picture).toContain(`${folder}/`);
  });
});
