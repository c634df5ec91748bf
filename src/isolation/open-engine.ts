import { makeStateDir } from "../state/state-dir.ts";
import { openDockerEngine } from "./engine/open.ts";
import type { EnginePort, OpenEngineRequest } from "./port/engine.ts";

/** Every engine that Corral can run cells on: each is one folder here, and one line of this table. */
const ENGINES = { docker: openDockerEngine } satisfies Record<
  string,
  (request: OpenEngineRequest) => Promise<EnginePort>
>;

/** The one place that chooses an engine. Everything else knows it by its port. */
const CHOSEN: keyof typeof ENGINES = "docker";

/**
 * Opens the engine of this machine in this process's name, and makes the state directory if it is missing and needed.
 *
 * @throws StateDirError if the state directory cannot be used, EngineUnavailableError if no engine answers.
 */
export async function openEngine(request: OpenEngineRequest): Promise<EnginePort> {
  if (!request.looksOnly) await makeStateDir(request.stateDir);
  return await ENGINES[CHOSEN](request);
}
