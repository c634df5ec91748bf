import { formatBytes } from "../sandbox/units.ts";
import type { AgentToolAnswer } from "./messages/conversation.ts";

/** Fits one image of the largest size that a tool reads. Providers accept no longer requests. */
export const MAX_IMAGE_CHARACTERS = 32 * 1024 * 1024;

/** Limits the images of one conversation, in base64 characters: every request contains all of them. */
export class ImageRoom {
  #left = MAX_IMAGE_CHARACTERS;

  /** The answer, without its image if there is no room left. */
  admitted({ image, ...answer }: AgentToolAnswer): AgentToolAnswer {
    if (image === undefined) return answer;
    if (image.base64.length > this.#left) return { ...answer, text: `${answer.text}\n${NOT_SHOWN}` };
    this.#left -= image.base64.length;
    return { ...answer, image };
  }
}

const NOT_SHOWN = `[The image is not shown: the images of one conversation may have at most ${formatBytes(MAX_IMAGE_CHARACTERS)} together, as base64.]`;
