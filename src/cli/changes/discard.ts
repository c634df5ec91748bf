import { isCancel, select } from "@clack/prompts";
import { counted } from "../../text/amounts.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { printJson, printJsonLine, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { forEach, NONE, openChangesets, type TargetOptions, type Targets, targetsOf } from "./targets.ts";

interface DiscardOptions extends TargetOptions {
  readonly yes?: boolean;
}

/** `corral changes discard`: removes what was written there. What was not named one by one is asked about first. */
export async function discardVerb(
  ids: readonly string[],
  options: DiscardOptions,
  terminal: Terminal,
): Promise<number> {
  await using changesets = await openChangesets(terminal);
  const targets = await targetsOf("discard", changesets, ids, options, terminal);
  const isAsked = ids.length === 0 && targets.count > 0 && !options.yes;
  if (isAsked && !(await isConfirmed(targets, terminal))) {
    say(terminal, "Nothing was discarded.");
    return EXIT.cancelled;
  }
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const isFleet = targets.fleet !== null;
  const discarded: string[] = [];
  let count = 0;
  const status = await forEach(targets, terminal, async ({ id, item }) => {
    if (stop.signal.aborted) return null;
    await changesets.discard(id);
    count += 1;
    if (isFleet && options.json) printJsonLine(terminal, { item, discarded: id });
    else if (options.json) discarded.push(id);
    else if (!isFleet) terminal.stdout.write(`discarded ${id}\n`);
    return 0;
  });
  if (options.json && !isFleet) printJson(terminal, { discarded });
  else if (targets.count === 0 && !options.json) say(terminal, NONE);
  else if (isFleet && !options.json) terminal.stdout.write(`discarded the changes of ${counted(count, "item")}\n`);
  if (!stop.signal.aborted) return status;
  say(terminal, `corral: Stopped: ${count} of ${targets.count} changesets were discarded, the rest waits.`);
  return EXIT.cancelled;
}

async function isConfirmed({ count, fleet }: Targets, { stdin, stderr }: Terminal): Promise<boolean> {
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError(`there is no terminal for the question whether to discard ${count} changesets: use --yes`);
  const what = fleet === null ? `all ${count} changesets of the project` : `the changes of ${counted(count, "item")}`;
  const answer = await select({
    message: `Discard ${what}? They cannot be brought back.`,
    options: [
      { value: false, label: "No" },
      { value: true, label: "Yes, discard them" },
    ],
    initialValue: false,
    input: stdin,
    output: stderr,
  });
  return !isCancel(answer) && answer;
}
