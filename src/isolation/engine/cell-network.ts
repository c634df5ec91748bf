import type Docker from "dockerode";
import { z } from "zod";
import { nullFor } from "../../platform/errno.ts";
import type { NetworkPlace } from "../../sandbox/network/places.ts";
import { type OpenPlaces, openPlaces } from "../network/listen-in.ts";
import { openNetworkNamespace } from "../network/namespace.ts";
import type { Accept, Listening } from "../port/cell.ts";
import { asked } from "./answers/asked.ts";
import { engineTrouble } from "./answers/engine-error.ts";

/** What listens in one namespace; null if that of the container cannot be entered. */
type Entered = { readonly namespace: string; readonly open: OpenPlaces } | null;

const Running = z.object({ State: z.object({ Pid: z.int().positive() }) });

/** Listens in the network of one container, from outside. */
export class CellNetwork implements AsyncDisposable {
  readonly #container: Docker.Container;
  /** What was opened ahead, until it is used. */
  #ahead: { readonly places: readonly NetworkPlace[]; readonly entering: Promise<Entered> } | null = null;

  constructor(container: Docker.Container) {
    this.#container = container;
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
    const entered = await (ahead ?? this.#enter(places));
    if (entered === null || entered.namespace !== reported) {
      await closed(entered);
      return { ok: false, reason: "the network of the cell is not one that this machine's kernel shows" };
    }
    const { open } = entered;
    if (open.ok) open.accept(accept);
    return open;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const unused = this.#ahead?.entering;
    this.#ahead = null;
    await closed((await unused?.catch(() => null)) ?? null);
  }

  async #enter(places: readonly NetworkPlace[]): Promise<Entered> {
    const { State } = await asked(() => this.#container.inspect(), Running).catch((error) => {
      throw engineTrouble(error);
    });
    await using namespace = await openNetworkNamespace(State.Pid).catch(nullFor("ENOENT", "ESRCH"));
    if (namespace === null) return null;
    return { namespace: namespace.id, open: await openPlaces(namespace.descriptor, places) };
  }
}

async function closed(entered: Entered): Promise<void> {
  if (entered?.open.ok) await entered.open[Symbol.asyncDispose]();
}
