import { createHash } from "node:crypto";
import { join } from "node:path";

/** Where the fleets of one project are kept. `projectDir`: absolute, with no symbolic link in it. */
export function journalPath(stateDir: string, projectDir: string): string {
  const name = createHash("sha256").update(projectDir).digest("hex").slice(0, 16);
  return join(stateDir, "fleets", name, "fleets.db");
}
