import type { Stage } from "../../changes/stage.ts";
import type { AgreementRequest, CoveredEffect } from "../../tools/hands.ts";

/**
 * What was shown and approved in one use of a tool: exactly this needs no second consent when it is applied. Programs in a
 * cell may write there before, at the same moment and afterwards, so it is compared by the digest of the content.
 */
export class AgreedInTool {
  readonly #covered: CoveredEffect[] = [];

  add({ covered }: AgreementRequest): void {
    this.#covered.push(...covered);
  }

  async tell(stage: Stage): Promise<void> {
    for (const effect of this.#covered) {
      if (effect.operation === "delete") stage.agreedToDelete(effect.path);
      else await stage.agreedToDiff(effect.path, effect);
    }
  }
}
