import type Docker from "dockerode";
import type { Cell, CellExit, CellUsage } from "../cell.ts";
import { EngineTrouble } from "../driver.ts";
import type { Enforcement } from "../enforcement.ts";
import type { Attachment } from "./attachment.ts";
import { engineMessage, engineTrouble, isGone, statusCodeOf } from "./engine-error.ts";
import { sampleUsage } from "./usage.ts";

/** How long the streams of an ended container may take to drain. */
const DRAIN_MS = 5000;
/** How often a broken wait is taken up again with an Engine that still answers. */
const MAX_WAITS = 5;

/** What the Engine answers to a wait; `Error` where it could not find out how the container ended. */
export interface WaitAnswer {
  readonly StatusCode: number;
  readonly Error?: { readonly Message: string } | null;
}

interface Parts {
  readonly container: Docker.Container;
  readonly attachment: Attachment;
  /** The wait that began before the start. */
  readonly wait: Promise<WaitAnswer>;
  readonly enforcement: Enforcement;
  readonly remove: () => Promise<void>;
}

/** A verified container whose worker waits behind the gate. */
export function dockerCell({ container, attachment, wait, enforcement, remove }: Parts): Cell {
  const sampler = sampleUsage(container);
  const exit = ended(container, attachment, wait, () => sampler.last()).finally(() => sampler.stop());
  return {
    id: container.id,
    enforcement,
    exit,
    release: (input) => attachment.release(input),
    kill: (signal) => kill(container, signal),
    async [Symbol.asyncDispose]() {
      sampler.stop();
      attachment.close();
      await remove();
    },
  };
}

async function ended(
  container: Docker.Container,
  attachment: Attachment,
  wait: Promise<WaitAnswer>,
  usage: () => CellUsage,
): Promise<CellExit> {
  try {
    const code = await exitCode(container, wait);
    const output = await drained(attachment);
    const { State } = await container.inspect();
    if (output === "broken") return { kind: "lost", reason: "the connection that carried the worker's output broke" };
    return { kind: "exited", code, outOfMemory: State.OOMKilled, usage: usage() };
  } catch (error) {
    return { kind: "lost", reason: engineMessage(error) };
  } finally {
    attachment.close();
  }
}

/** A wait can break while the Engine lives on; it is asked again. Where it does not answer, nothing is known. */
async function exitCode(container: Docker.Container, wait: Promise<WaitAnswer>): Promise<number> {
  let pending = wait;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const { StatusCode, Error: trouble } = await pending;
      if (trouble) throw new EngineTrouble(trouble.Message);
      return StatusCode;
    } catch (error) {
      if (attempt === MAX_WAITS) throw error;
      const { State } = await container.inspect();
      if (!State.Running && State.Status === "exited") return State.ExitCode;
      pending = container.wait();
    }
  }
}

async function drained(attachment: Attachment): Promise<"complete" | "broken"> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"broken">((resolve) => {
    timer = setTimeout(() => resolve("broken"), DRAIN_MS);
  });
  try {
    return await Promise.race([attachment.ended, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function kill(container: Docker.Container, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  try {
    await container.kill({ signal });
  } catch (error) {
    // 409: it is not running any more.
    if (!isGone(error) && statusCodeOf(error) !== 409) throw engineTrouble(error);
  }
}
