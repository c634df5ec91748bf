import type { RunEnvironment } from "./model/environment.ts";
import type { BegunRun, RunHistory } from "./model/history.ts";
import { maskedEmit } from "./recorded/masked.ts";

/** The environment of one root run whose events are kept in the history; and what stops it from outside. */
export function keptRun<Env extends Pick<RunEnvironment, "history" | "emit" | "masking">>(
  begun: BegunRun,
  env: Env,
): Pick<RunHistory, "stopped" | "closed"> & { readonly env: Env } {
  const kept = env.history.begin(begun);
  const { masking } = env;
  const see = maskedEmit((event) => kept.see(event), masking);
  const emit: Env["emit"] = (event) => {
    see(event);
    env.emit(event);
  };
  const closed: RunHistory["closed"] = (session) => kept.closed(masking.value(begun.run, session));
  return { env: { ...env, emit }, stopped: kept.stopped, closed };
}
