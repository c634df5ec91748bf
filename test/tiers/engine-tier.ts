import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { connect } from "../../src/isolation/engine/connect.ts";
import { gateBinary } from "../../src/isolation/engine/images/gate.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A state directory that has the gate; see `giveGate`. Other tiers have none. */
    readonly stateWithGate?: string;
  }
}

/**
 * Set-up of the engine tier: what tests start as the command line is built from the sources that they load, and the gate is
 * taken out of its image. `begin` does more in that state directory.
 */
export default async function engineTier(
  tier: TestProject,
  begin: (stateDir: string) => Promise<void> = async () => {},
): Promise<() => Promise<void>> {
  execFileSync(process.execPath, [join(import.meta.dirname, "../../scripts/build.ts")], { stdio: "inherit" });
  const stateDir = await mkdtemp(join(tmpdir(), "corral-gate-"));
  const remove = (): Promise<void> => rm(stateDir, { recursive: true });
  try {
    const { docker } = await connect(process.env);
    await gateBinary({ docker, stateDir });
    await begin(stateDir);
  } catch (error) {
    await remove();
    throw error;
  }
  tier.provide("stateWithGate", stateDir);
  return remove;
}
