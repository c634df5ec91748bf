import { lstat, readFile, realpath } from "node:fs/promises";
import { dirname, isAbsolute, join } from "node:path";
import type Docker from "dockerode";
import { z } from "zod";
import { nullFor } from "../../../platform/errno.ts";
import { type Owner, sealOf } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { Maker } from "../../port/labels.ts";
import type { ImageLayers, LayerStore } from "../../port/layer-store.ts";
import { asked, isConflict, untilGone } from "../answers/asked.ts";
import { isGone, told } from "../answers/engine-error.ts";
import { imageFacts } from "./inspect.ts";

/** On a keeper: the id of the image that it keeps. */
const KEEPS_LABEL = "dev.corral.keeps";
const SEAL_LABEL = "dev.corral.seal";
/** On a keeper: the state directory for which it was made, and the machine on which that is. */
const STATE_LABEL = "dev.corral.state";
const MACHINE_LABEL = "dev.corral.machine";

export interface LayerStoreOptions {
  readonly docker: Docker;
  readonly stateDir: string;
  /** Of the state directory. */
  readonly maker: Maker;
  /** False: images can be removed while cells of them exist. For tests, whose state directories live for moments. */
  readonly keeps?: boolean;
}

/** The layers of the Engine's images, for drivers that mount them themselves. */
export function layerStore(options: LayerStoreOptions): LayerStore {
  const { docker, maker, keeps = true } = options;
  return {
    layers: (image) => told(layersOf(docker, image)),
    keep: (image) => told(keeps ? keep(options, image) : exists(docker, image)),
    release: (image) => told(release(docker, maker.sealKey, image)),
    kept: () => told(keptImages(docker, maker.sealKey)),
    releaseAbandoned: ({ dryRun }) => told(releaseAbandoned(options, dryRun)),
  };
}

/** An Engine with the image store of containerd reports no directories. */
const Layered = z.looseObject({
  Id: z.string(),
  GraphDriver: z
    .looseObject({
      Name: z.string(),
      Data: z.looseObject({ UpperDir: z.string().optional(), LowerDir: z.string().optional() }).nullish(),
    })
    .nullish(),
});

async function layersOf(docker: Docker, image: string): Promise<ImageLayers | null> {
  const found = await asked(() => docker.getImage(image).inspect(), Layered).catch((error: unknown) => {
    if (isGone(error)) return null;
    throw error;
  });
  if (found === null) return null;
  const { Id, GraphDriver } = found;
  if (Id !== image) throw new EngineTrouble("the Engine described another image than the one that was asked for");
  const top = GraphDriver?.Data?.UpperDir;
  if (GraphDriver?.Name !== "overlay2" || top === undefined) {
    const store = GraphDriver?.Name ?? "a store of containerd";
    return { ok: false, reason: `the Engine keeps its images in ${store}, and not in directories (overlay2)` };
  }
  const lower = GraphDriver.Data?.LowerDir ?? "";
  const dirs = await Promise.all([top, ...(lower === "" ? [] : lower.split(":"))].map(shortened));
  if (dirs.includes(null)) return { ok: false, reason: "the Engine's directories are not on this machine" };
  return { ok: true, dirs: dirs.filter((dir) => dir !== null) };
}

/** The Engine gives each layer a short link for the same purpose: the kernel takes few bytes. Null if it is not there. */
async function shortened(layer: string): Promise<string | null> {
  const real = await realpath(layer).catch(nullFor("ENOENT", "ENOTDIR"));
  if (real === null) return null;
  const name = await readFile(join(dirname(layer), "link"), "utf8").catch(nullFor("ENOENT"));
  if (name === null || !/^[0-9A-Z]{26}$/.test(name)) return layer;
  const short = join(dirname(dirname(layer)), "l", name);
  return (await realpath(short).catch(nullFor("ENOENT"))) === real ? short : layer;
}

/** The same for every process of a state directory, and for no other directory. */
function keeperName(sealKey: Buffer, image: string): string {
  const mark = sealOf(sealKey, { kind: "keeper", name: "", run: image, owner: "" });
  return `corral-keeper-${mark.slice(0, 16)}`;
}

function sealOfKeeper(sealKey: Buffer, image: string): string {
  return sealOf(sealKey, { kind: "keeper", name: keeperName(sealKey, image), run: image, owner: "" });
}

const Listed = z.looseObject({
  Names: z.array(z.string()).nullable(),
  Labels: z.record(z.string(), z.string()).nullable(),
  Id: z.string(),
  ImageID: z.string(),
  State: z.string(),
});
type Listed = z.infer<typeof Listed>;

/** A question for one that is missing would be asked again and again, since a single such answer may be wrong. */
async function listedKeepers(docker: Docker): Promise<Listed[]> {
  const filters = { label: [KEEPS_LABEL] };
  return await asked(() => docker.listContainers({ all: true, filters }), z.array(Listed));
}

