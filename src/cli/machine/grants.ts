import { listGrants, revokeGrant } from "../../operations/grants.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printableLine } from "../../text/visible.ts";
import { printJson, printList, say, type Terminal } from "../terminal/terminal.ts";

/** `corral grants ls`. Needs no Engine. */
export async function listGrantsVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const grants = await listGrants(stateDirFrom(terminal.env));
  printList(terminal, options.json, grants, {
    head: ["ID", "WORKER", "DIRECTORY OR HOST", "MODE", "FOR", "THROUGH", "ON THE HOST", "SINCE"],
    rowOf: (grant) => {
      const { id, worker, scope, through, grantedAt } = grant;
      const [what, mode, host] = "to" in grant ? [grant.to, "reach", "-"] : [grant.directory, grant.mode, grant.host];
      const cells = [id, worker, what, mode, scope, through.join(" > "), host, grantedAt];
      return cells.map((cell) => printableLine(String(cell)));
    },
    none: "There are no grants.",
  });
  return 0;
}

/** `corral grants revoke`. */
export async function revokeVerb(
  asked: string,
  options: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const id = await revokeGrant(stateDirFrom(terminal.env), asked);
  if (options.json) printJson(terminal, { revoked: id });
  else say(terminal, `Grant ${id} was revoked.`);
  return 0;
}
