import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import type Docker from "dockerode";
import { z } from "zod";
import { within } from "../../platform/within.ts";
import type { NetworkPlace } from "../../sandbox/network/rule.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import {
  type Door,
  enteringProgram,
  giveChannel,
  listeningProgram,
  type OpenPlaces,
  openDoor,
  takePlaces,
} from "../network/listen-in.ts";
import { KEEPER_IDS, type Plan, SOCKET_PATH } from "../plan/plan.ts";
import { EngineTrouble } from "../port/driver.ts";
import { IMAGE_PREFIX } from "../port/images.ts";
import { containerName, labelsFor } from "../port/labels.ts";
import { asked, inTime, told, untilGone } from "./answers/asked.ts";
import type { Unremoved } from "./cell-remains.ts";
import type { SeccompProfiles } from "./container-config.ts";
import { imageFacts } from "./images/catalog.ts";
import type { ReapScope } from "./reap.ts";

/** The image of Corral's own that has Node. */
const IMAGE_NAME = "node";
/** It takes some 0.3 s; a busy machine may need longer. */
const LIMIT_MS = 30_000;
const MEMORY_BYTES = 256 * 1024 ** 2;
/** Three programs of Node with their threads, and the init. */
const MAX_PROCESSES = 64;
/** More than a cell can have places. */
const MAX_OPEN_FILES = 2048;

export interface ListeningRequest extends Omit<ReapScope, "startedDir"> {
  readonly seccomp: SeccompProfiles;
  /** That of the cell. */
  readonly plan: Plan;
  /** The id of the cell's container. */
  readonly cell: string;
  readonly unremoved: Pick<Unremoved, "add">;
}

/**
 * Opens places in the network of a cell without entering it: a second container that shares that network, and nothing else, makes
 * the sockets and hands them over through its only mount, a Unix socket. It is removed when this settles, so no connection is
 * accepted in it. Rejects with `EngineTrouble`.
 */
export async function enterByContainer(
  request: ListeningRequest,
  places: readonly NetworkPlace[],
): Promise<OpenPlaces> {
  const { docker, maker, liveDir } = request;
  const tag = `${IMAGE_PREFIX}/${IMAGE_NAME}`;
  const image = await told(imageFacts(docker, tag));
  if (image === null) {
    const reason = `Corral does not run as root, and then needs the image ${tag} to listen in the cell. Run \`corral images build ${IMAGE_NAME}\``;
    return { ok: false, reason };
  }
  let open: OpenPlaces | null = null;
  try {
    await using door = await openDoor(liveDir, maker.owner);
    const program = enteringProgram(SOCKET_PATH, listeningProgram(places));
    const config = listeningConfig(request, { image: image.id, socket: door.path, program });
    await using container = await told(startedContainer(request, config));
    const socket = await connectionFrom(container, door);
    open = await takePlaces(giveChannel(socket), places);
  } catch (error) {
    if (open?.ok) await open[Symbol.asyncDispose]();
    throw error;
  }
  return open;
}

/** Everything is the Engine's least; `listensAsPlanned` compares what it made of it. */
function listeningConfig(
  { maker, seccomp, plan, cell }: ListeningRequest,
  { image, socket, program }: { readonly image: string; readonly socket: string; readonly program: string },
): Docker.ContainerCreateOptions & { readonly name: string } {
  const name = `${containerName(plan)}-${randomBytes(4).toString("hex")}`;
  // Neither the worker's user nor its keeper's: no process of the cell is one of this user.
  const used = [plan.user.uid, plan.keeper?.uid];
  const user = [CELL_USER_ID, ...KEEPER_IDS].find((id) => !used.includes(id));
  return {
    name,
    Image: image,
    Labels: labelsFor(maker, "container", name, plan),
    User: `${user}:${user}`,
    WorkingDir: "/",
    Entrypoint: ["node", "--input-type=commonjs", "--eval", program],
    Cmd: [],
    Healthcheck: { Test: ["NONE"] },
    HostConfig: {
      NetworkMode: `container:${cell}`,
      IpcMode: "none",
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges", `seccomp=${seccomp.corral}`],
      Privileged: false,
      Init: true,
      Memory: MEMORY_BYTES,
      MemorySwap: MEMORY_BYTES,
      PidsLimit: MAX_PROCESSES,
      Ulimits: [
        { Name: "nofile", Soft: MAX_OPEN_FILES, Hard: MAX_OPEN_FILES },
        { Name: "fsize", Soft: 0, Hard: 0 },
        { Name: "core", Soft: 0, Hard: 0 },
      ],
      Mounts: [{ Type: "bind", Source: socket, Target: SOCKET_PATH, ReadOnly: true }],
      LogConfig: { Type: "none", Config: {} },
      RestartPolicy: { Name: "no" },
    },
  };
}

