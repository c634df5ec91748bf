import { type Approver, denied } from "../../approval/approver.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { RecordedApprover } from "../../run/recorded/approver.ts";

/** No run is granted a directory of this machine, whatever the rules say: an item reads and writes those of its coordinator. */
export function deniesDirectories(run: Pick<RunEnvironment, "approver" | "audit" | "emit" | "now">): Approver {
  const denying = new RecordedApprover({ decide: async () => denied(NO_DIRECTORIES) }, run.audit, run);
  return {
    decide: (request, signal) =>
      (request.operations.some((one) => one === "grant_read" || one === "grant_write") ? denying : run.approver).decide(
        request,
        signal,
      ),
  };
}

const NO_DIRECTORIES =
  "the item runs on another machine, and its coordinator's other directories are not there; declare the directory as a mount of the worker, or run the fleet without machines";
