import type { Project } from "../../declarations/project.ts";
import type { GrantRecord } from "../../run/model/grant.ts";
import { say, type Terminal } from "../terminal/terminal.ts";

/** Tells the configuration that would have made the questions unnecessary; loaded only where something was granted. */
export async function tellSuggestion(
  project: Project,
  shownDir: string,
  grants: readonly GrantRecord[],
  terminal: Terminal,
): Promise<void> {
  if (grants.length === 0) return;
  const { suggestionText } = await import("./suggestion-text.ts");
  const text = await suggestionText(project, shownDir, grants);
  if (text !== null) say(terminal, text);
}
