import type { TestProject } from "vitest/node";
import { openEngine } from "../../src/isolation/open-engine.ts";
import { letKeptImagesGo } from "../run/kept-for-runc.ts";
import engineTier from "./engine-tier.ts";

/** Set-up of the tests on cells of runc: as of the engine tier, and a first cell is made once, and not for each state directory. */
export default async function runcTier(tier: TestProject): Promise<() => Promise<void>> {
  return await engineTier(tier, async (stateDir) => {
    const engine = await openEngine({ stateDir, engineEnv: { ...process.env, CORRAL_DRIVER: "runc" } });
    const { driver, why } = await engine.driving();
    await letKeptImagesGo(stateDir, process.env);
    if (driver === null) throw new Error(`${why}. To leave out the tests on runc: vitest run --project '!runc'`);
  });
}