interface ListeningContainer extends AsyncDisposable {
  /** Settles, with words for people, if it ends by itself. */
  readonly ended: Promise<string>;
}

/** A container that the Engine reports to be as it was asked for. */
async function startedContainer(
  { docker, unremoved }: ListeningRequest,
  config: Docker.ContainerCreateOptions & { readonly name: string },
): Promise<ListeningContainer> {
  // Known by its name before it is created, so that a creation that fails half way is removed too.
  const container = docker.getContainer(config.name);
  const removal = async (): Promise<void> => {
    await told(untilGone(() => container.remove({ force: true, v: true })));
  };
  const remove = async (): Promise<void> => {
    await removal().catch((error: unknown) => {
      unremoved.add(config.name, removal);
      throw error;
    });
  };
  try {
    await inTime(docker.createContainer(config));
    const wait: Promise<{ readonly StatusCode?: unknown }> = container.wait({ condition: "next-exit" });
    const ended = wait.then(
      ({ StatusCode }) => `it ended with ${StatusCode}`,
      (error: Error) => error.message,
    );
    await inTime(container.start());
    refuseOther(config, await asked(() => container.inspect(), Made));
    return { ended, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

const Made = z.object({
  Image: z.string(),
  Config: z.object({ User: z.string() }),
  HostConfig: z.object({
    NetworkMode: z.string(),
    IpcMode: z.string(),
    PidMode: z.string(),
    Privileged: z.boolean(),
    ReadonlyRootfs: z.boolean(),
    CapAdd: z.array(z.string()).nullish(),
    CapDrop: z.array(z.string()).nullish(),
    SecurityOpt: z.array(z.string()).nullish(),
    Memory: z.int(),
    PidsLimit: z.int().nullish(),
  }),
  Mounts: z.array(z.object({ Source: z.string(), Destination: z.string(), RW: z.boolean() })),
});

/** Before anything is given to it. */
function refuseOther(
  { Image, User, HostConfig: asked = {} }: Docker.ContainerCreateOptions,
  { Image: image, Config, HostConfig: made, Mounts }: z.infer<typeof Made>,
): void {
  const [mount, ...others] = Mounts;
  const source = asked.Mounts?.[0]?.Source;
  const same = {
    image: image === Image,
    user: Config.User === User,
    network: made.NetworkMode === asked.NetworkMode,
    namespaces: made.IpcMode === "none" && made.PidMode === "",
    "root file system": made.ReadonlyRootfs,
    privileges:
      !made.Privileged &&
      (made.CapAdd ?? []).length === 0 &&
      made.CapDrop?.join() === "ALL" &&
      made.SecurityOpt?.join("\n") === asked.SecurityOpt?.join("\n"),
    limits: made.Memory === asked.Memory && made.PidsLimit === asked.PidsLimit,
    mounts: mount?.Source === source && mount?.Destination === SOCKET_PATH && !mount.RW && others.length === 0,
  };
  const differs = Object.entries(same).flatMap(([what, isSame]) => (isSame ? [] : [what]));
  if (differs.length > 0)
    throw new EngineTrouble(`the Engine made the container that listens with another ${differs.join(", ")}`);
}

async function connectionFrom(container: ListeningContainer, door: Door): Promise<Socket> {
  const socket = await within(Promise.race([door.connection, container.ended]), LIMIT_MS);
  if (socket === null || typeof socket === "string")
    throw new EngineTrouble(`the container that listens for the cell did not connect: ${socket ?? "it is late"}`);
  return socket;
}
