/* What one operation on a repository takes, for whoever it is done. */

/** The largest file that is kept in a repository, in bytes. */
export const MAX_FILE_BYTES = 50 * 1024 * 1024;
export const MAX_PULLED_FILES = 10_000;
export const MAX_PULLED_BYTES = 256 * 1024 * 1024;
export const MAX_STAGED_FILES = 1000;
/** Of all commits of one tree of runs together. */
export const MAX_TREE_STAGED_BYTES = 256 * 1024 * 1024;
/** Of one tree of runs, at one time. */
export const MAX_STAGED_COMMITS = 20;
/** How many names an answer lists of each kind. */
export const MAX_LISTED = 200;
