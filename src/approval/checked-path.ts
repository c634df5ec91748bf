import { parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";

/** A path of a request, where it is written as Corral writes paths; null where it could mean another than it shows. */
export function checkedPath(raw: string): VirtualPath | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok && parsed.path === raw ? parsed.path : null;
}
