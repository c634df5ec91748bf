import { Agent } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import Docker from "dockerode";
import type { Enforcement } from "../plan/enforcement.ts";
import type { Cell, CellExit, CellUsage } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import type { Attachment } from "./attachment.ts";
import { engineMessage, engineTrouble, isGone, statusCodeOf } from "./engine-error.ts";
import { unnamedBytes } from "./unnamed-files.ts";
import { UsageSampler } from "./usage.ts";

/** How long the streams of an ended container may take to drain. */
const DRAIN_MS = 5000;
/** How often a broken wait is repeated while the Engine still answers. */
const MAX_WAITS = 5;

/** How often the Engine is asked about a worker whose streams have ended, until its wait is answered. */
const PATROL_MS = 1000;

/** What the Engine answers to a wait; with `Error` if it could not find out how the container ended. */
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
  const sampler = new UsageSampler(container);
  let killed = false;
  const exit = ended(container, attachment, wait, { usage: () => sampler.last(), killed: () => killed }).finally(() =>
    sampler.stop(),
  );
  return {
    id: container.id,
    enforcement,
    exit,
    release(input) {
      sampler.begin();
      attachment.release(input);
    },
    unnamedBytes: () => unnamedBytes(container),
    kill(signal) {
      killed = true;
      return kill(container, signal);
    },
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
  { usage, killed }: { usage: () => CellUsage; killed: () => boolean },
): Promise<CellExit> {
  const over = new AbortController();
  try {
    const code = await Promise.race([exitCode(container, wait), patrolledExit(container, attachment, over.signal)]);
    const output = await drained(attachment);
    const { State } = await container.inspect();
    if (ENDED_BY_SHUTDOWN.has(code) && !killed() && !(await isListening(container)))
      return { kind: "lost", reason: "the Engine was stopped and ended the worker" };
    if (output === "broken") return { kind: "lost", reason: "the connection that carried the worker's output broke" };
    return { kind: "exited", code, outOfMemory: State.OOMKilled, usage: usage() };
  } catch (error) {
    return { kind: "lost", reason: engineMessage(error) };
  } finally {
    over.abort();
    attachment.close();
  }
}

/** 128 + SIGTERM, and 128 + SIGKILL: what an Engine that is stopped does to its containers. */
const ENDED_BY_SHUTDOWN: ReadonlySet<number> = new Set([143, 137]);

/**
 * An Engine that is being stopped still answers on its open connections while it ends its containers, but accepts no
 * new one. Then it is not known how the worker would have ended.
 */
async function isListening({ modem }: Docker.Container): Promise<boolean> {
  const { socketPath, host, port, protocol } = modem as Docker.DockerOptions;
  if (protocol === "https") return true;
  const options = { socketPath, host, port, protocol, agent: new Agent({ keepAlive: false }) };
  return await new Docker(options as Docker.DockerOptions).ping().then(
    () => true,
    () => false,
  );
}

/**
 * The client does not notice if the Engine dies before it answers a wait. The streams end then, so from their end on
 * the Engine is asked for the container's state. A worker may also have closed its streams and still run.
 */
async function patrolledExit(container: Docker.Container, attachment: Attachment, over: AbortSignal): Promise<number> {
  await attachment.ended;
  for (;;) {
    await pause(PATROL_MS, undefined, { signal: over, ref: false });
    const { State } = await container.inspect();
    if (!State.Running && State.Status === "exited") return State.ExitCode;
  }
}

/** A wait can break while the Engine still runs: it is repeated. If the Engine does not answer, the exit is not known. */
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
