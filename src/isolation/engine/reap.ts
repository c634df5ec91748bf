import type Docker from "dockerode";
import { z } from "zod";
import { codeOf } from "../../platform/errno.ts";
import { within } from "../../platform/within.ts";
import { livingOwners, reapLiveDirs } from "../../state/live-dir.ts";
import { isDead } from "../../state/owner.ts";
import { endedFromOutside } from "../kernel/first-process.ts";
import { type CellInfo, EngineTrouble, type Reaped } from "../port/driver.ts";
import { type Maker, RUN_LABEL, readLabels, STEWARD_LABEL } from "../port/labels.ts";
import { asked, engineMessage, isConflict, untilGone } from "./answers/asked.ts";
import { endLeftOfDead, type Unremoved } from "./cell-remains.ts";
import { firstProcessOf, listVolumes, markOfBareVolume, ownerMark, ownerOfVolume } from "./container-config.ts";

/** Where to look, and as whom. */
export interface ReapScope {
  readonly docker: Docker;
  readonly maker: Maker;
  /** Where the temporary directories of orchestrators are. */
  readonly liveDir: string;
  /** Where orchestrators note which containers they start. */
  readonly startedDir: string;
}

/** How long a steward may take to end by itself. */
const STEWARD_MS = 10_000;

const ListedContainer = z.object({
  Id: z.string(),
  Names: z.array(z.string()).nullable(),
  Labels: z.record(z.string(), z.string()).nullable(),
  State: z.string(),
  Created: z.number(),
});

/** Every container that this state directory's orchestrators made, in any state, also `created`. */
export async function listEngineCells(docker: Docker, maker: Maker): Promise<CellInfo[]> {
  return (await listed(docker, maker)).map(({ isSteward: _, ...cell }) => cell);
}

async function listed(docker: Docker, maker: Maker): Promise<(CellInfo & { readonly isSteward: boolean })[]> {
  const containers = await asked(
    () => docker.listContainers({ all: true, filters: { label: [RUN_LABEL] } }),
    z.array(ListedContainer),
  );
  const cells: (CellInfo & { readonly isSteward: boolean })[] = [];
  for (const { Id, Names, Labels, State, Created } of containers) {
    const labelled = readLabels(maker.sealKey, "container", (Names?.[0] ?? "").replace(/^\//, ""), Labels);
    if (labelled === null) continue;
    const createdAt = new Date(Created * 1000).toISOString();
    const ownerAlive = !isDead(labelled.owner, maker.owner);
    const isSteward = Labels?.[STEWARD_LABEL] !== undefined;
    cells.push({ ...labelled, driver: "engine", id: Id, state: State, createdAt, ownerAlive, isSteward });
  }
  return cells;
}

/** Removes the containers, volumes, processes and directories of owners that are certainly dead, when `after` has settled. */
export async function reap(
  { docker, maker, liveDir, startedDir, unremoved }: ReapScope & { readonly unremoved: Pick<Unremoved, "removed"> },
  after?: Promise<unknown>,
): Promise<Reaped> {
  const [all, oldVolumes] = await Promise.all([
    listed(docker, maker),
    deadVolumes(docker, maker, liveDir),
    after?.catch(() => {}),
  ]);
  const dead = all.filter((cell) => !cell.ownerAlive);
  const removal = async ({ id, run }: CellInfo): Promise<string> => {
    await endedFromOutside(firstProcessOf(id), () =>
      untilGone(() => docker.getContainer(id).remove({ force: true, v: true })),
    );
    return run;
  };
  // Nothing watches the limits of these any more.
  const others = await removeEach(
    dead.filter(({ isSteward }) => !isSteward),
    removal,
  );
  // Its input has ended with its owner: it gives back what this user could not remove.
  const stewards = dead.filter(({ isSteward }) => isSteward);
  const running = stewards.filter(({ state }) => state === "running").map(({ id }) => docker.getContainer(id));
  await Promise.all(running.map((steward) => within(steward.wait().catch(nothing), STEWARD_MS)));
  const cells = [...others, ...(await removeEach(stewards, removal))];
  // Those without a name went with their containers.
  const left = dead.length === 0 || oldVolumes.length === 0 ? oldVolumes : await deadVolumes(docker, maker, liveDir);
  const removed = await removeEach(left, async ({ name }) => {
    await untilGone(() => docker.getVolume(name).remove());
    return name;
  });
  // The report names a removed cell, and not its volumes.
  const runs = new Set(cells);
  const ofCells = new Set(left.flatMap(({ name, run }) => (run !== null && runs.has(run) ? [name] : [])));
  const volumes = removed.filter((name) => !ofCells.has(name));
  await endLeftOfDead(startedDir, maker.owner, unremoved);
  const { removed: directories, failed } = await reapLiveDirs(liveDir, maker.owner);
  if (failed.length > 0) {
    // A steward that ended with the machine gave nothing back.
    const reasons = failed.map(({ name, error }) => `live/${name} (${codeOf(error) ?? "see the cause"})`).join(", ");
    const what = `some directories of dead processes in the state directory could not be removed: ${reasons}. root can remove them`;
    throw new EngineTrouble(what, { cause: failed[0]?.error });
  }
  return { cells, volumes, directories };
}

const nothing = (): void => {};

/** `run`: null if the Engine left nothing but the name. */
type DeadVolume = { readonly name: string; readonly run: string | null };

async function deadVolumes(docker: Docker, { sealKey, owner }: Maker, liveDir: string): Promise<DeadVolume[]> {
  const volumes = await listVolumes(docker);
  // Each owner has its directory before it makes a volume, so none that is listed belongs to one that is not seen here.
  const living = new Set([owner, ...(await livingOwners(liveDir, owner))].map(ownerMark));
  return volumes.flatMap((told): DeadVolume[] => {
    const labelled = ownerOfVolume(sealKey, told);
    if (labelled !== null) return isDead(labelled.owner, owner) ? [{ name: told.Name, run: labelled.run }] : [];
    const mark = markOfBareVolume(sealKey, told);
    return mark !== null && !living.has(mark) ? [{ name: told.Name, run: null }] : [];
  });
}

/**
 * Another reaper may be doing the same: what is being removed (409) is no failure. One thing that cannot be
 * removed does not stop the removal of the others.
 */
async function removeEach<Thing>(
  things: readonly Thing[],
  remove: (thing: Thing) => Promise<string>,
): Promise<string[]> {
  const removed: string[] = [];
  const failures: unknown[] = [];
  for (const thing of things) {
    try {
      removed.push(await remove(thing));
    } catch (error) {
      if (!isConflict(error)) failures.push(error);
    }
  }
  if (failures.length > 0) {
    const reasons = failures.map(engineMessage).join("; ");
    throw new EngineTrouble(`some containers or volumes of dead owners could not be removed: ${reasons}`, {
      cause: failures[0],
    });
  }
  return removed;
}
