import { nullFor } from "../../platform/errno.ts";
import type { NetworkPlace } from "../../sandbox/network/rule.ts";
import type { Accept, Listening } from "../port/cell.ts";
import { type OpenPlaces, openPlaces } from "./listen-in.ts";
import { openNetworkNamespace } from "./namespace.ts";

/** Opens places in the network of one container; null if that cannot be entered. */
export type Enter = (places: readonly NetworkPlace[]) => Promise<OpenPlaces | null>;

/** Listens in the network of one container, from outside. */
export class CellNetwork implements AsyncDisposable {
  readonly #enter: Enter;
  /** What was opened ahead, until it is used. */
  #ahead: { readonly places: readonly NetworkPlace[]; readonly entering: Promise<OpenPlaces | null> } | null = null;

  constructor(enter: Enter) {
    this.#enter = enter;
  }

  /** Opens places while the cell still reports what it is: that takes about as long. They are used only if the report has this namespace. */
  openAhead(places: readonly NetworkPlace[]): void {
    const entering = this.#enter(places);
    // It is reported to what uses it.
    entering.catch(() => {});
    this.#ahead = { places, entering };
  }

  /** `reported`: the number of the namespace, as the cell's gate has it. Nothing is accepted in any other. */
  async listen(reported: string, places: readonly NetworkPlace[], accept: Accept): Promise<Listening> {
    const ahead = this.#ahead?.places === places ? this.#ahead.entering : null;
    if (ahead !== null) this.#ahead = null;
    const open = await (ahead ?? this.#enter(places));
    if (open === null || (open.ok && open.namespace !== reported)) {
      await closed(open);
      return { ok: false, reason: "the network of the cell is not one that this machine's kernel shows" };
    }
    if (open.ok) open.accept(accept);
    return open;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const unused = this.#ahead?.entering;
    this.#ahead = null;
    await closed((await unused?.catch(() => null)) ?? null);
  }
}

/** Enters the network of a process as root. `pid`: as this machine sees it. */
export async function enterFromOutside(pid: number, places: readonly NetworkPlace[]): Promise<OpenPlaces | null> {
  await using namespace = await openNetworkNamespace(pid).catch(nullFor("ENOENT", "ESRCH"));
  return namespace === null ? null : await openPlaces(namespace.descriptor, places);
}

async function closed(open: OpenPlaces | null): Promise<void> {
  if (open?.ok) await open[Symbol.asyncDispose]();
}
