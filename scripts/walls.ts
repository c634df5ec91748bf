/**
 * Writes the table of drivers and runtimes into docs/security.md, from reports of `corral verify --full --json`:
 *
 *     node scripts/walls.ts 'Engine 20.10=engine:FILE' 'crun=runc:FILE' 'gVisor=engine:FILE'
 *
 * Each column is named, and is made of the reports in that file whose containers that driver made. It takes the place of one of that name;
 * the others stay. `npm run format` sets the columns below each other.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { THREATS, type Threat } from "../src/operations/verify/attacks.ts";
import type { ThreatReport, VerifyReport } from "../src/operations/verify/verify.ts";

const PAGE = join(import.meta.dirname, "../docs/security.md");

const columns = process.argv.slice(2).map((argument) => {
  const [, name = "", driver = "", file = ""] = /^([^=]+)=([a-z]+):(.+)$/.exec(argument) ?? [];
  if (file === "") throw new Error(`${argument} is not NAME=DRIVER:FILE`);
  const { reports } = JSON.parse(readFileSync(file, "utf8")) as { readonly reports: readonly VerifyReport[] };
  const own = reports.filter((report) => report.driver === driver);
  if (own.length === 0) throw new Error(`${file} has no report of the driver ${driver}`);
  return { name, own };
});
if (columns.length === 0) throw new Error("name at least one column: NAME=DRIVER:FILE");

/** All that was tried under its policies. */
function outcome(own: readonly VerifyReport[], threat: Threat): string {
  const of = own.flatMap(({ threats }) => threats.filter((each) => each.threat === threat));
  const sum = (count: (report: ThreatReport) => number): number => of.reduce((all, each) => all + count(each), 0);
  const through = sum((each) => each.through.length);
  if (through > 0) return `**${through} got through**`;
  const tried = sum((each) => each.tried);
  const isRefused = of.some(({ notTried }) => notTried !== null);
  if (tried === 0) return isRefused ? "refused" : "nothing to try";
  return isRefused ? `${tried} held, else refused` : `${tried} held`;
}

function median(values: readonly number[]): string {
  return String(values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? "not measured");
}

const costs = columns.map(({ own }) => own.flatMap(({ cost }) => (cost === null ? [] : [cost])));
const page = readFileSync(PAGE, "utf8");
const [before = "", rest = ""] = page.split("<!-- walls -->\n");
const [present = "", after] = rest.split("<!-- end of walls -->\n");
if (after === undefined) throw new Error("docs/security.md has no place for the table");
const written = present.split("\n").flatMap((line) => (line.startsWith("|") ? [line.split("|").slice(1, -1)] : []));
const kept = (written[0] ?? []).flatMap((name, index) =>
  index === 0 || columns.some((column) => column.name === name.trim()) ? [] : [index],
);
const made = [
  ["what a worker may try", ...columns.map(({ name }) => name)],
  ["-", ...columns.map(() => "-")],
  ...(Object.keys(THREATS) as Threat[]).map((threat) => [
    THREATS[threat],
    ...columns.map(({ own }) => outcome(own, threat)),
  ]),
  ["a run takes, ms", ...costs.map((each) => median(each.map(({ runMs }) => runMs)))],
  ["a command in a session, ms", ...costs.map((each) => median(each.flatMap(({ execMs }) => execMs ?? [])))],
  ["fresh containers a second", ...costs.map((each) => median(each.map(({ itemsPerSecond }) => itemsPerSecond)))],
];
// A row may be a new one.
const rowNamed = (title = ""): string[] | undefined =>
  written.find(([name = ""]) => name.trim().replace(/-+/, "-") === title);
const table = made
  .map(([title, ...own]) => [title, ...kept.map((index) => rowNamed(title)?.[index]?.trim() || "not measured"), ...own])
  .map((cells) => `| ${cells.join(" | ")} |`)
  .join("\n");
writeFileSync(PAGE, `${before}<!-- walls -->\n\n${table}\n\n<!-- end of walls -->\n${after}`);
