import type { Exchange } from "../calls/exchange.ts";
import { rootPlaces } from "./root-places.ts";

/** The roots of one client, asked for with the first request that needs them, and again where the client says that they changed. */
export class ClientRoots {
  readonly #isHonoured: boolean;
  readonly #tell: (line: string) => void;
  #hosts: Promise<readonly string[] | null> | null = null;
  /** A client that never named a root draws no line. One that did, and names none any more, has left nothing inside of it. */
  #hasNamed = false;
  /** How often they have changed. */
  #changes = 0;
  #isAsking = false;

  constructor(options: { readonly isHonoured: boolean; readonly tell: (line: string) => void }) {
    this.#isHonoured = options.isHonoured;
    this.#tell = options.tell;
  }

  /**
   * Real host directories; null where the client has no roots. Rejects where it has some and does not tell them: what it
   * would leave out is not known then.
   */
  async current({ push, signal }: Pick<Exchange, "push" | "signal">): Promise<readonly string[] | null> {
    if (!this.#isHonoured) return null;
    if (this.#hosts !== null) return await this.#hosts;
    const ask = push?.roots ?? null;
    const hosts = ask === null ? Promise.resolve(null) : this.#lookedUp(ask(signal));
    this.#hosts = hosts;
    try {
      return await hosts;
    } catch (error) {
      if (this.#hosts === hosts) this.#hosts = null;
      throw error;
    }
  }

  /**
   * What was told before counts no more. `ask`: tries to learn the new ones at once; null where that failed, or where a
   * request was quicker, and the next request learns them then. Null also while it is asked already: however often they
   * change meanwhile, it is asked once more.
   */
  async changed(ask: () => Promise<readonly string[]>): Promise<readonly string[] | null> {
    if (!this.#isHonoured) return null;
    this.#hosts = null;
    this.#changes += 1;
    if (this.#isAsking) return null;
    this.#isAsking = true;
    const uris = await this.#latest(ask).finally(() => {
      this.#isAsking = false;
    });
    if (uris === null || this.#hosts !== null) return null;
    const hosts = this.#lookedUp(Promise.resolve(uris));
    this.#hosts = hosts;
    return await hosts;
  }

  /** What was asked before the last change is not listened to. */
  async #latest(ask: () => Promise<readonly string[]>): Promise<readonly string[] | null> {
    for (;;) {
      const change = this.#changes;
      const uris = await ask().catch(() => null);
      if (change === this.#changes) return uris;
    }
  }

  async #lookedUp(asked: Promise<readonly string[]>): Promise<readonly string[] | null> {
    const uris = await asked;
    this.#hasNamed ||= uris.length > 0;
    if (!this.#hasNamed) return null;
    const { hosts, unusable } = await rootPlaces(uris);
    if (unusable > 0) this.#tell(`${unusable} of the client's roots are no directories of this machine.`);
    return hosts;
  }
}
