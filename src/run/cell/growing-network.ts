import PQueue from "p-queue";
import type { CellFiles } from "../../isolation/network/cell-files.ts";
import { nameLines } from "../../isolation/plan/network.ts";
import { HOSTS_PATH, type PlannedNetwork } from "../../isolation/plan/plan.ts";
import type { Accept, Cell } from "../../isolation/port/cell.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { type AllowedNetwork, type NetworkPlaces, networkPlaces } from "../../sandbox/network/rule.ts";
import { Disposables } from "../model/disposables.ts";

interface Parts {
  readonly cell: Cell;
  /** What it began with. */
  readonly planned: PlannedNetwork;
  readonly files: CellFiles;
  readonly accept: Accept;
  /** Receives why a host that was granted has no place of its own in the cell. */
  readonly trouble: (detail: string) => void;
}

/**
 * Gives hosts that are granted to a running cell their places in it: a name, and sockets that listen. What is revoked keeps its
 * place, at which every connection is refused: another host never takes it.
 */
export class GrowingNetwork implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #listening = new Disposables();
  /** One after the other, as each place depends on those before. */
  readonly #turns = new PQueue({ concurrency: 1 });
  #places: NetworkPlaces;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#places = parts.planned;
  }

  /** Settles when the cell has a place for each host of the list. Rejects only for a bug. */
  async grow(network: AllowedNetwork): Promise<void> {
    await this.#turns.add(() => this.#grow(network));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.onIdle();
    await this.#listening[Symbol.asyncDispose]();
  }

  async #grow(network: AllowedNetwork): Promise<void> {
    const { cell, files, accept, trouble } = this.#parts;
    const before = this.#places;
    const next = networkPlaces(network, before);
    const places = next.listeners.slice(before.listeners.length);
    if (places.length === 0) return;
    try {
      const listening = await cell.listen(places, accept);
      if (!listening.ok) return trouble(`what was granted has no place in the container: ${listening.reason}`);
      this.#listening.use(listening);
    } catch (error) {
      // Nothing in a cell that has ended misses it.
      if (error instanceof EngineTrouble) return trouble(error.message);
      throw error;
    }
    this.#places = next;
    await files.append(HOSTS_PATH, nameLines(next.names.slice(before.names.length)));
  }
}
