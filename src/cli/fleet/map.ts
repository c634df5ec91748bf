import { resolve } from "node:path";
import { fleetNamed, type NamedFleet } from "../../declarations/fleet.ts";
import { ANY_MACHINE, type FleetManner, type MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { loadProject, type Project } from "../../declarations/project.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import { TemplateError } from "../../fleet/items/item-fields.ts";
import type { SkippedEntry } from "../../fleet/items/matching-files.ts";
import { formatOf, type ItemSource } from "../../fleet/items/read-items.ts";
import type { FleetSpec, ItemTemplate } from "../../fleet/model/item.ts";
import type { DryItem, DryRun } from "../../fleet/running/fleet-parts.ts";
import type { RequestsOf } from "../../fleet/running/item-result.ts";
import { type FleetStart, itemsOfNamed } from "../../operations/fleet-start.ts";
import { dryRunFleet } from "../../operations/run-fleet.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import { workerNamed } from "../../operations/workers.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { colorsFor, EXIT, printResult, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import {
  concurrencyOf,
  countIn,
  durationIn,
  type MapOptions,
  OF_ITEMS,
  OF_MANIFESTS,
  priorityIn,
  refuseIdle,
  shownSource,
} from "./map-options.ts";
import { ranFleet } from "./ran-fleet.ts";

/** `corral map`: one worker over many items, each in a sandbox of its own. Exit status 0 where every item succeeded. */
export async function mapVerb(name: string | undefined, options: MapOptions, terminal: Terminal): Promise<number> {
  const project = await loadProject(options.project, terminal.env);
  const asked =
    options.fleet === undefined
      ? fromOptions(name, project, options, terminal)
      : fromFile(await fleetNamed(project, options.fleet, options.project), name, project, options);
  const start = {
    kind: "new",
    ...asked,
    leftOut: ({ place, why }: SkippedEntry) =>
      say(terminal, `corral: left out ${printableLine(place, 200)}: ${printableLine(why, 200)}`),
    note: (text: string) => say(terminal, `corral: ${text}`),
  } as const;
  const { dryRun, json = false } = options;
  try {
    if (dryRun === undefined) return await ranFleet(project, options, terminal, start);
    return await dryRunVerb(project, { dryRun, json }, terminal, start);
  } catch (error) {
    throw error instanceof TemplateError ? asked.mistakes(error) : error;
  }
}

interface AskedFleet {
  readonly spec: FleetSpec;
  readonly requests: RequestsOf;
  readonly cwd: string;
  readonly allowEmpty: boolean;
  /** The error for the user, with the place of each template. */
  readonly mistakes: (error: TemplateError) => Error;
}

function fromOptions(name: string | undefined, project: Project, options: MapOptions, terminal: Terminal): AskedFleet {
  if (name === undefined) throw new UsageError("name a worker, or use --fleet NAME");
  workerNamed(name, project);
  const source = sourceOf(options, terminal);
  const template: ItemTemplate = {
    attach: options.attach,
    ...(options.allowRead.length === 0 ? {} : { allowRead: options.allowRead }),
    ...(options.allowWrite.length === 0 ? {} : { allowWrite: options.allowWrite }),
    ...present({ input: options.input, key: options.key }),
  };
  const { cwd } = terminal;
  const within = options.within.map((folder) => resolve(cwd, folder));
  return {
    spec: specOf(name, options, shownSource(options), project.fleet),
    requests: { source, template, within, templateDir: cwd },
    cwd,
    allowEmpty: options.allowEmpty ?? false,
    mistakes: inOptions,
  };
}

/** Each with its option: `--attach {pth}=in.pdf`. */
function inOptions({ problems }: TemplateError): UsageError {
  const lines = problems.map(({ about, fault }) => {
    const [kind = "", ...text] = about.split(" ");
    return printableLine(`${[`--${kind.replace("_", "-")}`, ...text].join(" ")}: ${fault}`, 1000);
  });
  return new UsageError(lines.join("\ncorral: "));
}

/** Options of the command line override the file. */
function fromFile(fleet: NamedFleet, name: string | undefined, project: Project, options: MapOptions): AskedFleet {
  if (name !== undefined) throw new UsageError("use either a worker or --fleet NAME, which names its own");
  if (options.over !== undefined || options.manifest !== undefined)
    throw new UsageError("--fleet NAME defines the items: omit --over and --manifest");
  refuseIdle(options, [...OF_MANIFESTS, ...OF_ITEMS], "is set in the file of --fleet NAME: change it there");
  const said = specOf(fleet.worker, options, `fleets/${fleet.name}.yaml`, fleet);
  const spec: FleetSpec = {
    ...said,
    policy: options.policy ?? fleet.policyName,
  };
  return {
    ...itemsOfNamed(fleet, project),
    spec,
    allowEmpty: options.allowEmpty ?? fleet.allowEmpty,
  };
}

function sourceOf(options: MapOptions, terminal: Terminal): ItemSource {
  const { over, manifest, format } = options;
  if ((over === undefined) === (manifest === undefined))
    throw new UsageError("name the items: --over GLOB, or --manifest FILE (- for standard input)");
  if (over !== undefined) {
    refuseIdle(options, OF_MANIFESTS, "works only with --manifest");
    return { kind: "glob", pattern: over };
  }
  const path = manifest ?? "";
  if (path === "-")
    return { kind: "stream", stream: terminal.stdin, name: "standard input", format: format ?? "jsonl" };
  return { kind: "manifest", path, format: format ?? formatOf(path) };
}

/** `otherwise`: what holds where the command line does not say. */
function specOf(worker: string, options: MapOptions, source: string, otherwise: FleetManner): FleetSpec {
  const { concurrency = "auto", reuse = "fresh", timeoutMs = null, retries = 0, maxFailures = null } = otherwise;
  const machines = machinesOf(options, otherwise.machines ?? null);
  const own = concurrencyOf(options);
  if (own === 0 && machines === null)
    throw new UsageError("--concurrency 0 leaves all items to machines: add --machines, or use a number from 1");
  return {
    version: 1,
    worker,
    policy: options.policy ?? null,
    concurrency: own ?? concurrency,
    reuse: options.reuse ?? reuse,
    timeoutMs: options.timeout === undefined ? timeoutMs : durationIn("--timeout", options.timeout),
    retries: options.retries === undefined ? retries : countIn("--retries", options.retries),
    maxFailures: options.maxFailures === undefined ? maxFailures : countIn("--max-failures", options.maxFailures),
    cache: options.cache && (otherwise.cache ?? true),
    source,
    machines,
  };
}

/** Each of the options says that machines may run items. */
function machinesOf({ machines, needs, priority }: MapOptions, otherwise: MachineNeeds | null): MachineNeeds | null {
  for (const label of needs)
    if (nameFault(label) !== null) throw new UsageError(`--needs ${label}: a label ${nameFault(label)}`);
  if (machines !== true && needs.length === 0 && priority === undefined) return otherwise;
  const declared = otherwise ?? ANY_MACHINE;
  return {
    ...declared,
    ...(needs.length === 0 ? {} : { needs: [...new Set(needs)].toSorted() }),
    ...(priority === undefined ? {} : { priority: priorityIn(priority) }),
  };
}

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
