export const BASE_NAME = "base";
/** What stands before the slash of every tag. */
export const IMAGE_PREFIX = "corral";
