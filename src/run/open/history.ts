import type { Project } from "../../declarations/project.ts";
import { parseSize } from "../../declarations/yaml/shape.ts";
import { DEFAULT_MAX_BYTES } from "../../history/retention.ts";
import type { Env } from "../../secrets/read-secret.ts";
import { StateDirError } from "../../state/state-dir.ts";
import { type History, noHistory } from "../model/environment.ts";
import type { Emit } from "../model/events.ts";
import { ProjectHistory } from "../recorded/run-history.ts";

/** The history of the runs of a project; closing it waits until everything is written. `engineEnv`: Corral's own environment. */
export function openHistory(
  { dir: projectDir, history: keep }: Pick<Project, "dir" | "history">,
  { stateDir, engineEnv }: { readonly stateDir: string; readonly engineEnv: Env },
  ownerDir: string,
  emit: Emit,
): { readonly history: History; readonly close: () => Promise<void> } {
  const maxBytes = historyBytes(engineEnv);
  if (keep === null || maxBytes === null) return { history: noHistory, close: async () => {} };
  const history = new ProjectHistory({ stateDir, projectDir, ownerDir, keep, maxBytes }, emit);
  return { history, close: () => history[Symbol.asyncDispose]() };
}

/**
 * What the history of all projects may use on the disk, from `CORRAL_HISTORY`; null: nothing is kept.
 *
 * @throws StateDirError
 */
export function historyBytes({ CORRAL_HISTORY: said }: Env): number | null {
  if (said === undefined || said === "") return DEFAULT_MAX_BYTES;
  if (said === "off") return null;
  const bytes = parseSize(said);
  if (bytes !== null) return bytes;
  throw new StateDirError("CORRAL_HISTORY must be `off`, or a size such as 512m or 2g for the history of all projects");
}
