import { readablePaths, select, writablePaths } from "./access.ts";
import { whoTookReading, whoTookWriting } from "./ancestry.ts";
import { type Grant, type Granted, openGrants } from "./grant.ts";
import type { Needs } from "./needs.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Violation } from "./violation.ts";
import { covers, ROOT, type VirtualPath } from "./virtual-path.ts";

/** `inherit`, `allow_read` and `allow_write`. With lists, `inherit` adds nothing: the lists say it all. */
export function openAllowlists(parent: Sandbox, needs: Needs): Granted {
  const { allowRead, allowWrite, readonly = false } = needs;
  if (allowRead === undefined && allowWrite === undefined) {
    return openGrants(parent, needs.inherit ? [{ prefix: ROOT, write: !readonly }] : [], needs);
  }
  const reads = allowRead ?? allowWrite ?? [];
  const writes = readonly ? [] : (allowWrite ?? []);

  const missing = [...new Set([...reads, ...(allowWrite ?? [])])].filter((path) => select(parent, path).length === 0);
  const violations = missing.map((asked): Violation => {
    const by = whoTookReading(parent, asked);
    return { code: "PATH_NOT_AVAILABLE", asked, by, valid: readablePaths(parent) };
  });
  const grants: Grant[] = reads.map((prefix) => ({ prefix, write: false }));
  for (const asked of writes) {
    if (missing.includes(asked)) continue;
    // A write entry opens only what is writable: the rest of it may be outside of the read list.
    const writable = select(parent, asked).filter((mount) => mount.mode === "rw");
    grants.push(...writable.map((mount) => ({ prefix: mount.path, write: true })));
    violations.push(
      ...whyNotWritable(
        parent,
        asked,
        writable.map((mount) => mount.path),
        reads,
      ),
    );
  }
  const opened = openGrants(parent, grants, needs);
  return { mounts: opened.mounts, violations: [...violations, ...opened.violations] };
}

function whyNotWritable(
  parent: Sandbox,
  asked: VirtualPath,
  writable: readonly VirtualPath[],
  reads: readonly VirtualPath[],
): Violation[] {
  if (writable.length === 0) {
    const by = whoTookWriting(parent, asked);
    return [{ code: "WRITE_NOT_AVAILABLE", asked, has: "ro", by, valid: writablePaths(parent) }];
  }
  const readable = writable.every((path) => reads.some((prefix) => covers(prefix, path)));
  return readable ? [] : [{ code: "WRITE_NOT_READABLE", asked, valid: [...reads] }];
}
