import { ServiceFault } from "../http/fault.ts";
import type { Caller } from "../http/route.ts";
import { permits } from "../http/router.ts";

/** @throws ServiceFault */
export function refuseStopping(over: AbortSignal): void {
  if (over.aborted) throw new ServiceFault(503, "STOPPING", "the service is being stopped");
}

/** A policy decides how weak a container may be. @throws ServiceFault */
export function refusePolicy(policy: string | undefined, caller: Caller): void {
  if (policy !== undefined && !permits(caller, "admin"))
    throw new ServiceFault(403, "FORBIDDEN", "another policy than the project's needs a token with the role admin");
}
