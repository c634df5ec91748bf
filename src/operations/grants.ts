import { type LiveGrant, listLiveGrants, revokeLiveGrant } from "../state/live-grants.ts";
import { currentOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
import { UnknownGrantError } from "./request-error.ts";

/** What running workers were granted beyond their declarations, in all processes of a state directory; the oldest first. */
export async function listGrants(stateDir: string): Promise<LiveGrant[]> {
  return await listLiveGrants(statePaths(stateDir).live, currentOwner());
}

/**
 * Takes a grant back. Tools lose it at once, and containers that have it are replaced.
 *
 * @throws UnknownGrantError
 */
export async function revokeGrant(stateDir: string, id: string): Promise<void> {
  if (!(await revokeLiveGrant(statePaths(stateDir).live, currentOwner(), id))) throw new UnknownGrantError(id);
}
