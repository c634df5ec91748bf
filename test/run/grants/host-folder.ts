import { accessSync, constants } from "node:fs";
import { mkdtemp, realpath } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { isReserved } from "../../../src/sandbox/virtual-path.ts";
import { at } from "../../sandbox/sandboxes.ts";

/** A folder of its own outside of `/tmp`, `/root` and their like: what is the container's own cannot be granted. */
export async function makeHostFolder(): Promise<string> {
  const fit = [homedir(), "/srv", "/opt", "/mnt"].find(
    (place) => !isReserved(at(place), NOT_ROOTED) && canMakeIn(place),
  );
  if (fit === undefined) throw new Error("these tests need a place outside of /tmp in which folders can be made");
  return await realpath(await mkdtemp(join(fit, "corral-grants-")));
}

const NOT_ROOTED = { rooted: false };

function canMakeIn(place: string): boolean {
  try {
    accessSync(place, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
