import { reportHtml } from "../../../src/fleet/report/html.ts";
import { manyResults, reportOf } from "./report-fleet.ts";

/** A program: makes the report of 100,000 items, each with an output of 20 kB, and prints the page's size. */
const items = 100_000;
let size = 0;
for await (const piece of reportHtml(
  reportOf(
    manyResults(items, (index) => `${index}`.repeat(4000)),
    items,
  ),
)) {
  size += piece.length;
}
process.stdout.write(`${size}\n`);
