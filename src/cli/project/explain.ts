import { explainWorker } from "../../operations/explained-worker.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { type Asked, declaredWorker } from "../declared/declared-worker.ts";
import { colorsFor, printJson, type Terminal, withoutControls } from "../terminal/terminal.ts";
import { explanationText } from "./explain-text.ts";

interface ExplainOptions extends Omit<Asked, "worker"> {
  readonly json?: boolean;
}

/** `corral explain`. Shows host paths: its reader is the person whose files they are. Exit status 1 if the worker would be refused. */
export async function explainVerb(
  name: string | undefined,
  options: ExplainOptions,
  terminal: Terminal,
): Promise<number> {
  const { env, stdout } = terminal;
  const { project, worker, policy } = await declaredWorker({ ...options, worker: name }, terminal);
  const explanation = await explainWorker(worker, { project, policy, stateDir: stateDirFrom(env), engineEnv: env });
  if (options.json) printJson(terminal, explanation);
  else stdout.write(`${withoutControls(explanationText(explanation, colorsFor(stdout, env)))}\n`);
  return explanation.tree.refused === null ? 0 : 1;
}
