import type { Project } from "../../declarations/project.ts";
import type { DryItem, DryRun } from "../../fleet/running/fleet-parts.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { dryRunFleet } from "../../operations/run-fleet.ts";
import type { Colors } from "../../operations/wording/quoted-lines.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { colorsFor, EXIT, printResult, say, stoppable, type Terminal } from "../terminal/terminal.ts";

const DEFAULT_SHOWN = 3;
const MAX_SHOWN = 1000;

/** `corral map --dry-run [N]`. Exit status 1 if one of the items is known to be refused. */
export async function dryRunVerb(
  project: Project,
  { dryRun, json }: { readonly dryRun: string | true; readonly json?: boolean },
  terminal: Terminal,
  start: Extract<FleetStart, { kind: "new" }>,
): Promise<number> {
  const shown = dryRun === true ? DEFAULT_SHOWN : Number(dryRun);
  if (!Number.isInteger(shown) || shown < 1 || shown > MAX_SHOWN)
    throw new UsageError(`--dry-run takes a whole number from 1 to ${MAX_SHOWN}`);
  const { env, stdout } = terminal;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const machine = { project, stateDir: stateDirFrom(env), engineEnv: env };
  const dry = await dryRunFleet(start, machine, { shown, signal: stop.signal });
  printResult(terminal, json, dry, () => dryRunText(dry, start, colorsFor(stdout, env)));
  return dry.refused > 0 || dry.first.some(({ problems }) => problems.length > 0) ? EXIT.someFailed : 0;
}

function dryRunText(dry: DryRun, { spec }: Extract<FleetStart, { kind: "new" }>, colors: Colors): string {
  const { first, items, refused, attachments } = dry;
  const more = items > first.length ? [colors.dim(`… and ${counted(items - first.length, "item")} more`), ""] : [];
  const refusals = refused === 0 ? "" : `, ${colors.red(`${counted(refused, "item")} would be refused`)}`;
  return [
    ...first.flatMap((item) => [...itemLines(item, colors), ""]),
    ...more,
    `${counted(items, "item")} with ${counted(attachments, "attachment")} for ${printableLine(spec.worker, 80)}${refusals}. Nothing was run.`,
  ].join("\n");
}

function itemLines({ key, input, attachments, mounts, problems }: DryItem, colors: Colors): string[] {
  const line = (label: string, text: string): string =>
    `  ${colors.cyan(label.padEnd(10))} ${printableLine(text, 500)}`;
  const none = mounts?.length === 0 ? [line("files", "none")] : [];
  const width = Math.max(0, ...(mounts ?? []).map(({ path }) => path.length));
  return [
    colors.bold(printableLine(key)),
    ...problems.map((problem) => `  ${colors.red("✗")} ${printableLine(problem, 500)}`),
    ...(input === undefined ? [] : [line("input", JSON.stringify(input))]),
    ...attachments.map(({ path, name }, index) => line(index === 0 ? "attached" : "", `/attachments/${name}  ${path}`)),
    ...(mounts ?? []).map(({ path, mode, host }, index) =>
      line(index === 0 ? "files" : "", `${path.padEnd(width)} ${mode}  ${host}`),
    ),
    ...none,
  ];
}
