import { type LiveGrant, listLiveGrants, revokeLiveGrant } from "../state/live-grants.ts";
import { currentOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
import { RequestError } from "./request-error.ts";
import { printableLine } from "./wording/printable.ts";

/** What running workers were granted beyond their declarations, in all processes of a state directory; the oldest first. */
export async function listGrants(stateDir: string): Promise<LiveGrant[]> {
  return await listLiveGrants(statePaths(stateDir).live, currentOwner());
}

/** Takes a grant back. Tools lose it at once, and containers that have it are replaced. @throws RequestError UNKNOWN_GRANT */
export async function revokeGrant(stateDir: string, id: string): Promise<void> {
  if (await revokeLiveGrant(statePaths(stateDir).live, currentOwner(), id)) return;
  throw new RequestError("UNKNOWN_GRANT", id, `there is no grant ${printableLine(id, 80)}`);
}
