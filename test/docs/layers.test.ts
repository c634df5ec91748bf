import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
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
    // Entries of the package are files.
    const isListed = (folder: string): boolean => !folder.endsWith(".ts");
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

describe("the table of floors in docs/architecture.md", () => {
  it("has every sub-folder of run/, above those that it imports", async () => {
    const page = await readFile(PAGE, "utf8");
    const [, table = ""] = page.split("| floor |");
    const floors = new Map(
      [...(table.split("\n\n")[0] ?? "").matchAll(/^\| (\d) +\| (.*) \|$/gm)].flatMap(([, floor, folders = ""]) =>
        [...folders.matchAll(/`(\w+)\/`/g)].map(([, folder = ""]) => [folder, Number(floor)] as const),
      ),
    );
    const run = join(import.meta.dirname, "../../src/run");
    const paths = await Array.fromAsync(glob("*/**/*.ts", { cwd: run }));
    expect([...floors.keys()].toSorted()).toEqual([...new Set(paths.map(folderOf))].toSorted());
    const upwards: string[] = [];
    for (const path of paths) {
      const own = floors.get(folderOf(path)) ?? 0;
      const imported = [...(await readFile(join(run, path), "utf8")).matchAll(/from "\.\.\/(\w+)\//g)];
      for (const [, folder = ""] of imported)
        if (floors.has(folder) && (floors.get(folder) ?? 0) >= own) upwards.push(`${path} imports ${folder}/`);
    }
    expect(upwards).toEqual([]);
  });
});

const folderOf = (path: string): string => path.split("/")[0] ?? "";
