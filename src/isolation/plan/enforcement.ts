/** What a plan requests for isolation, each line as the text that is compared. */
export type EnforcementLine =
  | "mounts"
  | "rootFileSystem"
  | "user"
  | "capabilities"
  | "noNewPrivileges"
  | "seccomp"
  | "network"
  | "memory"
  | "memoryAndSwap"
  | "pids"
  | "cpus"
  | "openFiles"
  | "fileSize";

export type EnforcementLines = Readonly<Record<EnforcementLine, string>>;

/** What a plan requested, and what the cell reported before its worker ran. Never assumed, always reported. */
export interface Enforcement {
  readonly requested: EnforcementLines;
  readonly actual: EnforcementLines;
}
