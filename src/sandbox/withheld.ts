import { canonicalMounts, governingMount } from "./access.ts";
import { consentOf } from "./approval.ts";
import type { Mount } from "./mount.ts";
import type { Sandbox } from "./sandbox.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

type Withholding = Pick<Sandbox, "mounts" | "withheld">;

/**
 * A mount whose reading needs consent is apart until the user agreed: it is in no list from which tools, cells and views are
 * made. A mount around it is apart too, because it would show it.
 */
export function withheldApart(all: readonly Mount[]): Withholding {
  const asks = all.filter(({ approval }) => consentOf(approval, "read") !== "pre_approved");
  if (asks.length === 0) return { mounts: all };
  const isApart = ({ path }: Mount): boolean => asks.some((mount) => covers(path, mount.path));
  return { mounts: all.filter((mount) => !isApart(mount)), withheld: all.filter(isApart) };
}

/** The sandbox with everything that it declares, for deriving and judging. Nothing may be opened from it. */
export function declaredBy<Declared extends Withholding>(sandbox: Declared): Declared {
  const { mounts, withheld = [] } = sandbox;
  return withheld.length === 0 ? sandbox : { ...sandbox, mounts: canonicalMounts([...mounts, ...withheld]) };
}

/** The withheld mount that says what `path` allows, if it is one. */
export function withheldAt(sandbox: Withholding, path: VirtualPath): Mount | undefined {
  const mount = governingMount(declaredBy(sandbox), path);
  return mount !== undefined && sandbox.withheld?.includes(mount) ? mount : undefined;
}

/** Where the user can still agree to reading, for messages. What is blocked is not among it. */
export function readAfterApproval({ withheld = [] }: Pick<Sandbox, "withheld">): VirtualPath[] {
  const isBlocked = ({ path }: Mount): boolean =>
    withheld.some((mount) => covers(path, mount.path) && consentOf(mount.approval, "read") === "blocked");
  return withheld.filter((mount) => !isBlocked(mount)).map(({ path }) => path);
}
