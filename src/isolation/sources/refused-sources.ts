import { readFileSync, realpathSync } from "node:fs";
import { decodedMountField } from "../../files/host/descriptor.ts";
import { holds } from "../../sandbox/virtual-path.ts";

/** Host directories that no mount may be, contain, or be inside of. Made once for an engine and a state directory. */
export interface RefusedSources {
  readonly places: RefusedPlace[];
  readonly mountTable: readonly MountTableEntry[];
  /** From where sources are opened: `/`, or `/proc/PID/root` of a process with the host's mounts if Corral has mounts of its own. */
  readonly hostRoot: string;
  /** The directory of Corral's own with copies of what other machines show: only what lies in it is no refused place. Absent: none. */
  readonly mirrors?: string;
}

/** What of an engine itself is on this host. */
export interface EngineHostPlaces {
  /** Directories that hold the engine's own data. */
  readonly data: readonly string[];
  /** Sockets that control the engine. */
  readonly sockets: readonly string[];
}

interface RefusedPlace {
  readonly label: string;
  /** Its location on its file system: two paths that lead to one directory, by a bind mount, are the same here. */
  readonly location: FileSystemLocation;
  readonly path: string;
}

interface FileSystemLocation {
  readonly device: string;
  readonly type: string;
  readonly path: string;
}

interface MountTableEntry {
  readonly device: string;
  readonly root: string;
  readonly mountPoint: string;
  readonly type: string;
}

/** The system's own directories: never a mount source, whatever the Engine. */
const SYSTEM = ["/proc", "/sys", "/dev", "/etc", "/boot"] as const;
/** The kernel's own file systems, wherever they are mounted. */
const KERNEL_FILE_SYSTEMS = new Set(
  "proc sysfs cgroup cgroup2 devtmpfs devpts mqueue securityfs debugfs tracefs configfs bpf efivarfs binfmt_misc".split(
    " ",
  ),
);
const ENGINE_DATA = "the Engine's data";
const OF_SOCKETS = "the Engine's socket";
const OF_THE_SYSTEM = "a directory of the operating system";
/** Sockets that control an engine; a directory that contains one is refused. */
const SOCKETS = ["/run/docker.sock", "/run/containerd", "/run/podman", "/run/docker"] as const;

/** The directories of the engines' data, if no engine is there to say where they are: none in them is shown to a tool either. */
const USUAL_DATA = ["/var/lib/docker", "/var/lib/containerd", "/var/lib/containers"] as const;
const DAEMON_SETTINGS = "/etc/docker/daemon.json";

/**
 * `engine`: null if none has answered, so that no cell can be made yet. `outer`: a process with the mounts of the host, if Corral has mounts of its
 * own. What the host has mounted is judged then, and not what the container has (docs/facts.md, fact: pins-of-a-container).
 */
export function refusedSourcesFor(
  stateDir: string,
  engine: EngineHostPlaces | null,
  outer: number | null = null,
): RefusedSources {
  const mountTable = readMountTable(outer === null ? "self" : String(outer));
  const place = placing(mountTable);
  return {
    mountTable,
    hostRoot: outer === null ? "/" : `/proc/${outer}/root`,
    places: [
      ...SYSTEM.map(place(OF_THE_SYSTEM)),
      ...SOCKETS.map(place(OF_SOCKETS)),
      ...placesOf(engine ?? { data: usualData(), sockets: [] }, mountTable),
      place("Corral's own state")(stateDir),
    ],
  };
}

/** Where the engine writes what cells of it need. */
export function engineData({ places }: Pick<RefusedSources, "places">): string[] {
  return places.filter(({ label }) => label === ENGINE_DATA).map(({ path }) => path);
}

/** What of an engine that was opened later is on this host counts from then on. */
export function alsoRefuse({ places, mountTable }: RefusedSources, engine: EngineHostPlaces): void {
  places.push(...placesOf(engine, mountTable));
}

function placesOf({ data, sockets }: EngineHostPlaces, table: readonly MountTableEntry[]): RefusedPlace[] {
  const place = placing(table);
  return [...sockets.map(place(OF_SOCKETS)), ...data.map(place(ENGINE_DATA))];
}

function placing(table: readonly MountTableEntry[]) {
  return (label: string) =>
    (path: string): RefusedPlace => {
      const real = realOrSame(path);
      return { label, path: real, location: locate(real, table) };
    };
}

function usualData(): string[] {
  try {
    const { "data-root": own } = JSON.parse(readFileSync(DAEMON_SETTINGS, "utf8"));
    return typeof own === "string" ? [...USUAL_DATA, own] : [...USUAL_DATA];
  } catch {
    return [...USUAL_DATA];
  }
}

/** Why `host`, a path without links, may never be a mount source; null if it may. */
export function refusalOf(host: string, refused: RefusedSources): string | null {
  if (host === "/") return "it is the whole file system";
  if (refused.mirrors !== undefined && host !== refused.mirrors && holds(refused.mirrors, host)) return null;
  const location = locate(host, refused.mountTable);
  if (KERNEL_FILE_SYSTEMS.has(location.type)) return `it lies in ${OF_THE_SYSTEM}`;
  for (const place of refused.places) {
    const same = location.device === place.location.device;
    if (holds(place.path, host) || (same && holds(place.location.path, location.path)))
      return `it lies in ${place.label}`;
    if (holds(host, place.path) || (same && holds(location.path, place.location.path)))
      return `it holds ${place.label}`;
  }
  return null;
}

function realOrSame(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** Where a path is on its own file system, so that a bind mount of `/etc` elsewhere is still `/etc`. */
function locate(path: string, table: readonly MountTableEntry[]): FileSystemLocation {
  let best: MountTableEntry | undefined;
  for (const entry of table) {
    if (holds(entry.mountPoint, path) && (best === undefined || entry.mountPoint.length >= best.mountPoint.length))
      best = entry;
  }
  if (best === undefined) return { device: "", type: "", path };
  const below = path.slice(best.mountPoint === "/" ? 0 : best.mountPoint.length);
  return { device: best.device, type: best.type, path: best.root === "/" ? below || "/" : best.root + below };
}

function readMountTable(process: string): MountTableEntry[] {
  return readFileSync(`/proc/${process}/mountinfo`, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [before = "", after = ""] = line.split(" - ");
      const [, , device = "", root = "", mountPoint = ""] = before.split(" ").map(decodedMountField);
      return { device, root, mountPoint, type: after.split(" ")[0] ?? "" };
    });
}
