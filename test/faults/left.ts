import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { listVolumes, ownerOfVolume } from "../../src/isolation/engine/container-config.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import { listEngineCells } from "../../src/isolation/engine/reap.ts";
import { currentOwner, loadSealKey } from "../../src/state/owner.ts";

/** What a state directory's orchestrators have left: asked from the Engine itself, past every fault. */
export async function leftOf(stateDir: string): Promise<string[]> {
  const { docker } = await connect({});
  const sealKey = await loadSealKey(stateDir);
  const cells = await listEngineCells(docker, { owner: currentOwner(), sealKey });
  const volumes = (await listVolumes(docker)).filter((volume) => ownerOfVolume(sealKey, volume) !== null);
  const live = join(stateDir, "live");
  const owners = await readdir(live);
  const names = (await Promise.all(owners.map((owner) => readdir(join(live, owner))))).flat();
  return [
    ...cells.map(({ run, state }) => `cell of run ${run}, ${state}`),
    ...volumes.map(({ Name }) => `volume ${Name}`),
    ...names.filter((name) => !["owner", "grants", "fleets"].includes(name)).map((name) => `live/${name}`),
  ];
}
