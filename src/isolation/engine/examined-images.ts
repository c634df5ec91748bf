import { randomBytes } from "node:crypto";
import type { Duplex, Readable } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { within } from "../../platform/within.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { makeClosedDir, statePaths } from "../../state/state-dir.ts";
import { sharedFile } from "../network/name-files.ts";
import {
  directoriesAbove,
  type EntryNoun,
  type InTheWay,
  inOrder,
  mountPointsOf,
  ownFileMount,
  refusalOfEntries,
} from "../plan/mounts.ts";
import { gateOf, type Plan } from "../plan/plan.ts";
import { namedUsers, USER_PATHS } from "../plan/user.ts";
import { EngineTrouble } from "../port/driver.ts";
import { HARMLESS_DEVICES, type SavedImage } from "../port/images.ts";
import { labelsFor, type Maker } from "../port/labels.ts";
import { asked, engineMessage, inTime, isGone, told, untilGone } from "./answers/asked.ts";
import { Demultiplexer } from "./attachment.ts";
import { imageFacts, readRecord } from "./images/catalog.ts";

/** Changes when something else is looked for. */
const RECIPE = 3;
/** Images that are remembered, the latest. */
const MAX_REMEMBERED = 500;
/** A look takes less than a second; an image of millions of files longer. */
const LOOK_MS = 120_000;
const MEMORY_BYTES = 256 * 1024 ** 2;
const MAX_ANSWER_BYTES = 64 * 1024;
/** Of `/etc/passwd` and of `/etc/group`; a longer one stays as it is. */
const MAX_USERS_BYTES = 8 * 1024;
/** How many are named to people. */
const MAX_NAMED = 5;

/** `passwd`, `group`: in base64; null if no file can take its place. */
const Looked = z.object({ devices: z.array(z.string()), passwd: z.string().nullable(), group: z.string().nullable() });
type Looked = z.output<typeof Looked>;
const Remembered = z.object({ recipe: z.literal(RECIPE), images: z.record(z.string(), Looked) });

/** `find` does not enter what is mounted: of /dev, /proc and /sys a cell has its own. */
const LOOK = `if ! [ -L /etc ] && { [ -d /etc ] || ! [ -e /etc ]; }; then
  for file in passwd group; do
    if [ -f "/etc/$file" ] && ! [ -L "/etc/$file" ]; then
      echo "== $file $("$0" head -c ${MAX_USERS_BYTES + 1} "/etc/$file" | "$0" base64 -w 0)"
    elif ! [ -e "/etc/$file" ] && ! [ -L "/etc/$file" ]; then echo "== $file "
    fi
  done
fi
find / -xdev '(' -type b -o -type c ')' -exec "$0" stat -c '%t:%T %F %n' '{}' +`;

/** A letter and the path, for each that is something else than a directory. */
const SHOW_KINDS = `for path; do
  if [ -L "$path" ]; then echo "l $path"
  elif [ -f "$path" ]; then echo "f $path"
  elif [ -p "$path" ]; then echo "p $path"
  elif [ -S "$path" ]; then echo "s $path"
  elif [ -e "$path" ] && ! [ -d "$path" ]; then echo "d $path"
  fi
done`;
const KINDS: Readonly<Record<string, EntryNoun>> = {
  l: "a symbolic link",
  f: "a file",
  p: "a FIFO",
  s: "a socket",
  d: "a device",
};

export interface ExaminedRequest {
  readonly docker: Docker;
  readonly maker: Maker;
  readonly stateDir: string;
  readonly seccomp: string;
}

/**
 * Looks at images before cells are made of them, the same way for both drivers and for every user: a container of the image runs Corral's own
 * static program alone, without a network, and without any right but to read everything.
 */
export class ExaminedImages {
  readonly #request: ExaminedRequest;
  readonly #looks = new Map<string, Promise<Looked | null>>();
  /** One look is remembered after another, so that none is forgotten. */
  #written: Promise<void> = Promise.resolve();

  constructor(request: ExaminedRequest) {
    this.#request = request;
  }

  /** Why no cell of this image is made: the Engine lets a container open devices that its image brings. Null if there is no reason. */
  async objection(plan: Plan): Promise<Violation | null> {
    const { name } = plan.image;
    const looked = await this.#look(plan);
    if (looked === null) return { code: "IMAGE_MISSING", image: name };
    const { devices } = looked;
    if (devices.length === 0) return null;
    const named = devices.slice(0, MAX_NAMED).join(", ");
    const others = devices.length - MAX_NAMED;
    const reason = `it has device nodes, which its programs could open: ${named}${others > 0 ? ` and ${others} more` : ""}`;
    return { code: "IMAGE_REFUSED", image: name, reason };
  }

