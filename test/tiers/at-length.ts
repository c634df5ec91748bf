/** True if the tests that repeat something shall repeat it as often as they can (`CORRAL_LONG=1 npm test`). */
export const AT_LENGTH = process.env.CORRAL_LONG === "1";
