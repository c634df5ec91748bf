import { type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { perform } from "../../run/run.ts";
import { governingMount } from "../../sandbox/access.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { ItemExecutor } from "./item-result.ts";

/** A fresh cell for every item, as for any other run. The directories that the item may write are created first. */
export function freshCells(fleet: Sandbox, run: RunEnvironment): ItemExecutor {
  // What an item calls is made by the same driver.
  const env = { ...run, driver: { ...run.driver, ...run.itemCells } };
  const files = openHostFiles(fleet.mounts);
  const guardedFiles = guarded(files, fleet);
  return {
    async run(job) {
      for (const path of job.narrow?.allowWrite ?? []) await makeFolder(path, fleet, guardedFiles);
      return await perform(job, env);
    },
    [Symbol.asyncDispose]: async () => files[Symbol.dispose](),
  };
}

/** Only if no approval is needed. If it cannot be created, the run itself reports the refusal. */
async function makeFolder(path: string, fleet: Sandbox, files: GuardedFiles): Promise<void> {
  const place = files.resolve(path);
  const mount = place.ok ? governingMount(fleet, place.path) : undefined;
  if (!place.ok || mount?.mode !== "rw" || deliveryOf(mount) !== "direct" || mount.path === place.path) return;
  try {
    await files.mkdir(place.path);
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
  }
}
