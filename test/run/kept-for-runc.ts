import { existsSync } from "node:fs";
import { join } from "node:path";
import type Docker from "dockerode";
import { connect } from "../../src/isolation/engine/connect.ts";
import { layerStore } from "../../src/isolation/engine/images/layer-store.ts";
import { currentOwner, loadSealKey } from "../../src/state/owner.ts";
import { statePaths } from "../../src/state/state-paths.ts";

/** Nothing else lets them go once the state directory is gone. No process uses them any more. */
export async function letKeptImagesGo(
  stateDir: string,
  env: Parameters<typeof connect>[0],
  known: Docker | null = null,
): Promise<void> {
  if (env.CORRAL_KEEP_IMAGES === "0" || !existsSync(join(statePaths(stateDir).runc, "images"))) return;
  const maker = { owner: currentOwner(), sealKey: await loadSealKey(stateDir) };
  const store = layerStore({ docker: known ?? (await connect(env)).docker, stateDir, maker });
  for (const image of await store.kept()) await store.release(image);
}
