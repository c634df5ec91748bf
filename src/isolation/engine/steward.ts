import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { textBeside } from "../../platform/text-beside.ts";
import { within } from "../../platform/within.ts";
import { gateOf } from "../plan/plan.ts";
import { EngineTrouble, type Steward, type StewardAct, type StewardRequest } from "../port/driver.ts";
import { containerName, labelsFor, STEWARD_LABEL } from "../port/labels.ts";
import { inTime, told, untilGone } from "./answers/asked.ts";
import { Demultiplexer } from "./attachment.ts";
import type { Unremoved } from "./cell-remains.ts";
import type { SeccompProfiles } from "./container-config.ts";
import { imageFacts } from "./images/catalog.ts";
import type { ReapScope } from "./reap.ts";

/** An act takes milliseconds; to remove what an item left may take longer. */
const ACT_MS = 60_000;
/** How long it may take to empty its directory when its input has ended. */
const END_MS = 10_000;
const MEMORY_BYTES = 64 * 1024 ** 2;

/**
 * A shell of Corral's own static program, in the directory of one cell that serves items. Its words: the cell's user and group, those of this
 * process, and the names of the directories that the cell has beside `io` and `attachments`. What is to come into one of them is made by Corral
 * in the directory of the same name below `staged`, and what an item left is moved there. Each is renamed as a whole, and no process of the cell
 * runs meanwhile. The programs are the shell's own, which takes less than to start them.
 *
 * A directory that no item may change is root's: Corral, which has the worker's number, gives it the mode 0750.
 * When its input ends, with its orchestrator, it gives back what is root's, and Corral removes the rest. It never walks into what an item owns,
 * which may be deeper than any path, and be changed by a cell that is still there.
 */
const SCRIPT = textBeside(import.meta.url, "steward.sh");

export interface StewardOptions extends Pick<ReapScope, "docker" | "maker"> {
  readonly seccomp: SeccompProfiles;
  readonly unremoved: Pick<Unremoved, "add">;
}

/**
 * A container that acts as root on a directory of this process's own, for a Corral that is not root. It has the image of the cell and runs nothing of it; no
 * network, and of root's rights those to change owners and modes. Rejects with `EngineTrouble`.
 */
export async function startSteward(
  { docker, maker, seccomp, unremoved }: StewardOptions,
  { plan, dir, dirs }: StewardRequest,
): Promise<Steward> {
  const mark = randomBytes(6).toString("hex");
  const name = `${containerName(plan)}-${mark}`;
  // No image has this directory, or a link in its place.
  const [gate, place] = [`/corral-${mark}/busybox`, `/corral-${mark}/cell`];
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  const words = [`${plan.user.uid}:${plan.user.gid}`, `${uid}:${gid}`, place, ...dirs];
  const facts = await told(imageFacts(docker, plan.image.id));
  if (facts === null) throw new EngineTrouble("the image of a cell is gone");
  const container = docker.getContainer(name);
  const removal = async (): Promise<void> => {
    await told(untilGone(() => container.remove({ force: true, v: true })));
  };
  const remove = async (): Promise<void> => {
    await removal().catch((error: unknown) => {
      unremoved.add(name, removal);
      throw error;
    });
  };
  try {
    await inTime(
      docker.createContainer({
        name,
        Image: plan.image.id,
        Labels: { ...labelsFor(maker, "container", name, plan), [STEWARD_LABEL]: "1" },
        NetworkDisabled: true,
        User: "0:0",
        WorkingDir: "/",
        Entrypoint: [gate, "sh", "-c", SCRIPT, gate, ...words],
        Cmd: [],
        // No program of the image has a name here.
        Env: ["PATH=/dev/null"],
        Healthcheck: { Test: ["NONE"] },
        OpenStdin: true,
        StdinOnce: true,
        HostConfig: {
          NetworkMode: "none",
          IpcMode: "none",
          ReadonlyRootfs: true,
          CapDrop: ["ALL"],
          CapAdd: ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"],
          SecurityOpt: ["no-new-privileges", `seccomp=${seccomp.corral}`],
          Memory: MEMORY_BYTES,
          MemorySwap: MEMORY_BYTES,
          PidsLimit: 16,
          // The Engine would make a volume on its disk for each that the image declares.
          Tmpfs: Object.fromEntries(facts.volumes.map((path) => [path, "ro"])),
          Mounts: [
            { Type: "bind", Source: gateOf(plan), Target: gate, ReadOnly: true },
            { Type: "bind", Source: dir, Target: place, BindOptions: { Propagation: "rprivate" } },
          ],
          LogConfig: { Type: "none", Config: {} },
          RestartPolicy: { Name: "no" },
        },
      }),
    );
    const stream = (await inTime(
      container.attach({ stream: true, hijack: true, stdin: true, stdout: true, stderr: true }),
    )) as unknown as Duplex;
    const answers = new Answers(stream);
    await inTime(container.start());
    await answers.next("ready");
    return {
      async act(what: StewardAct) {
        stream.write(`${what}\n`);
        await answers.next("done");
      },
      async [Symbol.asyncDispose]() {
        stream.end();
        await within(answers.ended, END_MS);
        stream.destroy();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** The lines that the script prints, one for each act. */
class Answers {
  /** When its output has ended. */
  readonly ended: Promise<void>;
  #text = "";
  #said = "";
  #hasEnded = false;
  #look: () => void = () => {};

  constructor(stream: Duplex) {
    const streams = new Demultiplexer((name, chunk) => {
      if (name === "stdout") this.#text += chunk.toString("latin1");
      else this.#said = `${this.#said}${chunk.toString("latin1")}`.slice(-500);
      this.#look();
    });
    this.ended = new Promise((done) => {
      const end = (): void => {
        this.#hasEnded = true;
        this.#look();
        done();
      };
      stream.on("data", (chunk: Buffer) => void streams.add(chunk));
      stream.once("end", end).once("close", end).once("error", end);
    });
  }

  async next(wanted: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#look = (): void => {
      if (this.#text.includes("\n") || this.#hasEnded) resolve();
    };
    this.#look();
    const isThere = (await within(promise, ACT_MS)) !== null;
    const end = this.#text.indexOf("\n");
    const line = this.#text.slice(0, Math.max(0, end));
    this.#text = this.#text.slice(end + 1);
    if (line === wanted) return;
    const why = isThere ? `it ended, or said ${JSON.stringify(`${line} ${this.#said}`.trim())}` : "it is late";
    throw new EngineTrouble(`the container that lays out the files of items did not do so: ${why}`);
  }
}