/** Null if there is none; throws if another container has its name. */
function keeperAmong(listed: readonly Listed[], sealKey: Buffer, image: string): Listed | null {
  const name = keeperName(sealKey, image);
  const found = listed.find(({ Names }) => Names?.[0] === `/${name}`);
  if (found === undefined) return null;
  if (found.ImageID === image && found.Labels?.[SEAL_LABEL] === sealOfKeeper(sealKey, image)) return found;
  throw new EngineTrouble(`the container ${name} is not Corral's, and has a name of Corral's. Remove it`);
}

/**
 * A container that is made and never started: an image that has one is not removed, also not by `docker image prune -a`. Those
 * of state directories that were removed go when a new one is made, since nothing else looks for them.
 */
async function keep({ docker, stateDir, maker }: LayerStoreOptions, image: string): Promise<boolean> {
  const { sealKey, owner } = maker;
  const listed = await listedKeepers(docker);
  if (keeperAmong(listed, sealKey, image) !== null) return true;
  const facts = await imageFacts(docker, image);
  if (facts === null) return false;
  const name = keeperName(sealKey, image);
  try {
    await docker.createContainer({
      name,
      Image: image,
      Entrypoint: ["/bin/false"],
      Cmd: [],
      Labels: {
        [KEEPS_LABEL]: image,
        [SEAL_LABEL]: sealOfKeeper(sealKey, image),
        [STATE_LABEL]: await realpath(stateDir),
        [MACHINE_LABEL]: owner.machine,
      },
      NetworkDisabled: true,
      // The Engine would make a volume on its disk for each that the image declares.
      HostConfig: { NetworkMode: "none", Tmpfs: Object.fromEntries(facts.volumes.map((path) => [path, ""])) },
    });
  } catch (error) {
    if (isGone(error)) return false;
    if (!isConflict(error)) throw error;
    // Another process was faster, or another container has the name and none of the labels.
    if (keeperAmong(await listedKeepers(docker), sealKey, image) === null)
      throw new EngineTrouble(`the container ${name} is not Corral's, and has a name of Corral's. Remove it`);
  }
  await removeAll(docker, await abandonedAmong(listed, owner));
  return true;
}

async function exists(docker: Docker, image: string): Promise<boolean> {
  return (await imageFacts(docker, image)) !== null;
}

async function release(docker: Docker, sealKey: Buffer, image: string): Promise<void> {
  const found = keeperAmong(await listedKeepers(docker), sealKey, image);
  if (found !== null) await removeAll(docker, [found]);
}

async function removeAll(docker: Docker, keepers: readonly Listed[]): Promise<void> {
  for (const { Id } of keepers) await untilGone(() => docker.getContainer(Id).remove({ force: true, v: true }));
}

/** An image may have any label: what counts is the seal of the name. */
async function keptImages(docker: Docker, sealKey: Buffer): Promise<string[]> {
  const listed = await listedKeepers(docker);
  return listed.flatMap(({ Names, Labels }) => {
    const image = Labels?.[KEEPS_LABEL] ?? "";
    const isOurs =
      Names?.[0] === `/${keeperName(sealKey, image)}` && Labels?.[SEAL_LABEL] === sealOfKeeper(sealKey, image);
    return isOurs ? [image] : [];
  });
}

const KEEPER_NAME = /^\/corral-keeper-[0-9a-f]{16}$/;

/**
 * The keepers of state directories of this machine that are gone. Their keys are gone, too: a user's container may have all these
 * labels from its image, but not such a name as well, and it does not stay without a start.
 */
async function abandonedAmong(listed: readonly Listed[], self: Owner): Promise<Listed[]> {
  const abandoned: Listed[] = [];
  for (const keeper of listed) {
    const { [KEEPS_LABEL]: image, [STATE_LABEL]: stateDir = "", [MACHINE_LABEL]: machine } = keeper.Labels ?? {};
    const isKeeper =
      KEEPER_NAME.test(keeper.Names?.[0] ?? "") && keeper.State === "created" && image === keeper.ImageID;
    if (isKeeper && machine === self.machine && (await isGoneDir(stateDir))) abandoned.push(keeper);
  }
  return abandoned;
}

async function releaseAbandoned({ docker, maker }: LayerStoreOptions, dryRun: boolean): Promise<string[]> {
  const abandoned = await abandonedAmong(await listedKeepers(docker), maker.owner);
  if (!dryRun) await removeAll(docker, abandoned);
  return abandoned.map(({ ImageID }) => ImageID);
}

/** False also if that is not known. */
async function isGoneDir(dir: string): Promise<boolean> {
  if (!isAbsolute(dir)) return false;
  try {
    return (await lstat(dir).catch(nullFor("ENOENT", "ENOTDIR"))) === null;
  } catch {
    return false;
  }
}
