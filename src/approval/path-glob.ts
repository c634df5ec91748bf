import picomatch from "picomatch";
import { parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";

export interface PathGlob {
  /** True for a path that the glob matches exactly. The narrow reading, for rules that approve. */
  matches(path: string): boolean;
  /** Also true for a path below a match, or above a possible match. The wide reading, for rules that deny. */
  touches(path: string): boolean;
}

/** `*` matches any part of a name, `?` one character, `**` as a whole name any directories. All else is literal. */
export function parsePathGlob(glob: string): PathGlob {
  const names = partsOf(glob);
  const whole = names.length === 0 ? () => false : picomatch(names.map(literally).join("/"), OPTIONS);
  const single = names.map(parseNameGlob);
  const isRoot = names.every((name) => name === "**");
  return {
    matches: (path) => (path === "/" ? isRoot : whole(path.slice(1))),
    touches(path) {
      for (const [index, part] of partsOf(path).entries()) {
        if (index >= names.length || names[index] === "**") return true;
        if (single[index]?.(part) !== true) return false;
      }
      return true;
    },
  };
}

/** A glob for a single name, such as a worker's. */
export function parseNameGlob(glob: string): (name: string) => boolean {
  return picomatch(literally(glob), OPTIONS);
}

const OPTIONS = { dot: true, noextglob: true, nonegate: true } as const;

function literally(glob: string): string {
  return glob.replaceAll(/[^\p{L}\p{N}*?/ _.-]/gu, "\\$&");
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

/** A path of a request in canonical form; null if it is not canonical, because it could then mean another path than it shows. */
export function checkedPath(raw: string): VirtualPath | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok && parsed.path === raw ? parsed.path : null;
}
