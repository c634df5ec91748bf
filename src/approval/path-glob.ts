import picomatch from "picomatch";

export interface PathGlob {
  /** True for a path that the glob speaks of. Read narrowly, for what approves. */
  matches(path: string): boolean;
  /** True as well for what lies below such a path or could hold one. Read widely, for what denies. */
  touches(path: string): boolean;
}

/** `*` is any part of a name, `?` one character, `**` as a whole name any directories; all else stands for itself. */
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

/** The same for a name by itself, such as a worker's. */
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
