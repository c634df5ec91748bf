import { fileURLToPath } from "node:url";
import { resolveHostPlace } from "../../declarations/place/host-place.ts";
import type { ClientExchange } from "./call.ts";

/** Further roots of one client are ignored. */
const MAX_ROOTS = 100;
const MAX_URI_CHARS = 8192;

/** The host directories that a client's roots name. */
export interface RootPlaces {
  /** Real, without links; sorted. */
  readonly hosts: readonly string[];
  /** How many roots are not directories of this machine, or exceed the limit. */
  readonly unusable: number;
}

/** Looks each root up once. A root that is not a directory grants nothing: roots only restrict. */
async function rootPlaces(uris: readonly string[]): Promise<RootPlaces> {
  const places = await Promise.all(uris.slice(0, MAX_ROOTS).map(rootPath));
  const hosts = [...new Set(places.filter((place) => place !== null))].sort();
  const usable = places.filter((place) => place !== null).length;
  return { hosts, unusable: uris.length - usable };
}

async function rootPath(uri: string): Promise<string | null> {
  const path = uri.length > MAX_URI_CHARS ? null : pathOf(uri);
  if (path === null) return null;
  // A root that cannot be looked up for any other reason is ignored too.
  const place = await resolveHostPlace("/", path).catch(() => null);
  return place?.ok && place.directory ? place.host : null;
}

function pathOf(uri: string): string | null {
  try {
    const url = new URL(uri);
    if (url.protocol !== "file:" || (url.hostname !== "" && url.hostname !== "localhost")) return null;
    url.hostname = "";
    const path = fileURLToPath(url);
    return path.includes("\0") ? null : path;
  } catch {
    return null;
  }
}

/** The roots of one client. Corral asks for them when a request first needs them, and again if the client reports a change. */
export class ClientRoots {
  readonly #isHonoured: boolean;
  readonly #tell: (line: string) => void;
  #hosts: Promise<readonly string[] | null> | null = null;
  /** A client that never named a root restricts nothing. A client that did, and now names none, has removed all access. */
  #hasNamed = false;
  /** How often they have changed. */
  #changes = 0;
  #isAsking = false;

  constructor(options: { readonly isHonoured: boolean; readonly tell: (line: string) => void }) {
    this.#isHonoured = options.isHonoured;
    this.#tell = options.tell;
  }

  /**
   * Real host directories; null if the client has no roots. Rejects if it has some and does not send them: what they
   * exclude is then unknown.
   */
  async current({ push, signal }: Pick<ClientExchange, "push" | "signal">): Promise<readonly string[] | null> {
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
   * Drops the roots that were sent before. `ask`: requests the new ones at once. Null if that failed (the next request that
   * needs roots asks again), or if such a request was quicker. Null also while this question is open: however often the roots
   * change meanwhile, Corral asks once more.
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

  /** Ignores an answer to a question from before the last change. */
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
