declare const brand: unique symbol;

/** A checked, normalised, absolute path of the virtual namespace: `/`, `/data/a.md`. Made by {@link parseVirtualPath}. */
export type VirtualPath = string & { readonly [brand]: "VirtualPath" };

export type PathParse =
  | { readonly ok: true; readonly path: VirtualPath }
  | { readonly ok: false; readonly reason: string };

export interface PathContext {
  /** The base of relative paths; absent: `/`. */
  readonly workingDir?: VirtualPath;
  /** Names that may precede a colon: `reports:a.md`. */
  readonly mountNames?: readonly string[];
  /** The meaning of `~`; absent: `~` is refused. */
  readonly home?: VirtualPath;
}

export const ROOT = "/" as VirtualPath;

/** Linux's limits for a path and for one component, in bytes of UTF-8. */
export const MAX_PATH_BYTES = 4096;
export const MAX_COMPONENT_BYTES = 255;

/** The path that a worker's text means (docs/architecture.md, "Addressing"), or why it is not a path. Never throws. */
export function parseVirtualPath(raw: string, context: PathContext = {}): PathParse {
  const unfit = whyUnfit(raw);
  if (unfit !== null) return refuse(unfit);
  const anchored = anchor(raw, context);
  if (!anchored.ok) return anchored;
  return normalise(anchored.path);
}

/** True if `inner` is `outer` or below it, by whole components: `/data` does not hold `/data-evil`. Both are absolute, of the host or of a sandbox. */
export function holds(outer: string, inner: string): boolean {
  return outer === inner || inner.startsWith(outer === ROOT ? ROOT : `${outer}/`);
}

/** The same of paths of one sandbox. */
export function covers(prefix: VirtualPath, path: VirtualPath): boolean {
  return holds(prefix, path);
}

/** `path` relative to `prefix`, without a leading slash; empty if they are equal, null if it is not below. */
export function below(prefix: VirtualPath, path: VirtualPath): string | null {
  if (!covers(prefix, path)) return null;
  return path.slice(prefix === ROOT ? 1 : prefix.length + 1);
}

/** Joins `prefix` and a normalised rest, as {@link below} returns it. Throws for a rest that could leave the prefix. */
export function joinVirtual(prefix: VirtualPath, rest: string): VirtualPath {
  if (rest === "") return prefix;
  if (rest.split("/").some((part) => part === "" || part === "." || part === "..")) {
    throw new RangeError(`not a normalised relative path: ${JSON.stringify(rest)}`);
  }
  return (prefix === ROOT ? `/${rest}` : `${prefix}/${rest}`) as VirtualPath;
}

/** By code unit: a path always precedes what is below it, and the order does not depend on the locale. */
export function comparePaths(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

type Anchored = { readonly ok: true; readonly path: string } | { readonly ok: false; readonly reason: string };

function refuse(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}

function whyUnfit(raw: string): string | null {
  if (raw === "") return "the path is empty; `.` is the working directory";
  if (raw.length > MAX_PATH_BYTES) return tooLong;
  if (/\p{Cc}/u.test(raw)) return "control characters are not allowed in paths";
  if (/\p{Cs}/u.test(raw)) return "the path is not valid Unicode";
  if (raw.includes("\\")) return "backslashes are not allowed; separate components with `/`";
  return null;
}

const tooLong = `the path is longer than ${MAX_PATH_BYTES} bytes`;

/** The absolute form of `raw`, before `.` and `..` are resolved. */
function anchor(raw: string, context: PathContext): Anchored {
  if (raw.startsWith("/")) return { ok: true, path: raw };
  if (raw === "~" || raw.startsWith("~/")) {
    if (context.home === undefined) return refuse("there is no home directory here; use an absolute path");
    return { ok: true, path: `${context.home}/${raw.slice(1)}` };
  }
  if (raw.startsWith("~"))
    return refuse("homes of other users do not exist here; write `./~…` for a file of that name");

  // A mount's name is checked before the drive letter, so that a mount named `c` can be addressed.
  const colon = raw.indexOf(":");
  const name = colon < 0 ? null : raw.slice(0, colon);
  if (name !== null && context.mountNames?.includes(name)) {
    return { ok: true, path: `/${name}/${raw.slice(colon + 1)}` };
  }
  if (/^[A-Za-z]:/.test(raw)) return refuse("drive letters are not allowed; paths start with `/`");
  return { ok: true, path: `${context.workingDir ?? ROOT}/${raw}` };
}

function normalise(text: string): PathParse {
  const parts: string[] = [];
  for (const part of text.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      if (parts.pop() === undefined) return refuse("`..` would leave `/`");
    } else if (bytesOf(part) > MAX_COMPONENT_BYTES) {
      return refuse(`one component of the path is longer than ${MAX_COMPONENT_BYTES} bytes`);
    } else parts.push(part);
  }
  const path = `/${parts.join("/")}`;
  return bytesOf(path) > MAX_PATH_BYTES ? refuse(tooLong) : { ok: true, path: path as VirtualPath };
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** Directories of a cell in which a mount would hide what is the system's or Corral's. */
const OF_THE_CELL: ReadonlySet<string> = new Set(
  "bin boot dev etc lib lib32 lib64 libx32 proc run sbin sys usr var attachments .corral".split(" "),
);

/** Directories that are the cell's own; a mount may be below them, where nothing is at first. */
const OWN_PARENTS: ReadonlySet<string> = new Set(["root", "tmp"]);

/** The home of every cell without a mount `home`, in memory. */
const HOME = "/home/worker" as VirtualPath;

/** Where the namespace of a rooted sandbox (the root form) is in a cell, whose own `/` is the image's. */
export const ROOTED_BASE = "/project" as VirtualPath;
/** The directory of a rooted namespace in its cell. No mount may be declared by that name, in either kind of namespace. */
const OF_ROOTED = "project";

/**
 * True if nothing can be mounted at `path`: `/` itself, and the cell's own directories. A rooted namespace has its own
 * directory in the cell, and hides none of them.
 */
export function isReserved(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  if (path === ROOT || rooted) return path === ROOT;
  const [, first = "", second] = path.split("/");
  // Hidden directories of root hold keys and settings, and are no checkout.
  const isRootsOwn = first === "root" && second?.startsWith(".") === true;
  return OF_THE_CELL.has(first) || isRootsOwn || (OWN_PARENTS.has(first) && second === undefined);
}

/** True for a place at, in or around the cell's home, which a directory of another place would replace. */
export function hidesHome(path: VirtualPath): boolean {
  return covers(path, HOME) || covers(HOME, path);
}

/** True for a place below a directory that a cell has in memory. */
export function isInMemory(path: VirtualPath, { rooted }: { readonly rooted: boolean }): boolean {
  return !rooted && OWN_PARENTS.has(path.split("/")[1] ?? "");
}

/** True for a name that no declared mount may have. */
export function isReservedName(name: string): boolean {
  return OF_THE_CELL.has(name) || OWN_PARENTS.has(name) || name === OF_ROOTED;
}
