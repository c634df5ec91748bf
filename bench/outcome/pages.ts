import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { loadText, machineText } from "./machine-text.ts";
import { pictureOf } from "./picture.ts";
import type { BenchReport } from "./report.ts";
import { shortTable, tablesOf } from "./table.ts";

const ROOT = new URL("../../", import.meta.url);
/** The report that the pages show. A test compares them. */
export const SHOWN_REPORT = fileURLToPath(new URL("docs/bench.json", ROOT));
const PICTURE = "docs/bench.svg";
/** What is between these lines of a page is made from the report. */
const [BEGIN, END] = ["<!-- made by `npm run bench -- --pages` -->", "<!-- end -->"];
const IN_README = ["runs", "rates"];

/** The text that each page has of a report, by the name of its file. */
export function shownOf(report: BenchReport): ReadonlyMap<string, string> {
  return new Map([
    ["README.md", readmeOf(report)],
    ["docs/machines.md", machinesOf(report)],
    ["docs/bench.md", `\`${report.command}\`, ${report.startedAt.slice(0, 10)}:\n\n${tablesOf(report)}`],
  ]);
}

/** Writes the report, its picture, and its tables into the pages that show them. */
export async function writePages(report: BenchReport): Promise<void> {
  await writeFile(SHOWN_REPORT, `${JSON.stringify(report, null, 2)}\n`);
  await writeFile(new URL(PICTURE, ROOT), pictureOf(report));
  for (const [page, shown] of shownOf(report)) {
    const file = new URL(page, ROOT);
    await writeFile(file, withShown(await readFile(file, "utf8"), shown, page));
  }
}

/** The page with this text in its place. */
export function withShown(page: string, shown: string, name: string): string {
  const [before, rest, more] = page.split(`${BEGIN}\n`);
  const end = rest?.indexOf(`\n${END}`) ?? -1;
  if (before === undefined || rest === undefined || more !== undefined || end < 0)
    throw new Error(`${name} must have the line ${BEGIN} once, and the line ${END} below it`);
  return `${before}${BEGIN}\n\n${shown}\n${rest.slice(end)}`;
}

/** What a queue and its machines take and cost. */
function machinesOf({ machine, groups }: BenchReport): string {
  const own = groups.filter(({ name }) => /^(queue|machines)\b/.test(name));
  if (own.length === 0) return "The report that these pages show has no rows of `npm run bench -- --only machines`.";
  const from = `\`npm run bench -- --only machines\` on ${machineText(machine)}:`;
  return [from, ...own.map(shortTable)].join("\n\n");
}

function readmeOf({ command, machine, groups }: BenchReport): string {
  return [
    `![What Corral costs beside other ways of running the same work](${PICTURE})`,
    `\`${command}\` on ${machineText(machine)}; ${loadText(machine)}. The whole is in [docs/bench.md](docs/bench.md).`,
    ...IN_README.flatMap((name) => groups.filter((group) => group.name === name)).map(shortTable),
  ].join("\n\n");
}
