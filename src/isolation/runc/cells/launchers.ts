import { readFileSync } from "node:fs";
import { decodedMountField } from "../../../files/host/descriptor.ts";
import type { ImageRoot } from "../model/layout.ts";
import { Launcher, type LauncherRequest, type LaunchPlace } from "./launcher.ts";

/** More places than that would wait long for their cells, and hold descriptors. */
const MAX_PLACES = 8;
/** Images of which places wait. */
const MAX_IMAGES = 4;
/** How long they wait, also while those of other launchers are taken: each holds copies of this machine's mounts. */
const IDLE_MS = 5000;

/** The places of one launcher that wait. It is kept for IDLE_MS after one was taken, even if none is left. */
interface Batch {
  free: readonly LaunchPlace[];
  /** Those that this process had when the launcher was started. A place knows no later one. */
  readonly mounts: ReadonlySet<string>;
  idle?: NodeJS.Timeout;
}

interface Waiting {
  readonly batches: Set<Batch>;
  taken: number;
}

/** The launchers of a process. It asks for as many places at once as it has used already, so that a single run makes one. */
export class Launchers {
  readonly #common: Pick<LauncherRequest, "owner" | "paths" | "programs">;
  /** By the image and the gate; the one that was used last is the last. */
  readonly #waiting = new Map<string, Waiting>();
  #starting: Promise<unknown> = Promise.resolve();

  constructor(common: Pick<LauncherRequest, "owner" | "paths" | "programs">) {
    this.#common = common;
  }

  /** `sources`: paths of the host that the cell will mount. */
  async take(image: ImageRoot, gate: string, sources: readonly string[]): Promise<LaunchPlace> {
    // One after another: those who come at once share the places of one launcher.
    const taking = this.#starting.then(() => this.#take(image, gate, sources));
    this.#starting = taking.catch(() => {});
    return await taking;
  }

  async #take(image: ImageRoot, gate: string, sources: readonly string[]): Promise<LaunchPlace> {
    const key = JSON.stringify([gate, image.mark]);
    const waiting = this.#waiting.get(key) ?? { batches: new Set(), taken: 0 };
    this.#waiting.delete(key);
    this.#waiting.set(key, waiting);
    for (const [oldest, { batches }] of this.#waiting) {
      if (this.#waiting.size <= MAX_IMAGES) break;
      this.#waiting.delete(oldest);
      for (const batch of batches) letGo(batch);
    }
    const mounts = mountsNow();
    const needed = [...mounts].flatMap(([mount, at]) => (sources.some((path) => meet(path, at)) ? [mount] : []));
    const ready = [...waiting.batches].filter(({ free }) => free.length > 0);
    // If a view was mounted after all places that wait, the next cell will have a later one, and could not use a second place.
    const places = ready.length > 0 ? 1 : Math.min(MAX_PLACES, Math.max(1, waiting.taken));
    const batch =
      ready.find((each) => needed.every((mount) => each.mounts.has(mount))) ??
      (await this.#start({ image, gate, places }, new Set(mounts.keys())));
    const [place, ...free] = batch.free;
    if (place === undefined) throw new Error("a launcher has no places");
    batch.free = free;
    waiting.batches.add(batch);
    waiting.taken += 1;
    clearTimeout(batch.idle);
    batch.idle = setTimeout(() => {
      letGo(batch);
      waiting.batches.delete(batch);
      if (waiting.batches.size === 0 && this.#waiting.get(key) === waiting) this.#waiting.delete(key);
    }, IDLE_MS).unref();
    return place;
  }

  async #start(
    request: Pick<LauncherRequest, "image" | "gate" | "places">,
    mounts: ReadonlySet<string>,
  ): Promise<Batch> {
    const launcher = await Launcher.start({ ...this.#common, ...request });
    const batch: Batch = { free: launcher.places, mounts };
    void launcher.over.then(() => letGo(batch));
    return batch;
  }
}

/** Cells that are there stay. */
function letGo(batch: Batch): void {
  for (const place of batch.free) place.letGo();
  batch.free = [];
}

/** The mounts of this process, each with its directory. A number alone could be that of an earlier mount. */
function mountsNow(): ReadonlyMap<string, string> {
  const lines = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line !== "");
  return new Map(
    lines.map((line) => {
      const [id = "", , , , at = ""] = line.split(" ");
      return [`${id} ${at}`, decodedMountField(at)];
    }),
  );
}

/** True if one path is the other, or is below it. */
function meet(one: string, other: string): boolean {
  const [a, b] = [one, other].map((path) => `${path.replace(/\/$/, "")}/`) as [string, string];
  return a.startsWith(b) || b.startsWith(a);
}
