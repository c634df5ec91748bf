import { createHash } from "node:crypto";

/**
 * What a project is called in Corral's state directory, where its trail, fleets, transcripts and mirrors are kept.
 * `projectDir`: absolute, with no symbolic link in it, so that one project has one name.
 */
export function stateNameOf(projectDir: string): string {
  return createHash("sha256").update(projectDir).digest("hex").slice(0, 16);
}
