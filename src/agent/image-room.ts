import { formatBytes } from "../sandbox/units.ts";
import type { AgentToolAnswer } from "./messages/conversation.ts";

/** One image as large as a tool reads fits, and no provider takes a longer request. */
export const MAX_IMAGE_CHARACTERS = 32 * 1024 * 1024;

/** What the images of one conversation may take, in base64: each is kept for all of it, and sent with every question. */
export class ImageRoom {
  #left = MAX_IMAGE_CHARACTERS;

  /** The answer, without its image where there is no more room for that. */
  admitted({ image, ...answer }: AgentToolAnswer): AgentToolAnswer {
    if (image === undefined) return answer;
    if (image.base64.length > this.#left) return { ...answer, text: `${answer.text}\n${NOT_SHOWN}` };
    this.#left -= image.base64.length;
    return { ...answer, image };
  }
}

const NOT_SHOWN = `[It is not shown: the images of one conversation are at most ${formatBytes(MAX_IMAGE_CHARACTERS)} in all, as base64.]`;
