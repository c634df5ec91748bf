import { resolve } from "node:path";
import { ENVIRONMENT_PLACE, type Plan, SECRETS_PATH } from "../../isolation/plan/plan.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { CheckReport } from "../../run/explain/check.ts";
import type { ExplainedAgent, ExplainedRun, ExplainedService, Explanation } from "../../run/explain/explain.ts";
import { LIMIT_NAMES } from "../../sandbox/limits.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { type ShownNetwork, urlInside } from "../../sandbox/network/rule.ts";
import { HARDENING_LINES, type Policy } from "../../sandbox/policy.ts";
import {
  hardeningText,
  limitAmount,
  limitText,
  networkText,
  networkTexts,
  type ShownNarrowing,
} from "../../sandbox/wording.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted, formatBytes } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import type { NamedWork } from "../declared/declared-worker.ts";
import { known, projectMeant } from "../host/at-service.ts";
import { branch } from "../run/tree.ts";
import { type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { colorsFor, printJson, printList, say, type Terminal, withoutControls } from "../terminal/terminal.ts";

/** The explanation as a tree for people: each run with what it has, what it lost by whom, and below it its calls. */
export function explanationText({ tree, notes }: Explanation, colors: Colors): string {
  const lines = [...runLines(tree, 0, colors), ...notes.map((note) => colors.dim(`Note: ${note}`))];
  return lines.join("\n");
}

/** `known`: how many narrowings the caller's own lines have shown already. */
function runLines(run: ExplainedRun, known: number, colors: Colors): string[] {
  const body = bodyOf(run, known, colors);
  const children = [
    ...run.services.map((service) => ({ title: `service ${serviceText(service)}: `, child: service.run })),
    ...run.calls.map((child) => ({ title: "", child })),
  ];
  const bar = children.length > 0 ? "│ " : "  ";
  const below = children.flatMap(({ title, child }, index) => {
    const [first = "", ...rest] = runLines(child, run.narrowings.length, colors);
    return branch([title + first, ...rest], index === children.length - 1, colors);
  });
  const outcome =
    run.refused !== null
      ? ` ${colors.red("would be refused")}`
      : run.consent?.decision === "denied" && !run.consent.ruled
        ? ` ${colors.red("would be denied")}`
        : "";
  return [`${colors.bold(run.worker)}${outcome}`, ...body.map((line) => colors.dim(bar) + line), ...below];
}

/** `db at localhost:5432, ready when pg_isready succeeds`. */
function serviceText({ name, ports, ready }: ExplainedService): string {
  const places = ports.map((port) => `localhost:${port}`).join(", ");
  const when = ready === null ? "it takes connections" : `${ready.map(argument).join(" ")} succeeds`;
  return `${name} at ${places}, ready when ${when}`;
}

function bodyOf(
  { sandbox, plan, agent, refused, narrowings, notes }: ExplainedRun,
  known: number,
  colors: Colors,
): string[] {
  const lines: string[] = [];
  for (const { message } of refused ?? []) lines.push(`${colors.red("✗")} ${message}`);
  if (sandbox !== null) {
    lines.push(...table("files", sandbox.mounts.length === 0 ? ["none"] : mountLines(sandbox.mounts, plan), colors));
    lines.push(...table("network", networkLines(sandbox.network), colors));
    const only = networkTexts(sandbox.commandNetwork ?? false).filter(
      (text) => !networkTexts(sandbox.network).includes(text),
    );
    if (sandbox.commandNetwork !== undefined)
      lines.push(
        ...table(
          "granted",
          only.map((text) => `${text}, to commands whose shell rule says so`),
          colors,
        ),
      );
    if (sandbox.secrets !== undefined) lines.push(...table("secrets", sandbox.secrets.map(secretFile), colors));
    if (sandbox.writableRoot) lines.push(...table("root", [WRITABLE_ROOT], colors));
    lines.push(...table("policy", [policyText(sandbox.policy)], colors));
  }
  if (agent !== null) lines.push(...agentLines(agent, colors));
  if (plan !== null) lines.push(...planLines(plan, colors));
  const taken = narrowings
    .slice(known)
    .map((narrowing) => `${narrowingText(narrowing)} ${colors.dim(`by ${narrowing.by}`)}`);
  lines.push(...table("narrowed", taken, colors));
  lines.push(...notes.map((note) => colors.dim(`note: ${note}`)));
  return lines;
}

function policyText({ name, inherits = [] }: Policy): string {
  return [name, ...inherits].join(", which extends ");
}

function agentLines({ model, tools, budget }: ExplainedAgent, colors: Colors): string[] {
  const { steps, tokens, costUsd } = budget;
  const bounds = [`${steps} steps`, `${tokens} tokens`, ...(costUsd === null ? [] : [`${costUsd} US dollars`])];
  return [
    ...table("model", [model], colors),
    ...table("tools", [tools.join(", ") || "none"], colors),
    ...table("budget", [bounds.join(", ")], colors),
  ];
}

/** `pip at /env/python`. */
function packagesOf({ environments = [] }: Plan): string[] {
  return environments.map(({ kind, digest }) => `${kind} at ${ENVIRONMENT_PLACE[kind]}, ${digest.slice(0, 12)}`);
}

function planLines(plan: Plan, colors: Colors): string[] {
  const { limits, hardening } = plan;
  const bounds = [...LIMIT_NAMES.map((name) => limitText(name, limits[name])), `open files ${limits.nofile}`];
  const hard = HARDENING_LINES.flatMap((line) => hardeningText(line, hardening) ?? []);
  return [
    ...table("image", [`${plan.image.name} ${colors.dim(plan.image.id.replace("sha256:", "").slice(0, 12))}`], colors),
    ...table("packages", packagesOf(plan), colors),
    // An agent's cell is for the commands that its model runs.
    ...(plan.command.length === 0 ? [] : table("command", [plan.command.map(argument).join(" ")], colors)),
    ...table("user", [`${plan.user.uid}:${plan.user.gid}`], colors),
    ...table("starts in", [plan.workingDir], colors),
    ...table("limits", [bounds.join(", ")], colors),
    ...table("hardening", [hard.join(", ")], colors),
    ...table("own disk", [plan.tmpfs.map(({ path, bytes }) => `${path} ${formatBytes(bytes)}`).join(", ")], colors),
  ];
}

function secretFile(name: string): string {
  return `${name} as ${SECRETS_PATH}/${name}`;
}

/** The lines of a network begin with its rules. For a rule that is looked into, what a program in the cell writes. */
function networkLines(network: ShownNetwork): string[] {
  const rules = typeof network === "boolean" ? [] : network.allow;
  return networkTexts(network).map((text, index) => {
    const rule = rules[index];
    const url = rule === undefined ? null : urlInside(rule);
    return url === null ? text : `${text}, in the container ${url}`;
  });
}

/** A label before the first line, and the others below it. */
function table(label: string, lines: readonly string[], colors: Colors): string[] {
  return lines.map((line, index) => `${colors.cyan((index === 0 ? label : "").padEnd(10))} ${line}`);
}

function mountLines(mounts: readonly Mount[], plan: Plan | null): string[] {
  const width = Math.max(...mounts.map(({ path }) => path.length));
  return mounts.map((mount) => {
    // A service does not say where a mount is on its machine.
    const planned = plan?.mounts.find(
      ({ origin, host }) => origin === "sandbox" && host !== undefined && host === mount.host,
    );
    const inCell = planned === undefined || planned.path === mount.path ? "" : ` (as ${planned.path})`;
    const terms = termsOf(mount);
    const host = `${mount.host ?? ""}${inCell}`;
    return [`${mount.path.padEnd(width)} ${mount.mode}`, ...(host === "" ? [] : [host]), ...terms].join("  ");
  });
}

function termsOf({ own, mode, suffixes, maxFileBytes, approval, stage, discard }: Mount): string[] {
  const terms: string[] = [];
  if (own !== undefined) terms.push(own === "brought" ? "own path, not given by the project" : "own path");
  if (suffixes !== undefined) terms.push(`only ${suffixes.join(" ")}`);
  if (maxFileBytes !== undefined) terms.push(`files of at most ${formatBytes(maxFileBytes)}`);
  const { read = "pre_approved", call = "pre_approved" } = approval ?? {};
  if (read !== "pre_approved") terms.push(`read ${read}`);
  if (call !== "pre_approved") terms.push(`call ${call}`);
  if (mode === "rw") {
    const { write, delete: remove } = approval ?? { write: "ask", delete: "ask" };
    terms.push(write === remove ? `write and delete ${write}` : `write ${write}, delete ${remove}`);
    if (discard) terms.push("discarded");
    else if (stage) terms.push("staged");
  }
  return terms;
}

function narrowingText(narrowing: ShownNarrowing): string {
  switch (narrowing.kind) {
    case "mount":
      return `${narrowing.path} ${narrowing.from} → ${narrowing.to}`;
    case "approval":
      return `${narrowing.path} ${narrowing.operation} ${narrowing.from} → ${narrowing.to}`;
    case "constraint":
      return `${narrowing.path} ${CONSTRAINTS[narrowing.constraint]} ${valueText(narrowing.from)} → ${valueText(narrowing.to)}`;
    case "network":
      return `network ${networkText(narrowing.from)} → ${networkText(narrowing.to)}`;
    case "secrets":
      return `secrets ${names(narrowing.from)} → ${names(narrowing.to)}`;
    case "limit":
      return `${limitText(narrowing.limit, narrowing.from)} → ${limitAmount(narrowing.limit, narrowing.to)}`;
    case "policy":
      return `policy ${narrowing.from} → ${narrowing.to}`;
    case "grant":
      return `${narrowing.path} ${narrowing.from} → ${narrowing.to}, granted`;
    case "grant_network":
      return `network ${narrowing.to}, granted`;
  }
}

const WRITABLE_ROOT =
  "its sessions write /etc, /usr and /var of their container, within the disk limit; a run of it is refused";

function names(secrets: readonly string[]): string {
  return secrets.join(" ") || "none";
}

const CONSTRAINTS = { suffixes: "suffixes", maxFileBytes: "largest file" } as const;

function valueText(value: readonly string[] | number | null): string {
  if (value === null) return "any";
  return typeof value === "number" ? formatBytes(value) : value.join(" ");
}

function argument(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : JSON.stringify(text);
}

interface ExplainOptions extends Omit<NamedWork, "worker"> {
  readonly json?: boolean;
}

/** `corral explain`. Shows host paths: its reader is the person whose files they are. Exit status 1 if the worker would be refused. */
export async function explainVerb(
  name: string | undefined,
  options: ExplainOptions,
  terminal: Terminal,
): Promise<number> {
  const { env, stdout } = terminal;
  const explanation = await explained(name, options, terminal);
  if (options.json) printJson(terminal, explanation);
  else stdout.write(`${withoutControls(explanationText(explanation, colorsFor(stdout, env)))}\n`);
  return explanation.tree.refused === null ? 0 : 1;
}

async function explained(name: string | undefined, options: ExplainOptions, terminal: Terminal): Promise<Explanation> {
  const { service, env } = terminal;
  if (service === undefined) {
    const { declaredWorker } = await import("../declared/declared-worker.ts");
    const { explainWorker } = await import("../../operations/workers.ts");
    const { project, worker, policy } = await declaredWorker({ ...options, worker: name }, terminal);
    return await explainWorker(worker, { project, policy, stateDir: stateDirFrom(env), engineEnv: env });
  }
  if (name === undefined || (options.words ?? []).length > 0)
    throw new UsageError(
      "a service explains the workers of its projects as their files are: name one, without further words (--host local is this machine)",
    );
  return known(await service.client.call("workers.explain", { project: await projectMeant(service), worker: name }));
}

/** `corral check`. Exit status 1 if anything would be refused. */
export async function checkVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const { report, place } = await reportOn(options.project, terminal);
  if (options.json) printJson(terminal, report);
  else stdout.write(`${withoutControls(reportText(report, place, colorsFor(stdout, env)))}\n`);
  return report.ok ? 0 : 1;
}

