import type { VirtualPath } from "../../sandbox/virtual-path.ts";

/** What the views of a sandbox leave out, although it is in their directories. */
export interface Hidden {
  /** The size in bytes of a file that is left out. Null: none is at that path. */
  sizeAt(path: VirtualPath): number | null;
  /** What is left out below a directory, at most `depth` levels down. */
  below(path: VirtualPath, depth: number): Iterable<HiddenEntry>;
}

export interface HiddenEntry {
  readonly path: VirtualPath;
  /** Null: it is not a file, or cannot be read. */
  readonly size: number | null;
}

export const NOTHING_HIDDEN: Hidden = { sizeAt: () => null, below: () => [] };

/** The number of entries that are not shown, by the reason. Their names are never shown. */
export interface NotShown {
  readonly otherSuffix: number;
  readonly tooLarge: number;
  /** Devices, FIFOs, sockets, and what Corral itself may not read. */
  readonly unreadable: number;
}

export const ALL_SHOWN: NotShown = { otherSuffix: 0, tooLarge: 0, unreadable: 0 };

export function sumOf(a: NotShown, b: NotShown): NotShown {
  return {
    otherSuffix: a.otherSuffix + b.otherSuffix,
    tooLarge: a.tooLarge + b.tooLarge,
    unreadable: a.unreadable + b.unreadable,
  };
}

/** One sentence; empty if everything is shown. */
export function notShownText({ otherSuffix, tooLarge, unreadable }: NotShown): string {
  const parts = [
    [otherSuffix, "with another suffix (SUFFIX_NOT_ALLOWED)"],
    [tooLarge, "too large (FILE_TOO_LARGE)"],
    [unreadable, "not readable"],
  ] as const;
  const said = parts.filter(([count]) => count > 0).map(([count, why]) => `${count} ${why}`);
  return said.length === 0 ? "" : `Entries that are not shown: ${said.join(", ")}.`;
}
