import { mountNames, select, writablePaths } from "./access.ts";
import { whoTookReading, whoTookWriting } from "./ancestry.ts";
import { type Grant, type Granted, openGrants } from "./grant.ts";
import type { Needs, ZoneNeed } from "./needs.ts";
import type { Sandbox } from "./sandbox.ts";
import { stagingOf } from "./staging.ts";
import type { Violation } from "./violation.ts";
import type { VirtualPath } from "./virtual-path.ts";

/** `zones`: mounts of the project by name, as far as the parent still has them. */
export function openZones(parent: Sandbox, zones: readonly ZoneNeed[], needs: Needs): Granted {
  const grants: Grant[] = [];
  const violations: Violation[] = [];
  for (const zone of zones) {
    const write = zone.mode === "rw" && !needs.readonly;
    const places = parent.mounts.filter((mount) => mount.name === zone.name).map((mount) => mount.path);
    grants.push(...places.map((prefix) => ({ prefix, write, approval: zone.approval, staging: stagingOf(zone) })));
    if (places.length === 0) violations.push(notAvailable(parent, zone.name));
    else if (write) violations.push(...whyNotWritable(parent, places));
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}

function notAvailable(parent: Sandbox, name: string): Violation {
  const by = whoTookReading(parent, `/${name}` as VirtualPath);
  return { code: "MOUNT_NOT_AVAILABLE", asked: name, by, valid: mountNames(parent) };
}

/** A request to write all of a zone is refused if any part of it is read-only: half of what was asked would surprise later. */
function whyNotWritable(parent: Sandbox, places: readonly VirtualPath[]): Violation[] {
  const fixed = places.flatMap((place) => select(parent, place)).find((mount) => mount.mode === "ro");
  if (fixed === undefined) return [];
  const by = whoTookWriting(parent, fixed.path);
  return [{ code: "WRITE_NOT_AVAILABLE", asked: fixed.path, has: "ro", by, valid: writablePaths(parent) }];
}
