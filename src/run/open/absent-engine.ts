import type { Driver } from "../../isolation/port/driver.ts";

/** Stands where no Engine is, for what only looks: whatever is asked of it fails with the reason why there is none. */
export function absentEngine(reason: Error): Driver {
  const fail = async (): Promise<never> => {
    throw reason;
  };
  return {
    name: "none",
    capabilities: fail,
    imageFacts: fail,
    start: fail,
    startSession: fail,
    startServing: fail,
    list: fail,
    reap: fail,
  };
}
