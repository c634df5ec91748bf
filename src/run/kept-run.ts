import type { RunEnvironment } from "./model/environment.ts";
import type { BegunRun, RunHistory } from "./model/history.ts";

/** The environment of one root run whose events are kept in the history; and what stops it from outside. */
export function keptRun<Env extends Pick<RunEnvironment, "history" | "emit">>(
  begun: BegunRun,
  env: Env,
): Pick<RunHistory, "stopped" | "closed"> & { readonly env: Env } {
  const kept = env.history.begin(begun);
  const emit: Env["emit"] = (event) => {
    kept.see(event);
    env.emit(event);
  };
  return { env: { ...env, emit }, stopped: kept.stopped, closed: kept.closed };
}
