/**
 * True in the project `engine` if its files run on cells of runc too: tests leave out there what no driver has a part in. Where runc
 * cannot make cells, all tests run once, and none is left out.
 */
export const isAgain = (): boolean => process.env.CORRAL_TESTS_AGAIN === "1";
