import { mkdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { loadSeccompProfile } from "../../declarations/policy/seccomp.ts";
import { connect, type EngineConnection } from "../../isolation/engine/connect.ts";
import { dockerDriver } from "../../isolation/engine/driver.ts";
import { type Driver, EngineTrouble } from "../../isolation/port/driver.ts";
import { type RefusedSources, refusedSourcesFor } from "../../isolation/sources/refused-sources.ts";
import { currentOwner, loadSealKey, type Owner } from "../../state/owner.ts";
import type { OpenOptions } from "./options.ts";

/** An Engine, and the driver that makes cells there in this process's name. */
export interface OpenedEngine {
  readonly connection: EngineConnection;
  readonly driver: Driver;
  readonly owner: Owner;
  /** Where orchestrators have their directories, each its own. */
  readonly liveDir: string;
}

/** The Engine and its driver, for what needs no project: `ps`, `reap`, `doctor`. */
export async function openEngine({
  stateDir,
  engineEnv,
}: Pick<OpenOptions, "stateDir" | "engineEnv">): Promise<OpenedEngine> {
  await makeStateDir(stateDir);
  await refuseForeignState(stateDir);
  const [connection, sealKey, seccomp] = await Promise.all([
    connect(engineEnv),
    loadSealKey(stateDir),
    loadSeccompProfile(),
  ]);
  const owner = currentOwner();
  const liveDir = join(stateDir, "live");
  const driver = dockerDriver({
    docker: connection.docker,
    maker: { owner, sealKey },
    seccomp: { corral: seccomp },
    liveDir,
    namesDir: join(stateDir, "names"),
  });
  return { connection, driver, owner, liveDir };
}

/** By itself, and not with what is above it: of all that is made, it alone is for nobody else. */
async function makeStateDir(stateDir: string): Promise<void> {
  try {
    await mkdir(dirname(stateDir), { recursive: true });
    await mkdir(stateDir, { mode: 0o700 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST") throw new EngineTrouble(`the state directory ${stateDir} cannot be made: ${message}`);
  }
}

/** Whoever can write there chooses the key of the seals, the gate of every cell, and code that runs here. */
async function refuseForeignState(stateDir: string): Promise<void> {
  const { uid, mode } = await stat(stateDir);
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0)
    throw new EngineTrouble(`the state directory ${stateDir} can be written by others; use one of your own`);
}

/** What no cell on this Engine may be shown. */
export function refusedSourcesOn({ dataDirs, socketPath }: EngineConnection, stateDir: string): RefusedSources {
  return refusedSourcesFor({
    engineData: dataDirs,
    engineSockets: socketPath === null ? [] : [socketPath],
    state: [stateDir],
  });
}
