import { hasCode } from "./errno.ts";

/** Errors of the host, which say nothing about the run: no descriptor, no memory, no space, or a disk that fails. */
const OF_THE_HOST = ["EDQUOT", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EROFS"] as const;

export function isHostTrouble(error: unknown): error is NodeJS.ErrnoException {
  return hasCode(error, ...OF_THE_HOST);
}
