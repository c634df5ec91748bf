import type { ImageRoot } from "../model/images.ts";
import { Launcher, type LauncherRequest, type Place } from "./launcher.ts";

/** More places than that would wait long for their cells, and hold descriptors. */
const MAX_PLACES = 8;
/** Images of which places wait. */
const MAX_IMAGES = 4;
/** How long they wait. */
const IDLE_MS = 5000;

interface Waiting {
  free: Place[];
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

  async take(image: ImageRoot, gate: string): Promise<Place> {
    // One after another: those who come at once share the places of one launcher.
    const taking = this.#starting.then(() => this.#take(image, gate));
    this.#starting = taking.catch(() => {});
    return await taking;
  }

  async #take(image: ImageRoot, gate: string): Promise<Place> {
    const key = JSON.stringify([gate, image.layers]);
    const waiting = this.#waiting.get(key) ?? { free: [], taken: 0 };
    this.#waiting.delete(key);
    this.#waiting.set(key, waiting);
    for (const [oldest, { free }] of this.#waiting) {
      if (this.#waiting.size <= MAX_IMAGES) break;
      this.#waiting.delete(oldest);
      for (const place of free) place.letGo();
    }
    if (waiting.free.length === 0) {
      const places = Math.min(MAX_PLACES, Math.max(1, waiting.taken));
      const launcher = await Launcher.start({ ...this.#common, image, gate, places });
      waiting.free.push(...launcher.places);
      void launcher.over.then(() => {
        waiting.free = waiting.free.filter((place) => !launcher.places.includes(place));
      });
    }
    const place = waiting.free.shift();
    if (place === undefined) throw new Error("a launcher has no places");
    waiting.taken += 1;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#letGo(), IDLE_MS).unref();
    return place;
  }

  /** Cells that are there stay. */
  #letGo(): void {
    for (const { free } of this.#waiting.values()) for (const place of free) place.letGo();
    this.#waiting.clear();
  }
}
