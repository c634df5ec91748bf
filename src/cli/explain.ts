import { loadProject } from "../declarations/project.ts";
import { explain } from "../run/explain/explain.ts";
import { openPreview } from "../run/open/preview.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { explanationText } from "./explain-text.ts";
import { namedWorker } from "./terminal/named-worker.ts";
import { colorsFor, printJson, type Terminal, withoutControls } from "./terminal/terminal.ts";

export interface ExplainOptions {
  readonly project: string;
  readonly policy?: string;
  readonly json?: boolean;
}

/** `corral explain`. Shows host paths, for it is read by the person whose files they are. */
export async function explainVerb(name: string, options: ExplainOptions, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const project = await loadProject(options.project);
  const worker = namedWorker(name, project);
  const preview = await openPreview(project, { stateDir: stateDirFrom(env), engineEnv: env });
  const explanation = await explain(worker, options.policy ?? null, preview);
  if (options.json) printJson(terminal, explanation);
  else stdout.write(`${withoutControls(explanationText(explanation, colorsFor(stdout, env)))}\n`);
  return 0;
}
