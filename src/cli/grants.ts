import { listGrants, revokeGrant } from "../operations/grants.ts";
import { printableLine } from "../operations/wording/printable.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { columns, printJson, say, type Terminal } from "./terminal/terminal.ts";

/** `corral grants ls`. Needs no Engine. */
export async function listVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const grants = await listGrants(stateDirFrom(terminal.env));
  if (options.json) printJson(terminal, grants);
  else if (grants.length === 0) say(terminal, "There are no grants.");
  else {
    const head = ["ID", "WORKER", "DIRECTORY", "MODE", "FOR", "THROUGH", "HOST", "SINCE"];
    const rows = grants.map(({ id, worker, directory, mode, scope, through, host, grantedAt }) =>
      [id, worker, directory, mode, scope, through.join(" > "), host, grantedAt].map((cell) =>
        printableLine(String(cell)),
      ),
    );
    terminal.stdout.write(`${columns([head, ...rows])}\n`);
  }
  return 0;
}

/** `corral grants revoke`. */
export async function revokeVerb(
  id: string,
  options: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  await revokeGrant(stateDirFrom(terminal.env), id);
  if (options.json) printJson(terminal, { revoked: id });
  else say(terminal, `Grant ${id} was revoked.`);
  return 0;
}
