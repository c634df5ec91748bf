import { printableLine } from "../operations/wording/printable.ts";
import { listLiveGrants, revokeLiveGrant } from "../state/live-grants.ts";
import { currentOwner } from "../state/owner.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { statePaths } from "../state/state-paths.ts";
import { columns } from "./terminal/table.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";
import { UsageError } from "./terminal/usage-error.ts";

/** `corral grants ls`: what running workers were granted beyond their declarations. Needs no Engine. */
export async function listVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const grants = await listLiveGrants(liveDirFrom(terminal), currentOwner());
  if (options.json) printJson(terminal, grants);
  else if (grants.length === 0) say(terminal, "Nothing is granted.");
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

/** `corral grants revoke`: takes a grant back from whoever runs with it. Tools lose it at once, containers are replaced. */
export async function revokeVerb(
  id: string,
  options: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const revoked = await revokeLiveGrant(liveDirFrom(terminal), currentOwner(), id);
  if (!revoked) throw new UsageError(`there is no grant ${printableLine(id, 80)}; corral grants ls lists them`);
  if (options.json) printJson(terminal, { revoked: id });
  else say(terminal, `Grant ${id} was taken back.`);
  return 0;
}

function liveDirFrom({ env }: Terminal): string {
  return statePaths(stateDirFrom(env)).live;
}
