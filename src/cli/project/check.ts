import { resolve } from "node:path";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { CheckReport } from "../../run/explain/check.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { known, projectMeant } from "../host/at-service.ts";
import type { ProjectOptions } from "../terminal/arguments.ts";
import { colorsFor, printJson, printList, say, type Terminal, withoutControls } from "../terminal/terminal.ts";

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
