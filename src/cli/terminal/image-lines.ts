import type { RunEvent } from "../../run/model/events.ts";
import { printable, printableLine } from "../../text/visible.ts";

/** What is said while an image is made: milestones, and each step of a build once. */
export class ImageLines {
  #last = "";

  see(event: RunEvent): string[] {
    if (event.type !== "image") return [];
    const { image, step, text } = event.progress;
    const head = `corral: ${printableLine(image, 80)}:`;
    if (step === undefined) return [`${head} ${printable(text)}`];
    const line = `${head} ${printableLine(step, 150)}`;
    if (line === this.#last) return [];
    this.#last = line;
    return [line];
  }
}
