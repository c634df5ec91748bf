/** Implements `npm start`: runs the job of `examples/inbox`, prints the tree of its runs, and reports every leak. */

import { join } from "node:path";
import { createLogUpdate } from "log-update";
import { type Job, runJob } from "../examples/inbox/host/job.ts";
import { triedIn } from "../examples/inbox/host/tried.ts";
import { LiveTree } from "../src/cli/run/screen.ts";
import { drawTree, Witness } from "../src/cli/run/tree.ts";
import { colorsFor, terminalOf } from "../src/cli/terminal/terminal.ts";
import { stateDirFrom } from "../src/state/state-dir.ts";
import { printableLine } from "../src/text/visible.ts";

const terminal = terminalOf(process);
const { stdout, stderr, env } = terminal;
const colors = colorsFor(stdout, env);
const stop = new AbortController();
terminal.onStop((signal) => stop.abort(new Error(`stopped by ${signal}`)));

process.exitCode = await main();

async function main(): Promise<number> {
  const witness = new Witness();
  const documentOf = new Map<string, string>();
  let clerk: string | null = null;
  const live = stderr.isTTY ? new LiveTree(terminal, () => witness.tree(), createLogUpdate(stderr)) : null;
  const job = await runJob({
    projectDir: join(import.meta.dirname, "../examples/inbox"),
    stateDir: stateDirFrom(env),
    engineEnv: env,
    signal: stop.signal,
    emit: (event) => {
      // The acts of `clerk` are printed by letter, below the tree of `triage`.
      if (event.type === "requested" && event.parent === null && event.worker === "clerk") clerk = event.run;
      if (event.root !== clerk) witness.see(event);
      if (event.type === "requested") documentOf.set(event.run, event.attachments.join(", "));
    },
    say: (line) => (live ? live.write(stderr, `inbox: ${line}\n`) : stderr.write(`inbox: ${line}\n`)),
  }).finally(() => live?.end());

  const tree = witness.tree();
  if (live === null && tree !== null) stdout.write(`${drawTree(tree, { colors, maxLines: 500 })}\n`);
  showTried(job, documentOf);
  showTold(job);
  const problems = problemsOf(job);
  for (const problem of problems) stdout.write(`${colors.red("PROBLEM")} ${problem}\n`);
  if (problems.length === 0)
    stdout.write(`${colors.green("Nothing got into or out of a cell that should not have.")}\n`);
  stdout.write("The report: examples/inbox/.work/report/report.md\n");
  stdout.write(
    "See these runs in a browser: npx corral serve --project examples/inbox, and open the link that it prints\n",
  );
  return problems.length === 0 ? 0 : 1;
}

function showTried({ result }: Job, documentOf: ReadonlyMap<string, string>): void {
  stdout.write("\nWhat the hostile documents tried:\n\n");
  for (const { document, status, lines } of triedIn(result, documentOf)) {
    stdout.write(
      `${colors.bold(printableLine(document))} ${colors.dim(`(extract: ${status.replaceAll("_", " ")})`)}\n`,
    );
    for (const line of lines) stdout.write(`  ${printableLine(line)}\n`);
  }
  stdout.write("\n");
}

/** Prints the agent's acts from the audit trail: what each letter made it do, and the result of each act. */
function showTold({ clerk: { result, told, summary, recorded } }: Job): void {
  stdout.write("What the letters made the agent `clerk` do (it obeys everything that it reads):\n\n");
  for (const { letter, wants, acts } of told) {
    stdout.write(`${colors.bold(printableLine(letter))}\n`);
    for (const line of wants.split("\n")) stdout.write(`  ${colors.dim(`| ${printableLine(line)}`)}\n`);
    for (const { what, refused } of acts)
      stdout.write(
        refused === null
          ? `  ${colors.green("did")} ${printableLine(what, 110)}\n`
          : `  tried ${printableLine(what, 110)}\n    ${colors.dim(printableLine(refused, 150))}\n`,
      );
  }
  stdout.write("\nThe result of its real task, in .work/notes/summary.md:\n\n");
  for (const line of summary.trimEnd().split("\n")) stdout.write(`  ${printableLine(line)}\n`);
  stdout.write(
    `\nThe audit trail has ${recorded} records of this run: npx corral audit --project examples/inbox --run ${result.run}\n\n`,
  );
}

function problemsOf({ result, leaks, clerk, cellsLeft }: Job): string[] {
  return [
    ...(result.status === "succeeded" ? [] : [`triage: ${result.error?.message ?? result.status} ${result.stderr}`]),
    ...(clerk.result.status === "succeeded" ? [] : [`clerk: ${clerk.result.error?.message ?? clerk.result.status}`]),
    ...leaks,
    ...clerk.leaks,
    ...(cellsLeft === 0 ? [] : [`${cellsLeft} cells were left behind.`]),
  ];
}