/** `place`: the folder of the project, or what the service calls it. */
async function reportOn(dir: string, { service, cwd, env }: Terminal) {
  if (service === undefined) {
    const { checkProject } = await import("../../operations/implied-project.ts");
    const report = await checkProject(dir, { stateDir: stateDirFrom(env), engineEnv: env });
    return { report, place: resolve(cwd, dir) };
  }
  const place = await projectMeant(service);
  return { report: known<CheckReport>(await service.client.call("projects.check", { project: place })), place };
}

function reportText(report: CheckReport, dir: string, colors: Colors): string {
  const { problems, failing, warnings, workers, paths, cut, inherits } = report;
  const lines = [...problems];
  for (const { path, outcome, message } of failing) {
    lines.push(`${colors.red(outcome)} ${path.join(" > ")}`, ...message.split("\n").map((line) => `  - ${line}`));
  }
  for (const warning of warnings) lines.push(`${colors.yellow("warning")} ${warning}`);
  for (const [name, parents] of Object.entries(inherits))
    lines.push(`policy ${[name, ...parents].join(", which extends ")}`);
  if (problems.length > 0)
    lines.push(`${counted(problems.length, "mistake")}. Fix these first; call paths are checked after that`);
  else if (workers === 0) lines.push(`Nothing to check: there are no workers in ${dir}.`);
  else {
    const outcome =
      failing.length === 0 ? colors.green("all would run") : colors.red(`${failing.length} would not run`);
    lines.push(`${counted(workers, "worker")}, ${counted(paths, "call path")}: ${outcome}`);
  }
  if (cut) lines.push(`there are more call paths; only the first ${paths} were checked`);
  return lines.join("\n");
}

/** `corral workers ls`. Exit status 1 if a file of the project has a mistake. */
export async function listWorkersVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const { workers, problems } = await workersOf(options.project, terminal);
  if (options.json) printJson(terminal, { workers, problems });
  else if (workers.length > 0 || problems.length === 0)
    printList(terminal, false, workers, {
      head: ["WORKER", "IMAGE OR MODEL", "POLICY", "CALLS", "DESCRIPTION"],
      rowOf: ({ name, description, image, model, policy, calls }) =>
        [name, model ?? image, policy ?? "-", calls.join(",") || "-", description].map((cell) =>
          printableLine(cell, 60),
        ),
      none: "There are no workers in this project.",
    });
  if (!options.json) for (const problem of problems) say(terminal, problem);
  return problems.length === 0 ? 0 : 1;
}

async function workersOf(dir: string, { service, env }: Terminal) {
  if (service === undefined) return await (await import("../../operations/workers.ts")).listWorkers(dir, env);
  return await service.client.call("workers.list", { project: await projectMeant(service) });
}
