import { AT_LENGTH } from "./at-length.ts";

/**
 * True in the project `engine` if its files run on cells of runc too: tests leave out there what no driver has a part in. Where runc
 * cannot make cells, all tests run once, and none is left out; with `CORRAL_LONG=1` none is either.
 */
export const isAgain = (): boolean => process.env.CORRAL_TESTS_AGAIN === "1" && !AT_LENGTH;
