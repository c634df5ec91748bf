import { holdFile } from "../../../state/file-lock.ts";
import { lockOwner, parseOwner } from "../../../state/owner.ts";

const POLL_MS = 200;
/** Longer than building every image takes on a slow machine. */
const MAX_WAIT_MS = 30 * 60_000;

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once, with its pid, when another process is building. */
  readonly onWait?: (pid: number) => void;
}

/** Waits until no other process holds `file`, and holds it until disposed of. What a dead process left is taken over. */
export async function acquireLock(file: string, { signal, onWait }: LockOptions = {}): Promise<AsyncDisposable> {
  return await holdFile(file, lockOwner(), {
    waitMs: MAX_WAIT_MS,
    longestPauseMs: POLL_MS,
    signal,
    onWait: (name) => onWait?.(parseOwner(name)?.pid ?? 0),
  });
}
