import { execFileSync } from "node:child_process";
import { lstat, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { loadPolicy } from "../../src/declarations/policy/policy.ts";
import { openDockerEngine } from "../../src/isolation/engine/open.ts";
import { openEngine } from "../../src/isolation/open-engine.ts";
import type { DriverName } from "../../src/isolation/plan/plan.ts";
import { UnpackedImages } from "../../src/isolation/runc/ground/unpacked-images.ts";
import { runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { currentOwner } from "../../src/state/owner.ts";
import { pinnedPlan } from "../isolation/pinned-plan.ts";
import { linkImages } from "./give-gate.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A state directory that has the gate, what came of a first cell, and what was seen in images; see `giveGate`. Other tiers have none. */
    readonly stateWithGate?: string;
    /** What makes the cells of this project. */
    readonly cellsBy?: DriverName;
  }
}

/**
 * Set-up of the tests that need an Engine: what they start as the command line is built from the sources that they load, the
 * gate is taken out of its image, and a first cell shows what makes the others.
 */
export default async function engineTier(tier: TestProject): Promise<() => Promise<void>> {
  build();
  const { CORRAL_DRIVER } = tier.config.env;
  const stateDir = await mkdtemp(join(tmpdir(), "corral-gate-"));
  const remove = (): Promise<void> => rm(stateDir, { recursive: true });
  try {
    const engine = await openEngine({ stateDir, engineEnv: { ...process.env, CORRAL_DRIVER } });
    await lookAtImages(stateDir, await engine.gate(), CORRAL_DRIVER !== "engine" && process.getuid?.() === 0);
    const { driver, why } = await engine.driving("runs");
    if (driver === null) throw new Error(why);
    tier.provide("cellsBy", driver);
  } catch (error) {
    await remove();
    throw error;
  }
  tier.provide("stateWithGate", stateDir);
  return remove;
}

/** Or each test that begins with a state directory of its own would look at them, and unpack them, again. */
async function lookAtImages(stateDir: string, gate: string, unpacks: boolean): Promise<void> {
  const { driver, examined, ground } = await openDockerEngine({ stateDir, engineEnv: process.env });
  const kept = runcPaths(KEPT);
  const unpacked = new UnpackedImages({ dir: kept.images, layersDir: kept.layers, ground, owner: currentOwner() });
  if (unpacks) await prepareKept(unpacked);
  const policy = await loadPolicy("untrusted", { dirs: [] });
  for (const name of ["debian:bookworm", "base", "documents", "node", "python"]) {
    const image = await driver.imageFacts(`corral/${name}`);
    if (image === null) continue;
    const { plan } = await pinnedPlan({ command: ["true"], image, policy, plumbing: { gate, socket: gate } });
    const objection = await examined.objection(plan);
    if (objection !== null) throw new Error(JSON.stringify(objection));
    if (unpacks) (await unpacked.use(image.id))?.[Symbol.dispose]();
  }
  if (unpacks) linkImages(KEPT, stateDir);
}

/** What the tests of this machine have unpacked of images: each layer is there by its digest, so it is that of any run. */
const KEPT = `/var/tmp/corral-test-images-${process.getuid?.()}`;
const KEPT_MS = 7 * 86_400_000;

async function prepareKept(unpacked: UnpackedImages): Promise<void> {
  await mkdir(KEPT, { recursive: true, mode: 0o700 });
  const { uid, mode } = await lstat(KEPT);
  if (uid !== process.getuid?.() || (mode & 0o170077) !== 0o040000)
    throw new Error(`${KEPT} is not this user's own directory`);
  await unpacked.reap();
  await unpacked.letGo({ usedBefore: Date.now() - KEPT_MS });
}

/** What the processes load that tests start and kill: a process that is killed leaves nothing in the cache of compiled code. */
const LOADED_BY_KILLED = ["src/index.ts", "src/operations/run-fleet.ts"];

/** Once for all projects of a run. */
function build(): void {
  if (process.env.CORRAL_TESTS_BUILT === "1") return;
  const root = join(import.meta.dirname, "../..");
  // As a user whose files are for nobody else: `test/package.test.ts` looks at what came of it. `npm test` checks the types beside the unit tests.
  const build = [process.execPath, join(root, "scripts/build.ts"), "--unchecked"];
  execFileSync("sh", ["-c", 'umask 077; exec "$0" "$@"', ...build], { stdio: "inherit" });
  const loads = LOADED_BY_KILLED.map((path) => `await import(${JSON.stringify(join(root, path))});`).join("");
  execFileSync(process.execPath, ["--input-type=module", "--eval", loads], { stdio: "inherit" });
  process.env.CORRAL_TESTS_BUILT = "1";
}