  /** The plan with a name for the cell's user and group, if the image has none. */
  async named(plan: Plan): Promise<Plan> {
    const looked = await this.#look(plan);
    if (looked === null) return plan;
    const textOf = (file: "passwd" | "group"): string | null =>
      looked[file] === null ? null : Buffer.from(looked[file], "base64").toString("latin1");
    const users = namedUsers({ passwd: textOf("passwd"), group: textOf("group") }, plan);
    const { sharedNames } = statePaths(this.#request.stateDir);
    const files = (["passwd", "group"] as const).flatMap((file) => {
      const text = users[file] ?? null;
      return text === null ? [] : [sharedFile(sharedNames, USER_PATHS[file], Buffer.from(text, "latin1"))];
    });
    const mounts = (await Promise.all(files)).map(ownFileMount);
    return mounts.length === 0 ? plan : { ...plan, mounts: inOrder([...plan.mounts, ...mounts]) };
  }

  /** Null: the Engine has no such image. By its id alone: anybody's `docker load` may bring any name. */
  async #look(plan: Plan): Promise<Looked | null> {
    const { id } = plan.image;
    const asked = this.#looks.get(id) ?? this.#lookThrough(plan);
    this.#looks.set(id, asked);
    const looked = await asked.catch((error: unknown) => {
      this.#looks.delete(id);
      throw error;
    });
    // Not remembered: what comes under this id later was not looked at.
    if (looked === null) this.#looks.delete(id);
    return looked;
  }

  /** Why mounts of such a cell were not made where they were planned, if that is the image's doing; else null. */
  async obstacle(plan: Plan): Promise<Violation | null> {
    const points = mountPointsOf(plan);
    const kinds = new Map<string, string>(points.map(({ path, kind }) => [path, `a ${kind}`]));
    const paths = [...new Set(points.flatMap(({ path }) => [...directoriesAbove(path), path]))];
    const answer = await this.#answer(plan, SHOW_KINDS, paths);
    const entries = (answer?.text ?? "").split("\n").flatMap((line): InTheWay[] => {
      const [is, path] = [KINDS[line.charAt(0)], line.slice(2)];
      return is === undefined || is === (kinds.get(path) ?? "a directory") ? [] : [{ path, is }];
    });
    return entries.length === 0 ? null : refusalOfEntries(plan, entries);
  }

  /** Null: the Engine has no such image any more. */
  async #lookThrough(plan: Plan): Promise<Looked | null> {
    const file = statePaths(this.#request.stateDir).examinedImages;
    const before = (await rememberedIn(file))[plan.image.id];
    if (before !== undefined) return before;
    const answer = await this.#answer(plan, LOOK, []);
    if (answer === null) return null;
    const { text, isWhole } = answer;
    // What follows could be anything.
    const devices = isWhole ? devicesIn(text) : [`more than ${MAX_ANSWER_BYTES / 1024} KiB of names`];
    const looked: Looked = { devices, passwd: usersIn(text, "passwd"), group: usersIn(text, "group") };
    const writing = this.#written.then(async () => {
      await makeClosedDir(this.#request.stateDir);
      const all = [...Object.entries(await rememberedIn(file)), [plan.image.id, looked]].slice(-MAX_REMEMBERED);
      await writeAtomically(file, JSON.stringify({ recipe: RECIPE, images: Object.fromEntries(all) }));
    });
    this.#written = writing.catch(() => {});
    await writing;
    return looked;
  }

  /** What a script of the gate prints in the image; null: the Engine has no such image. Rejects with `EngineTrouble` if it does not end well. */
  async #answer(plan: Plan, script: string, words: readonly string[]): Promise<LookAnswer | null> {
    const { docker, maker } = this.#request;
    const facts = await imageFacts(docker, plan.image.id);
    if (facts === null) return null;
    const mark = randomBytes(6).toString("hex");
    const name = `corral-${plan.run}-${mark}`;
    // No image has this directory, or a link in its place.
    const gate = `/corral-${mark}/busybox`;
    const container = docker.getContainer(name);
    try {
      await inTime(
        docker.createContainer({
          name,
          Image: plan.image.id,
          Labels: labelsFor(maker, "container", name, plan),
          NetworkDisabled: true,
          User: "0:0",
          WorkingDir: "/",
          Entrypoint: [gate, "sh", "-c", `set -f; ${script}`, gate, ...words],
          Cmd: [],
          Healthcheck: { Test: ["NONE"] },
          HostConfig: {
            NetworkMode: "none",
            ReadonlyRootfs: true,
            CapDrop: ["ALL"],
            CapAdd: ["CAP_DAC_READ_SEARCH"],
            SecurityOpt: ["no-new-privileges", `seccomp=${this.#request.seccomp}`],
            Memory: MEMORY_BYTES,
            MemorySwap: MEMORY_BYTES,
            PidsLimit: 16,
            // The Engine would make a volume on its disk for each that the image declares.
            Tmpfs: Object.fromEntries(facts.volumes.map((path) => [path, "ro"])),
            Mounts: [{ Type: "bind", Source: gateOf(plan), Target: gate, ReadOnly: true }],
            LogConfig: { Type: "none", Config: {} },
            RestartPolicy: { Name: "no" },
          },
        }),
      );
      const output = (await inTime(
        container.attach({ stream: true, hijack: true, stdout: true, stderr: true }),
      )) as unknown as Duplex;
      const answer = collected(output);
      await inTime(container.start());
      // Asked before the start, an Engine may miss the end of one that ends at once.
      const wait = container.wait({ condition: "not-running" }) as Promise<{ readonly StatusCode: number }>;
      wait.catch(() => {});
      const ended = await within(Promise.all([wait, answer]), LOOK_MS);
      if (ended === null) throw new EngineTrouble(`looking through the image took more than ${LOOK_MS / 1000} s`);
      const [{ StatusCode: code }, answered] = ended;
      if (code !== 0) throw new EngineTrouble(`the image could not be looked through (exit code ${code})`);
      return answered;
    } catch (error) {
      if (error instanceof EngineTrouble) throw error;
      throw new EngineTrouble(`the image could not be looked through: ${engineMessage(error)}`, { cause: error });
    } finally {
      await untilGone(() => container.remove({ force: true, v: true }));
    }
  }
}

