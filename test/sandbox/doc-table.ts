import { readFile } from "node:fs/promises";

/** The rows of the one table in a Markdown file that has this header, each as its cells, without the header. */
export async function docTable(file: string, header: readonly string[]): Promise<string[][]> {
  const text = await readFile(new URL(`../../${file}`, import.meta.url), "utf8");
  const lines = text.split("\n").map(cellsOf);
  const start = lines.findIndex((cells) => cells.join("|") === header.join("|"));
  if (start < 0) throw new Error(`${file} has no table with the header ${header.join(" | ")}`);
  const end = lines.findIndex((cells, index) => index > start && cells.length === 0);
  return lines.slice(start + 2, end);
}

function cellsOf(line: string): string[] {
  if (!line.startsWith("|")) return [];
  return line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
}
