import { readFile } from "node:fs/promises";
import { decodedMountField } from "../../../files/host/kernel-mounts.ts";
import type { ImageRoot } from "../model/images.ts";
import { Launcher, type LauncherRequest, type Place } from "./launcher.ts";

/** More places than that would wait long for their cells, and hold descriptors. */
const MAX_PLACES = 8;
/** Images of which places wait. */
const MAX_IMAGES = 4;
/** How long they wait. */
const IDLE_MS = 5000;

/** `mounts`: those that this process had when the launcher was started. A place knows no later one. */
interface Free {
  readonly place: Place;
  readonly mounts: ReadonlySet<string>;
}

interface Waiting {
  free: Free[];
  taken: number;
}

/** The launchers of a process. It asks for as many places at once as it has used already, so that a single run makes one. */
export class Launchers {
  readonly #common: Pick<LauncherRequest, "owner" | "paths" | "runc">;
  /** By the image and the gate; the one that was used last is the last. */
  readonly #waiting = new Map<string, Waiting>();
  #starting: Promise<unknown> = Promise.resolve();
  #idle: NodeJS.Timeout | undefined;

  constructor(common: Pick<LauncherRequest, "owner" | "paths" | "runc">) {
    this.#common = common;
  }

  /** `sources`: paths of the host that the cell will mount. */
  async take(image: ImageRoot, gate: string, sources: readonly string[]): Promise<Place> {
    // One after another: those who come at once share the places of one launcher.
    const taking = this.#starting.then(() => this.#take(image, gate, sources));
    this.#starting = taking.catch(() => {});
    return await taking;
  }

  async #take(image: ImageRoot, gate: string, sources: readonly string[]): Promise<Place> {
    const key = JSON.stringify([gate, image.layers]);
    const waiting = this.#waiting.get(key) ?? { free: [], taken: 0 };
    this.#waiting.delete(key);
    this.#waiting.set(key, waiting);
    for (const [oldest, { free }] of this.#waiting) {
      if (this.#waiting.size <= MAX_IMAGES) break;
      this.#waiting.delete(oldest);
      for (const { place } of free) place.letGo();
    }
    const mounts = await mountsNow();
    const needed = [...mounts].flatMap(([mount, at]) => (sources.some((path) => meet(path, at)) ? [mount] : []));
    const fits = (free: Free): boolean => needed.every((mount) => free.mounts.has(mount));
    if (!waiting.free.some(fits)) {
      // A view was mounted after the places that wait: the next cell will have a later one, and could not use a second place.
      const places = waiting.free.length > 0 ? 1 : Math.min(MAX_PLACES, Math.max(1, waiting.taken));
      const launcher = await Launcher.start({ ...this.#common, image, gate, places });
      const known = new Set(mounts.keys());
      waiting.free.push(...launcher.places.map((place) => ({ place, mounts: known })));
      void launcher.over.then(() => {
        waiting.free = waiting.free.filter(({ place }) => !launcher.places.includes(place));
      });
    }
    const index = waiting.free.findIndex(fits);
    const [found] = index === -1 ? [] : waiting.free.splice(index, 1);
    if (found === undefined) throw new Error("a launcher has no places");
    const { place } = found;
    waiting.taken += 1;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#letGo(), IDLE_MS).unref();
    return place;
  }

  /** Cells that are there stay. */
  #letGo(): void {
    for (const { free } of this.#waiting.values()) for (const { place } of free) place.letGo();
    this.#waiting.clear();
  }
}

/** The mounts of this process, each with its directory. A number alone could be that of an earlier mount. */
async function mountsNow(): Promise<ReadonlyMap<string, string>> {
  const lines = (await readFile("/proc/self/mountinfo", "utf8")).split("\n").filter((line) => line !== "");
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