async function rememberedIn(file: string): Promise<Readonly<Record<string, Looked>>> {
  return Remembered.safeParse(await readRecord(file)).data?.images ?? {};
}

/** The names are the image's, with any character in them: a line that does not begin so is the rest of a name with a line break. */
function devicesIn(answer: string): string[] {
  return answer.split("\n").flatMap((line) => {
    const [, number = "", kind, path = ""] =
      /^([0-9a-f]+:[0-9a-f]+) (character|block) special file (.*)$/s.exec(line) ?? [];
    return path === "" || (kind === "character" && HARMLESS_DEVICES.has(number)) ? [] : [path];
  });
}

/** The look prints them before any name of the image. */
function usersIn(answer: string, file: "passwd" | "group"): string | null {
  const [, base64 = null] = new RegExp(`^== ${file} ([A-Za-z0-9+/=]*)$`, "m").exec(answer) ?? [];
  return base64 === null || Buffer.from(base64, "base64").length > MAX_USERS_BYTES ? null : base64;
}

interface LookAnswer {
  readonly text: string;
  /** False if there is more of it. */
  readonly isWhole: boolean;
}

/** Its standard output, up to a bound. Resolves at its end. */
async function collected(output: Duplex): Promise<LookAnswer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const streams = new Demultiplexer((name, chunk) => {
    if (name !== "stdout") return;
    if (bytes < MAX_ANSWER_BYTES) chunks.push(chunk);
    bytes += chunk.length;
  });
  await new Promise((done) => {
    output.on("data", (chunk: Buffer) => void streams.add(chunk));
    output.once("end", done).once("close", done).once("error", done);
  });
  return { text: Buffer.concat(chunks).toString("utf8"), isWhole: bytes <= MAX_ANSWER_BYTES };
}

const Layered = z.looseObject({
  Id: z.string(),
  Size: z.number().nullish(),
  RootFS: z.looseObject({ Layers: z.array(z.string().regex(/^sha256:[0-9a-f]{64}$/)).nullish() }),
});

/** An Engine may copy all of an image before it answers. */
const ANSWER_MS = 600_000;

/** An image as `docker save` has it, from any Engine; null if there is no such image. Rejects with `EngineTrouble`. */
export async function savedImage(docker: Docker, image: string): Promise<SavedImage | null> {
  const orNull = (error: unknown): null => {
    if (isGone(error)) return null;
    throw error;
  };
  const found = await told(asked(() => docker.getImage(image).inspect(), Layered).catch(orNull));
  if (found === null) return null;
  if (found.Id !== image) throw new EngineTrouble("the Engine described another image than the one that was asked for");
  return {
    layers: found.RootFS.Layers ?? [],
    bytes: found.Size ?? 0,
    async content() {
      const getting = told(docker.getImage(image).get().catch(orNull)) as Promise<Readable | null>;
      const got = await within(
        getting.then((content) => ({ content })),
        ANSWER_MS,
      );
      if (got !== null) return got.content;
      void getting.then((content) => content?.destroy()).catch(() => {});
      throw new EngineTrouble(`the Engine did not begin to save the image for ${ANSWER_MS / 60_000} minutes`);
    },
  };
}
