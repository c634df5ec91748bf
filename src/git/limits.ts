/* The limits of operations on repositories, for all callers. */

/** The largest file that is pulled or staged. */
export const MAX_FILE_BYTES = 50 * 1024 * 1024;
export const MAX_PULLED_FILES = 10_000;
export const MAX_PULLED_BYTES = 256 * 1024 * 1024;
export const MAX_STAGED_FILES = 1000;
/** For all commits of one tree of runs together. */
export const MAX_TREE_STAGED_BYTES = 256 * 1024 * 1024;
/** For one tree of runs, at one time. */
export const MAX_STAGED_COMMITS = 20;
/** The most names of each kind in an answer. */
export const MAX_LISTED = 200;
