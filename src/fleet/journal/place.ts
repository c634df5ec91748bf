import { join } from "node:path";
import { stateNameOf } from "../../state/state-name.ts";

/** Where the fleets of one project are kept. `projectDir`: absolute, with no symbolic link in it. */
export function journalPath(stateDir: string, projectDir: string): string {
  return join(stateDir, "fleets", stateNameOf(projectDir), "fleets.db");
}
