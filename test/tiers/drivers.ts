/** Whether the tests of this process make cells of runc, and not the Engine's. */
export const ON_RUNC = process.env.CORRAL_DRIVER === "runc";
