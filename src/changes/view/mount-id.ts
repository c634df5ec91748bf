import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";

/**
 * Which mount a descriptor stands in (proc(5), `fdinfo`). Devices do not tell: a directory that is bound inside of
 * another one can be on the same, and an overlay shows files of several.
 */
export function mountIdOf({ fd }: Descriptor): string {
  const text = fs.readFileSync(`/proc/self/fdinfo/${fd}`, "utf8");
  const id = /^mnt_id:\s*(\d+)$/m.exec(text)?.[1];
  if (id === undefined) throw new Error("the kernel does not tell of a descriptor which mount it is in");
  return id;
}
