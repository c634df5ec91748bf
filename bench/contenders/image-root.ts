import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type Docker from "dockerode";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { Bind } from "./one-run.ts";

/** An image's files as one read-only directory, mounted once for all containers. Disposing unmounts it. */
export interface ImageRoot extends AsyncDisposable {
  readonly dir: string;
}

type MountPoint = Pick<Bind, "path" | "kind">;
const execute = promisify(execFile);

/**
 * Mounts the layers that the Engine keeps of the plan's image, for contenders that run without the Engine. What they mount needs
 * mount points, and the directory is read-only: an empty layer above the image has them.
 */
export async function openImageRoot(
  docker: Docker,
  { image, tmpfs }: Pick<Plan, "image" | "tmpfs">,
  binds: readonly MountPoint[],
): Promise<ImageRoot | { readonly absent: string }> {
  if (process.geteuid?.() !== 0) return { absent: "only root may mount the layers of an image" };
  const { GraphDriver } = await docker.getImage(image.id).inspect();
  const { UpperDir, LowerDir } = (GraphDriver?.Data ?? {}) as { UpperDir?: string; LowerDir?: string };
  if (GraphDriver?.Name !== "overlay2" || UpperDir === undefined)
    return { absent: "the Engine does not keep images as directories (overlay2)" };
  await using opening = new AsyncDisposableStack();
  const base = await mkdtemp(join(tmpdir(), "corral-bench-image-"));
  opening.defer(() => rm(base, { recursive: true }));
  const [points, dir] = [join(base, "points"), join(base, "root")];
  await mkdir(dir);
  await makeMountPoints(points, [...tmpfs.map(({ path }) => ({ path, kind: "directory" }) as const), ...binds]);
  const layers = [points, UpperDir, ...(LowerDir === undefined ? [] : [LowerDir])].join(":");
  // Newer programs hand it over in a way that has room for 256 bytes.
  const env = { ...process.env, LIBMOUNT_FORCE_MOUNT2: "always" };
  await execute("mount", ["-t", "overlay", "-o", `ro,lowerdir=${layers}`, "corral-bench", dir], { env });
  // Lazily: a container of a bench that was interrupted may still use it.
  opening.defer(async () => void (await execute("umount", ["--lazy", dir])));
  const moved = opening.move();
  return { dir, [Symbol.asyncDispose]: () => moved.disposeAsync() };
}

async function makeMountPoints(layer: string, points: readonly MountPoint[]): Promise<void> {
  await mkdir(layer);
  // The root directory of a container is that of the uppermost layer.
  await chmod(layer, 0o755);
  for (const { path, kind } of points) {
    await mkdir(kind === "directory" ? join(layer, path) : dirname(join(layer, path)), { recursive: true });
    if (kind === "file") await writeFile(join(layer, path), "");
  }
}
