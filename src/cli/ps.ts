import { openEngine } from "../isolation/open-engine.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { columns } from "./terminal/table.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";

/** `corral ps`: every cell of this state directory, whatever its state. Removes nothing. */
export async function psVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const engine = await openEngine({ stateDir: stateDirFrom(env), engineEnv: env });
  const cells = (await engine.driver.list()).toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  if (options.json) printJson(terminal, cells);
  else if (cells.length === 0) say(terminal, "Nothing runs.");
  else {
    const head = ["RUN", "WORKER", "STATE", "CALLED BY", "OWNER", "CREATED"];
    const rows = cells.map(({ run, worker, state, parent, owner, ownerAlive, createdAt }) => {
      return [run, worker, state, parent ?? "-", `${owner.pid}${ownerAlive ? "" : " (dead)"}`, createdAt];
    });
    stdout.write(`${columns([head, ...rows])}\n`);
  }
  return 0;
}
