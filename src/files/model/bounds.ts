/** The largest tree that one operation deletes, copies or moves. */
export const MAX_TREE_ENTRIES = 100_000;
/** The deepest tree, counted from where an operation begins. */
export const MAX_TREE_DEPTH = 64;
/** The largest file that can be edited, since it is held in memory. */
export const MAX_EDIT_BYTES = 10 * 1024 ** 2;
