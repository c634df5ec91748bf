import { canonicalMounts, isShown, readablePaths } from "./access.ts";
import { openAllowlists } from "./allowlist-needs.ts";
import { whoTookWriting } from "./ancestry.ts";
import { deriveCeilings } from "./ceilings.ts";
import type { Granted } from "./grant.ts";
import type { Mount } from "./mount.ts";
import { narrowingsOf } from "./narrowing.ts";
import type { Needs } from "./needs.ts";
import { openPaths } from "./path-needs.ts";
import type { Derivation, Sandbox } from "./sandbox.ts";
import { deriveSecrets } from "./secret-needs.ts";
import type { Violation } from "./violation.ts";
import { ROOT } from "./virtual-path.ts";
import { declaredBy, withheldApart } from "./withheld.ts";
import { openZones } from "./zone-needs.ts";

/** The child's sandbox: what `needs` asks of `parent`, or every reason why not. Pure. */
export function derive(given: Sandbox, needs: Needs, child: string): Derivation {
  // What waits for the user's consent may be asked for as well: it is apart in the child too.
  const parent = declaredBy(given);
  const files = openFiles(parent, needs);
  const { network, limits, policy, violations } = deriveCeilings(parent, needs);
  const secrets = deriveSecrets(parent, needs.secrets ?? [], policy);
  const mounts = canonicalMounts(files.mounts.map(({ mount }) => mount));
  const refused = [
    ...readonlyEscalation(parent, needs),
    // If files were refused, the mounts are not those that were asked for: a check of the directory would mislead.
    ...(files.violations.length > 0 ? files.violations : unseenWorkingDir(mounts, needs)),
    ...violations,
    ...secrets.violations,
  ];
  if (refused.length > 0) return { ok: false, violations: withoutRepeats(refused) };

  const sandbox = {
    chain: [...parent.chain, child],
    mounts,
    workingDir: needs.workingDir ?? ROOT,
    network,
    ...secrets.given,
    limits,
    policy,
    // Mounts that a worker names itself make a namespace of their own, in which `/` is no mount.
    rooted: parent.rooted && needs.paths === undefined,
  };
  const narrowings = [...parent.narrowings, ...narrowingsOf(parent, sandbox, files.mounts, child)];
  return { ok: true, sandbox: { ...sandbox, ...withheldApart(mounts), narrowings } };
}

/** A worker asks for files in exactly one way. Without any it gets none. */
function openFiles(parent: Sandbox, needs: Needs): Granted {
  if (needs.zones !== undefined) return openZones(parent, needs.zones, needs);
  if (needs.paths !== undefined) return openPaths(parent, needs.paths, needs);
  return openAllowlists(parent, needs);
}

/** `readonly: false` asks for something writable, which a read-only parent cannot give. */
function readonlyEscalation(parent: Sandbox, needs: Needs): Violation[] {
  const bringsItsOwn = needs.paths !== undefined && parent.ownPaths;
  if (needs.readonly !== false || bringsItsOwn || parent.mounts.length === 0) return [];
  if (parent.mounts.some((mount) => mount.mode === "rw")) return [];
  return [{ code: "READONLY_ESCALATION", by: whoTookWriting(parent, ROOT) }];
}

/** A cell cannot start in a directory that it does not have. */
function unseenWorkingDir(mounts: readonly Mount[], { workingDir = ROOT }: Needs): Violation[] {
  if (isShown({ mounts }, workingDir)) return [];
  return [{ code: "WORKING_DIR_NOT_AVAILABLE", asked: workingDir, valid: readablePaths({ mounts }) }];
}

function withoutRepeats(violations: readonly Violation[]): Violation[] {
  return [...new Map(violations.map((violation) => [JSON.stringify(violation), violation])).values()];
}
