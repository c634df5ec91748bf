/** The largest tree that one operation deletes, copies or moves. */
export const MAX_TREE_ENTRIES = 100_000;
/** The deepest tree, counted from where an operation begins. */
export const MAX_TREE_DEPTH = 64;
/** The largest file that can be edited, since it is held in memory. */
export const MAX_EDIT_BYTES = 10 * 1024 ** 2;
/** The largest file that is read as a whole for a program. */
export const MAX_WHOLE_BYTES = 64 * 1024 ** 2;
/** The most that files in memory hold together. */
export const MAX_MEMORY_BYTES = 256 * 1024 ** 2;
