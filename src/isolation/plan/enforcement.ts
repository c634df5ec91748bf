/** What makes cells: the Engine, an OCI runtime without it, or bubblewrap for an ordinary user. */
export const DRIVER_NAMES = ["engine", "runc", "bwrap"] as const;
export type DriverName = (typeof DRIVER_NAMES)[number];

export type SocketMemory = "counted" | "not counted";

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
  /** What made the cell. */
  readonly driver: DriverName;
  readonly requested: EnforcementLines;
  readonly actual: EnforcementLines;
  /**
   * Whether what waits in sockets of the cell counts: as memory with version 2 of control groups, for a limit beside it with version 1, which
   * only root can set. Absent: not known.
   */
  readonly socketMemory?: SocketMemory;
  /** Absent: the cell's is this machine's. */
  readonly kernel?: string;
}
