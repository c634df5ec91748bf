import { readFile, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import type Docker from "dockerode";
import { z } from "zod";
import { nullFor } from "../../../platform/errno.ts";
import { sealOf } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { ImageLayers, LayerStore } from "../../port/layer-store.ts";
import { asked, isConflict, untilGone } from "../answers/asked.ts";
import { isGone, told } from "../answers/engine-error.ts";
import { imageFacts } from "./inspect.ts";

/** On a keeper: the id of the image that it keeps. */
const KEEPS_LABEL = "dev.corral.keeps";
const SEAL_LABEL = "dev.corral.seal";

/** The layers of the Engine's images, for drivers that mount them themselves. `sealKey`: of the state directory. */
export function layerStore(docker: Docker, sealKey: Buffer): LayerStore {
  return {
    layers: (image) => told(layersOf(docker, image)),
    keep: (image) => told(keep(docker, sealKey, image)),
    release: (image) => told(release(docker, sealKey, image)),
    kept: () => told(keptImages(docker, sealKey)),
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

const Keeper = z.looseObject({
  Id: z.string(),
  Image: z.string(),
  Config: z.looseObject({ Labels: z.record(z.string(), z.string()).nullish() }),
});

/** Null if there is none; throws if another container has its name. */
async function foundKeeper(docker: Docker, sealKey: Buffer, image: string): Promise<{ readonly id: string } | null> {
  const name = keeperName(sealKey, image);
  try {
    const { Id, Image, Config } = await asked(() => docker.getContainer(name).inspect(), Keeper);
    const seal = Config.Labels?.[SEAL_LABEL];
    if (Image === image && seal === sealOfKeeper(sealKey, image)) return { id: Id };
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
  throw new EngineTrouble(`the container ${name} is not Corral's, and has a name of Corral's. Remove it`);
}

/** A container that is made and never started: an image that has one is not removed, also not by `docker image prune -a`. */
async function keep(docker: Docker, sealKey: Buffer, image: string): Promise<boolean> {
  if ((await foundKeeper(docker, sealKey, image)) !== null) return true;
  const facts = await imageFacts(docker, image);
  if (facts === null) return false;
  try {
    await docker.createContainer({
      name: keeperName(sealKey, image),
      Image: image,
      Entrypoint: ["/bin/false"],
      Cmd: [],
      Labels: { [KEEPS_LABEL]: image, [SEAL_LABEL]: sealOfKeeper(sealKey, image) },
      NetworkDisabled: true,
      // The Engine would make a volume on its disk for each that the image declares.
      HostConfig: { NetworkMode: "none", Tmpfs: Object.fromEntries(facts.volumes.map((path) => [path, ""])) },
    });
  } catch (error) {
    if (isGone(error)) return false;
    // Another process was faster.
    if (!isConflict(error) || (await foundKeeper(docker, sealKey, image)) === null) throw error;
  }
  return true;
}

async function release(docker: Docker, sealKey: Buffer, image: string): Promise<void> {
  const found = await foundKeeper(docker, sealKey, image);
  if (found !== null) await untilGone(() => docker.getContainer(found.id).remove({ force: true, v: true }));
}

const Listed = z.looseObject({
  Names: z.array(z.string()).nullable(),
  Labels: z.record(z.string(), z.string()).nullable(),
});

/** An image may have any label: what counts is the seal of the name. */
async function keptImages(docker: Docker, sealKey: Buffer): Promise<string[]> {
  const filters = { label: [KEEPS_LABEL] };
  const listed = await asked(() => docker.listContainers({ all: true, filters }), z.array(Listed));
  return listed.flatMap(({ Names, Labels }) => {
    const image = Labels?.[KEEPS_LABEL] ?? "";
    const isOurs =
      Names?.[0] === `/${keeperName(sealKey, image)}` && Labels?.[SEAL_LABEL] === sealOfKeeper(sealKey, image);
    return isOurs ? [image] : [];
  });
}
