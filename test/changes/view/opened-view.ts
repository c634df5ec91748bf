import fs from "node:fs";
import { join } from "node:path";
import { openView, type View } from "../../../src/changes/view/view.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";

/** A directory to be looked at through views, and a place of Corral's own beside it. Disposing closes and removes all. */
export interface ViewPlaces extends AsyncDisposable {
  readonly path: string;
  /** The directory itself. */
  readonly target: string;
  mount(more?: Partial<Mount>): Mount;
  view(overlays: boolean, more?: Partial<Mount>, others?: readonly Mount[]): Promise<View>;
}

export const DATA = "/data" as VirtualPath;

export function viewPlaces(): ViewPlaces {
  const folder = temporaryFolder();
  const target = join(folder.path, "target");
  fs.mkdirSync(target);
  const views: View[] = [];
  let made = 0;
  const mount = (more: Partial<Mount> = {}): Mount => ({ name: "data", path: DATA, host: target, mode: "rw", ...more });
  return {
    path: folder.path,
    target,
    mount,
    async view(overlays, more = {}, others = []) {
      const dir = join(folder.path, `view-${made}`);
      made += 1;
      fs.mkdirSync(dir);
      const own = mount(more);
      const view = await openView({ mount: own, mounts: [own, ...others], dir, overlays });
      if (view === null) throw new Error("the view cannot be opened");
      views.push(view);
      return view;
    },
    async [Symbol.asyncDispose]() {
      for (const view of views.toReversed()) await view.close();
      folder.remove();
    },
  };
}

/** What is mounted at or below a directory. */
export function mountsBelow(dir: string): string[] {
  const points = fs.readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return points.map((line) => line.split(" ")[4] ?? "").filter((path) => path === dir || path.startsWith(`${dir}/`));
}
