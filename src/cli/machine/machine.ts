import type { Finding } from "../../operations/machine.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted, durationText, roughBytesText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { ageOf } from "../terminal/arguments.ts";
import {
  colorsFor,
  columns,
  printJson,
  printList,
  printResult,
  say,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";

interface CollectOptions {
  readonly dryRun?: boolean;
  readonly olderThan?: string;
  readonly json?: boolean;
}

/** More of one kind is counted, and is in the JSON. */
const MAX_LINES = 20;

/** `corral du`: what Corral keeps, and how much of it. */
export async function duVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { stdout } = terminal;
  const kinds = await measuredBy(terminal);
  if (options.json) {
    printJson(
      terminal,
      kinds.map(({ measured, ...kind }) => ({
        ...kind,
        ...(measured ?? { bytes: null, count: null, complete: false }),
      })),
    );
    return 0;
  }
  const sum = kinds.reduce((total, { measured }) => total + (measured?.bytes ?? 0), 0);
  const rows = kinds.map(({ name, unit, one, measured }) => {
    if (measured === null) return [name, "?", ""];
    const size = `${measured.complete ? "" : "≥ "}${roughBytesText(measured.bytes)}`;
    return [name, size, counted(measured.count, one, unit)];
  });
  const table = columns([["KIND", "SIZE", "COUNT"], ...rows, ["all", roughBytesText(sum), ""]]);
  stdout.write(`${withoutControls(table)}\n`);
  for (const { name, trouble } of kinds)
    if (trouble !== null) say(terminal, `corral: ${name}: ${printableLine(trouble, 500)}`);
  return 0;
}

async function measuredBy({ service, env }: Terminal) {
  if (service !== undefined) return (await service.client.call("host.stored", {})).kinds;
  const { measureState } = await import("../../operations/stored/stored-state.ts");
  return await measureState({ stateDir: stateDirFrom(env), engineEnv: env });
}

/** `corral gc`: removes what may go. Exit status 1 if something could not be read. */
export async function gcVerb(options: CollectOptions, terminal: Terminal): Promise<number> {
  const { dryRun = false, olderThan } = options;
  const { env, stdout } = terminal;
  const olderThanMs = olderThan === undefined ? null : ageOf("--older-than", olderThan);
  const { collectState } = await import("../../operations/stored/stored-state.ts");
  const kinds = await collectState({ stateDir: stateDirFrom(env), engineEnv: env }, { dryRun, olderThanMs });
  const status = kinds.some(({ trouble }) => trouble !== null) ? 1 : 0;
  if (options.json) {
    printJson(terminal, { dryRun, kinds });
    return status;
  }
  const done = dryRun ? "would remove" : "removed";
  let [count, bytes] = [0, 0];
  for (const { name, unit, one, rule, removed, stays, trouble } of kinds) {
    count += removed.length;
    for (const one of removed) bytes += one.bytes ?? 0;
    const lines = removed.slice(0, MAX_LINES).map(({ what, why, bytes: size }) => {
      return `${done} ${name}: ${printable(what)}${size === null ? "" : `, ${roughBytesText(size)}`} (${why})`;
    });
    if (removed.length > MAX_LINES) lines.push(`${done} ${name}: ${removed.length - MAX_LINES} more`);
    for (const line of lines) stdout.write(`${line}\n`);
    if (stays > 0) say(terminal, `kept ${name}: ${counted(stays, one, unit)} (${rule})`);
    if (trouble !== null) say(terminal, `corral: ${name}: ${printableLine(trouble, 500)}`);
  }
  if (count === 0) say(terminal, "There is nothing to remove.");
  else
    say(
      terminal,
      `corral: ${done} ${count} of what Corral keeps, at least ${roughBytesText(bytes)}. \`corral du\` shows the rest`,
    );
  return status;
}

/** `corral ps`: every container of this state directory, whatever its state. Removes nothing. */
export async function psVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const cells = await cellsOf(terminal);
  const { isTTY, columns: room = DEFAULT_COLUMNS } = terminal.stdout;
  const isNarrow = isTTY && room < WIDE_COLUMNS;
  printList(terminal, options.json, cells, {
    head: ["RUN", "WORKER", "STATE", "MEMORY", "CPU", ...(isNarrow ? [] : ["DRIVER", "CALLED BY", "OWNER", "CREATED"])],
    rowOf: ({ run, worker, state, memoryBytes, cpuMs, driver, parent, owner, ownerAlive, createdAt }) => [
      run,
      printableLine(worker, isNarrow ? NARROW_NAME : 64),
      isNarrow && !ownerAlive ? "owner dead" : state,
      memoryBytes === null ? "-" : roughBytesText(memoryBytes),
      cpuMs === null ? "-" : durationText(cpuMs),
      ...(isNarrow ? [] : [driver, parent ?? "-", `${owner.pid}${ownerAlive ? "" : " (dead)"}`, createdAt]),
    ],
    none: "There are no containers.",
  });
  return 0;
}

async function cellsOf({ service, env }: Terminal) {
  if (service !== undefined) return (await service.client.call("host.cells", {})).cells;
  const { listCells } = await import("../../operations/machine.ts");
  return await listCells({ stateDir: stateDirFrom(env), engineEnv: env });
}

const DEFAULT_COLUMNS = 80;
/** A narrower terminal would break the lines of the whole table: it gets what a person looks for first. */
const WIDE_COLUMNS = 140;
const NARROW_NAME = 16;

/** `corral reap`: removes what dead orchestrators left behind, and lists it. */
export async function reapVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const { reapCells } = await import("../../operations/machine.ts");
  const reaped = await reapCells({ stateDir: stateDirFrom(env), engineEnv: env });
  if (options.json) {
    printJson(terminal, reaped);
    return 0;
  }
  const lines = [
    ...reaped.cells.map((run) => `container of run ${run}`),
    ...reaped.volumes.map((name) => `volume ${name}`),
    ...reaped.directories.map((name) => `directory ${name}`),
  ];
  if (lines.length === 0) say(terminal, "There is nothing to remove.");
  for (const line of lines) stdout.write(`removed ${line}\n`);
  return 0;
}

/** `corral doctor`. Exit status 1 if something is missing. */
export async function doctorVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const examined = await examinedBy(terminal);
  printResult(terminal, options.json, examined, () => findingsText(examined.findings, colorsFor(stdout, env)));
  return examined.ok ? 0 : 1;
}

async function examinedBy({ service, env }: Terminal) {
  if (service !== undefined) return await service.client.call("host.machine", {});
  const { examineMachine } = await import("../../operations/machine.ts");
  return await examineMachine({ stateDir: stateDirFrom(env), engineEnv: env });
}

function findingsText(findings: readonly Finding[], colors: Colors): string {
  const marks = { ok: colors.green("✓"), warning: colors.yellow("!"), missing: colors.red("✗") };
  return findings.map(({ what, state, detail }) => `${marks[state]} ${what.padEnd(16)} ${detail}`).join("\n");
}
