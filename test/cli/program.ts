import { join } from "node:path";

/** The command line as users have it. The tests of the Engine build it first (test/tiers/engine-tier.ts). */
export const PROGRAM = process.env.CORRAL_TEST_PROGRAM ?? join(import.meta.dirname, "../../dist/cli/corral.cjs");
