import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { openDockerEngine } from "../../../src/isolation/engine/open.ts";
import type { Driver } from "../../../src/isolation/port/driver.ts";
import type { Maker } from "../../../src/isolation/port/labels.ts";
import { conditionsFor } from "../../../src/isolation/runc/ground/conditions.ts";
import { UnpackedImages } from "../../../src/isolation/runc/ground/unpacked-images.ts";
import { reapRuncCells, recordedCells } from "../../../src/isolation/runc/ledger/reap-cells.ts";
import { cellId, cgroupPlace, type RuncOptions, runcPaths } from "../../../src/isolation/runc/model/layout.ts";
import { runcCells } from "../../../src/isolation/runc/open.ts";
import { giveImages } from "../../tiers/give-gate.ts";
import { openEngine } from "../engine/engine.ts";

/** Which runtime makes the cells of these tests: `CORRAL_OCI_RUNTIME`, or runc. */
export const RUNTIME = process.env.CORRAL_OCI_RUNTIME || "runc";
export const isCrun = RUNTIME !== "runc" && /crun[^/]*$/.test(RUNTIME);

/** The real runtime, with images, plans and a state directory as the tests of the Engine's driver have them. */
export type Runc = Awaited<ReturnType<typeof openRunc>>;

export async function openRunc() {
  const engine = await openEngine();
  const paths = runcPaths(engine.stateDir);
  giveImages(engine.stateDir);
  const seccomp = await loadSeccompProfile();
  const { images: dir, layers: layersDir } = paths;
  // What this machine's cells are made with, AppArmor too.
  const { ground } = await openDockerEngine({ stateDir: engine.stateDir, engineEnv: {} });
  const judged = conditionsFor(ground.facts, RUNTIME);
  if (!judged.ok) throw new Error(judged.reason);
  const { programs, apparmor } = judged.conditions;
  const images = new UnpackedImages({ dir, layersDir, ground, owner: engine.maker.owner });
  const options = (maker: Maker) => ({
    maker,
    paths,
    images,
    seccomp,
    namesDir: engine.namesDir,
    programs,
    ...(apparmor === null ? {} : { apparmor }),
  });
  const driverOf = (maker: Maker, more: Partial<RuncOptions> = {}): Driver => ({
    ...engine.driverOf(maker),
    ...runcCells({ ...options(maker), ...more }),
    name: "runc",
    list: () => recordedCells(paths, maker),
    reap: async () => ({ cells: await reapRuncCells(maker, paths), volumes: [], directories: [] }),
  });
  return {
    ...engine,
    paths,
    images,
    driverOf,
    driver: driverOf(engine.maker),
    /** A driver of which something is other than it should be. */
    driverWith: (more: Partial<RuncOptions>) => driverOf(engine.maker, more),
    /** The Engine on which the images are. */
    engineDriver: engine.driver,
    /** Everything on this machine that is of a run. */
    async traces(run: string): Promise<string[]> {
      const id = cellId(engine.maker.sealKey, run);
      const hierarchies = readdirSync("/sys/fs/cgroup").map((name) => join("/sys/fs/cgroup", name));
      const places = ["/sys/fs/cgroup", ...hierarchies].map((dir) => join(dir, cgroupPlace(id)));
      const { stdout } = await promisify(execFile)("ps", ["-eo", "pid,args"], { maxBuffer: 64 << 20 });
      return [
        ...[join(paths.cells, run), join(paths.state, id), ...places].filter((path) => existsSync(path)),
        ...stdout.split("\n").filter((line) => line.includes(id)),
      ];
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await engine[Symbol.asyncDispose]();
    },
  };
}
