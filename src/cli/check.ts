import { resolve } from "node:path";
import { loadProject } from "../declarations/project.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import type { Colors } from "../operations/wording/colors.ts";
import { type CheckReport, check, checkDeclaration } from "../run/explain/check.ts";
import { openPreview } from "../run/open/preview.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { colorsFor, printJson, type Terminal, withoutControls } from "./terminal/terminal.ts";

export interface CheckOptions {
  readonly project: string;
  readonly json?: boolean;
}

/** `corral check`. Exit status 1 where anything would be refused. */
export async function checkVerb(options: CheckOptions, terminal: Terminal): Promise<number> {
  const { cwd, env, stdout } = terminal;
  const report = await reportOn(options.project, env);
  if (options.json) printJson(terminal, report);
  else stdout.write(`${withoutControls(reportText(report, resolve(cwd, options.project), colorsFor(stdout, env)))}\n`);
  return report.ok ? 0 : 1;
}

async function reportOn(dir: string, env: Terminal["env"]): Promise<CheckReport> {
  try {
    const project = await loadProject(dir);
    const preview = await openPreview(project, { stateDir: stateDirFrom(env), engineEnv: env });
    return await check(preview);
  } catch (error) {
    if (error instanceof DeclarationError) return checkDeclaration(error);
    throw error;
  }
}

function reportText(report: CheckReport, dir: string, colors: Colors): string {
  const { problems, failing, warnings, workers, paths, cut } = report;
  const lines = [...problems];
  for (const { path, outcome, message } of failing) {
    lines.push(`${colors.red(outcome)} ${path.join(" > ")}`, ...message.split("\n").map((line) => `  - ${line}`));
  }
  for (const warning of warnings) lines.push(`${colors.yellow("warning")} ${warning}`);
  if (problems.length > 0)
    lines.push(`${count(problems.length, "mistake")}; call paths are looked at once there are none`);
  else if (workers === 0) lines.push(`Nothing to check: there are no workers in ${dir}.`);
  else {
    const outcome =
      failing.length === 0 ? colors.green("all would run") : colors.red(`${failing.length} would not run`);
    lines.push(`${count(workers, "worker")}, ${count(paths, "call path")}: ${outcome}`);
  }
  if (cut) lines.push(`there are more call paths; only the first ${paths} were looked at`);
  return lines.join("\n");
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
