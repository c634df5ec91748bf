import { type LiveGrant, listLiveGrants, revokeLiveGrant } from "../state/live-grants.ts";
import { currentOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
import { chosenId, noneText, RequestError } from "./request-error.ts";

/** What running workers were granted beyond their declarations, in all processes of a state directory; the oldest first. */
export async function listGrants(stateDir: string): Promise<LiveGrant[]> {
  return await listLiveGrants(statePaths(stateDir).live, currentOwner());
}

/**
 * Takes a grant back. Tools lose it at once, and containers that have it are replaced. `asked`: its id, a prefix of it, or
 * `latest`. Answers with the id.
 *
 * @throws RequestError UNKNOWN_GRANT, AMBIGUOUS_ID
 */
export async function revokeGrant(stateDir: string, asked: string): Promise<string> {
  const unknown = () => new RequestError("UNKNOWN_GRANT", asked, noneText("grant", asked));
  const known = (await listGrants(stateDir)).toReversed().map((grant) => ({ id: grant.id, about: aboutGrant(grant) }));
  const id = chosenId(asked, known, unknown);
  if (!(await revokeLiveGrant(statePaths(stateDir).live, currentOwner(), id))) throw unknown();
  return id;
}

function aboutGrant(grant: LiveGrant): string {
  return `${grant.worker}: ${"to" in grant ? grant.to : grant.directory}, ${grant.grantedAt}`;
}
