import type Docker from "dockerode";
import type { CellNetwork } from "../network/cell-network.ts";
import { EngineTrouble } from "../port/driver.ts";
import type { Maker } from "../port/labels.ts";
import { untilGone } from "./answers/asked.ts";
import { engineMessage } from "./answers/engine-error.ts";
import type { Attachment } from "./attachment.ts";
import { listVolumes, ownerOfVolume } from "./pinned-volume.ts";
import type { Removal, Unremoved } from "./unremoved.ts";

interface RemainsOptions {
  readonly docker: Docker;
  readonly maker: Maker;
  readonly unremoved: Unremoved;
}

/** What was made for one cell, and how to remove all of it in any state. */
export class CellRemains {
  container: Docker.Container | null = null;
  attachment: Attachment | null = null;
  network: CellNetwork | null = null;
  readonly #options: RemainsOptions;
  readonly #run: string;
  /** The Engine failed meanwhile: then it may leave volumes, also of what it says is removed or was never made. */
  isDoubtful: boolean;
  readonly #sinceMs = performance.now();
  #isGoing = false;

  constructor(options: RemainsOptions, run: string) {
    this.#options = options;
    this.#run = run;
    // An earlier cell of the same run may have left some.
    this.isDoubtful = options.unremoved.take(run);
  }

  /** Also of what it says it removed before. */
  doubt(): void {
    this.isDoubtful = true;
    this.#options.unremoved.doubt();
  }

  /** It is not known how the cell ended. That says nothing of the Engine if it was removed while it ran. */
  lost(): void {
    this.isDoubtful = true;
    if (!this.#isGoing) this.doubt();
  }

  async remove(): Promise<void> {
    this.#isGoing = true;
    this.attachment?.close();
    await this.network?.[Symbol.asyncDispose]();
    const { container } = this;
    if (container === null) return;
    let calls = 0;
    const call = async (): Promise<void> => {
      calls += 1;
      await container.remove({ force: true, v: true });
    };
    try {
      // Its volumes go with it, except if another program removed it, which may have left them.
      if (!(await untilGone(call))) await this.#removeVolumes();
      const { unremoved } = this.#options;
      const removal = this.#removalOf(container);
      if (this.isDoubtful || calls > 1) unremoved.add(this.#run, removal);
      else unremoved.removed(this.#run, { removal, sinceMs: this.#sinceMs });
    } catch (error) {
      this.doubt();
      this.#options.unremoved.add(this.#run, this.#removalOf(container));
      throw new EngineTrouble(`a cell could not be removed: ${engineMessage(error)}`, { cause: error });
    }
  }

  #removalOf(container: Docker.Container): Removal {
    return async (isLeft) => {
      await untilGone(async () => isLeft() && (await container.remove({ force: true, v: true })));
      await this.#removeVolumes(isLeft);
    };
  }

  async #removeVolumes(isLeft: () => boolean = () => true): Promise<void> {
    const { docker, maker } = this.#options;
    const volumes = await listVolumes(docker, this.#run);
    if (!isLeft()) return;
    const left = volumes.filter((told) => ownerOfVolume(maker.sealKey, told) !== null);
    await Promise.all(left.map(({ Name }) => untilGone(() => docker.getVolume(Name).remove())));
  }
}
