import { openEngine } from "../isolation/open-engine.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";

/** `corral reap`: removes what dead orchestrators left behind, and tells what that was. */
export async function reapVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const engine = await openEngine({ stateDir: stateDirFrom(env), engineEnv: env });
  const reaped = await engine.driver.reap();
  if (options.json) {
    printJson(terminal, reaped);
    return 0;
  }
  const lines = [
    ...reaped.cells.map((run) => `container of run ${run}`),
    ...reaped.volumes.map((name) => `volume ${name}`),
    ...reaped.directories.map((name) => `directory ${name}`),
  ];
  if (lines.length === 0) say(terminal, "Nothing was left behind.");
  for (const line of lines) stdout.write(`removed ${line}\n`);
  return 0;
}
