/** The lines in which a plan asks for isolation, each as the text in which it is compared. */
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

/** What a plan asked for, and what the cell was found to have before its worker ran. Never assumed, always reported. */
export interface Enforcement {
  readonly requested: EnforcementLines;
  readonly actual: EnforcementLines;
}
