import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { CellHost } from "../model/environment.ts";

/** What no cell may be shown is not for the tools on the host's side either, and they need no cell. */
export function refusedMounts(sandbox: Sandbox, env: CellHost): Violation[] {
  return sandbox.mounts.flatMap(({ path, host, view }): Violation[] => {
    // A view is Corral's own; what it shows was judged when it was made.
    const reason = view === undefined ? refusalOf(host, env.refusedSources) : null;
    return reason === null ? [] : [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  });
}
