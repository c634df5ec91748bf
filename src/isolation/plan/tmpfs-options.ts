import type { Plan, PlannedTmpfs } from "./plan.ts";

/** The mount options of a file system in memory, as the kernel takes them. */
export function tmpfsOptions(tmpfs: PlannedTmpfs, { user }: Pick<Plan, "user">): string {
  const owner = tmpfs.mode === "1777" ? "" : `,uid=${user.uid},gid=${user.gid}`;
  return `rw,nosuid,nodev,${tmpfs.exec ? "exec" : "noexec"},size=${tmpfs.bytes},mode=${tmpfs.mode}${owner}`;
}
