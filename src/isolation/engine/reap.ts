import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { codeOf } from "../../platform/errno.ts";
import { textBeside } from "../../platform/text-beside.ts";
import { within } from "../../platform/within.ts";
import { livingOwners, reapLiveDirs } from "../../state/live-dir.ts";
import { isDead } from "../../state/owner.ts";
import { endedFromOutside } from "../kernel/first-process.ts";
import { gateOf } from "../plan/plan.ts";
import {
  type CellInfo,
  EngineTrouble,
  type Reaped,
  type Steward,
  type StewardAct,
  type StewardRequest,
} from "../port/driver.ts";
import { containerName, labelsFor, type Maker, RUN_LABEL, readLabels, STEWARD_LABEL } from "../port/labels.ts";
import { asked, engineMessage, inTime, isConflict, told, untilGone } from "./answers/asked.ts";
import { Demultiplexer } from "./attachment.ts";
import { endLeftOfDead, type Unremoved } from "./cell-remains.ts";
import {
  firstProcessOf,
  listVolumes,
  markOfBareVolume,
  ownerMark,
  ownerOfVolume,
  type SeccompProfiles,
} from "./container-config.ts";
import { imageFacts } from "./images/catalog.ts";

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

/** An act takes milliseconds; to remove what an item left may take longer. */
const ACT_MS = 60_000;
/** How long it may take to empty its directory when its input has ended. */
const END_MS = 10_000;
const MEMORY_BYTES = 64 * 1024 ** 2;

/**
 * A shell of Corral's own static program, in the directory of one cell that serves items. Its words: the cell's user and group, those of this
 * process, and the names of the directories that the cell has beside `io` and `attachments`. What is to come into one of them is made by Corral
 * in the directory of the same name below `staged`, and what an item left is moved there. Each is renamed as a whole, and no process of the cell
 * runs meanwhile. The programs are the shell's own, which takes less than to start them.
 *
 * A directory that no item may change is root's: Corral, which has the worker's number, gives it the mode 0750.
 * When its input ends, with its orchestrator, it gives back what is root's, and Corral removes the rest. It never walks into what an item owns,
 * which may be deeper than any path, and be changed by a cell that is still there.
 */
const SCRIPT = textBeside(import.meta.url, "steward.sh");

interface StewardOptions extends Pick<ReapScope, "docker" | "maker"> {
  readonly seccomp: SeccompProfiles;
  readonly unremoved: Pick<Unremoved, "add">;
}

/**
 * A container that acts as root on a directory of this process's own, for a Corral that is not root. It has the image of the cell and runs nothing of it; no
 * network, and of root's rights those to change owners and modes. Rejects with `EngineTrouble`.
 */
export async function startSteward(
  { docker, maker, seccomp, unremoved }: StewardOptions,
  { plan, dir, dirs }: StewardRequest,
): Promise<Steward> {
  const mark = randomBytes(6).toString("hex");
  const name = `${containerName(plan)}-${mark}`;
  // No image has this directory, or a link in its place.
  const [gate, place] = [`/corral-${mark}/busybox`, `/corral-${mark}/cell`];
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  const words = [`${plan.user.uid}:${plan.user.gid}`, `${uid}:${gid}`, place, ...dirs];
  const facts = await told(imageFacts(docker, plan.image.id));
  if (facts === null) throw new EngineTrouble("the image of a cell is gone");
  const container = docker.getContainer(name);
  const removal = async (): Promise<void> => {
    await told(untilGone(() => container.remove({ force: true, v: true })));
  };
  const remove = async (): Promise<void> => {
    await removal().catch((error: unknown) => {
      unremoved.add(name, removal);
      throw error;
    });
  };
  try {
    await inTime(
      docker.createContainer({
        name,
        Image: plan.image.id,
        Labels: { ...labelsFor(maker, "container", name, plan), [STEWARD_LABEL]: "1" },
        NetworkDisabled: true,
        User: "0:0",
        WorkingDir: "/",
        Entrypoint: [gate, "sh", "-c", SCRIPT, gate, ...words],
        Cmd: [],
        // No program of the image has a name here.
        Env: ["PATH=/dev/null"],
        Healthcheck: { Test: ["NONE"] },
        OpenStdin: true,
        StdinOnce: true,
        HostConfig: {
          NetworkMode: "none",
          IpcMode: "none",
          ReadonlyRootfs: true,
          CapDrop: ["ALL"],
          CapAdd: ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"],
          SecurityOpt: ["no-new-privileges", `seccomp=${seccomp.corral}`],
          Memory: MEMORY_BYTES,
          MemorySwap: MEMORY_BYTES,
          PidsLimit: 16,
          // The Engine would make a volume on its disk for each that the image declares.
          Tmpfs: Object.fromEntries(facts.volumes.map((path) => [path, "ro"])),
          Mounts: [
            { Type: "bind", Source: gateOf(plan), Target: gate, ReadOnly: true },
            { Type: "bind", Source: dir, Target: place, BindOptions: { Propagation: "rprivate" } },
          ],
          LogConfig: { Type: "none", Config: {} },
          RestartPolicy: { Name: "no" },
        },
      }),
    );
    const stream = (await inTime(
      container.attach({ stream: true, hijack: true, stdin: true, stdout: true, stderr: true }),
    )) as unknown as Duplex;
    const answers = new Answers(stream);
    await inTime(container.start());
    await answers.next("ready");
    return {
      async act(what: StewardAct) {
        stream.write(`${what}\n`);
        await answers.next("done");
      },
      async [Symbol.asyncDispose]() {
        stream.end();
        await within(answers.ended, END_MS);
        stream.destroy();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** The lines that the script prints, one for each act. */
class Answers {
  /** When its output has ended. */
  readonly ended: Promise<void>;
  #text = "";
  #said = "";
  #hasEnded = false;
  #look: () => void = () => {};

  constructor(stream: Duplex) {
    const streams = new Demultiplexer((name, chunk) => {
      if (name === "stdout") this.#text += chunk.toString("latin1");
      else this.#said = `${this.#said}${chunk.toString("latin1")}`.slice(-500);
      this.#look();
    });
    this.ended = new Promise((done) => {
      const end = (): void => {
        this.#hasEnded = true;
        this.#look();
        done();
      };
      stream.on("data", (chunk: Buffer) => void streams.add(chunk));
      stream.once("end", end).once("close", end).once("error", end);
    });
  }

  async next(wanted: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#look = (): void => {
      if (this.#text.includes("\n") || this.#hasEnded) resolve();
    };
    this.#look();
    const isThere = (await within(promise, ACT_MS)) !== null;
    const end = this.#text.indexOf("\n");
    const line = this.#text.slice(0, Math.max(0, end));
    this.#text = this.#text.slice(end + 1);
    if (line === wanted) return;
    const why = isThere ? `it ended, or said ${JSON.stringify(`${line} ${this.#said}`.trim())}` : "it is late";
    throw new EngineTrouble(`the container that lays out the files of items did not do so: ${why}`);
  }
}
