/** What makes Corral's cells, the default of runs first: the Engine, or one of the runtimes that its other driver starts. */
export const DRIVER_NAMES = ["engine", "runc", "crun", "bwrap"] as const;
export type DriverName = (typeof DRIVER_NAMES)[number];

/** How rows of Corral begin. */
export function oursOn(driver: DriverName): string {
  return `Corral ${onDriver(driver)}`;
}

export function onDriver(driver: DriverName): string {
  return driver === "engine" ? "on the Engine" : `on ${driver}`;
}

/** The names of the rows that targets and the picture refer to. */
export const DOCKER_RUN = "docker run";
export const ENGINE_API = "Engine API";
export const ENGINE_API_DISABLED = "Engine API, network disabled";
export const RUNC_RUN = "runc run";
export const BUBBLEWRAP = "bwrap";
export const SANDBOX_RUNTIME = "sandbox-runtime";
export const TESTCONTAINERS = "testcontainers";
export const DOCKER_EXEC = "docker exec";
export const ENGINE_EXEC = "Engine API: exec";
export const RUNC_EXEC = "runc exec";
/** These are preceded by {@link oursOn}. */
export const COLD_LIBRARY = "cold run, library";
export const COLD_COMMAND_LINE = "cold run, command line";
export const NESTED_CALL = "nested call";
export const FIRST_BYTE = "warm claim to first byte";
export const WARM_RESULT = "warm claim to result";
export const FRESH = "fleet, fresh cells";
export const SCRUBBED = "fleet, scrubbed cells";
export const SESSION_EXEC = "exec in a session";
export const EXEC_BY_HTTP = "the same over HTTP";
export const TAR = "tar to tar, here";
export const PUT_BY_HTTP = "session put, over HTTP";
export const GET_BY_HTTP = "session get, over HTTP";
/** In the tables of the network, Corral has the driver that it chooses by itself. */
export const DIRECT = "direct: the host's own network";
export const SIDECAR = "CONNECT proxy in a sidecar";
export const TUNNEL = "Corral: tunnel";
export const PROXY = "Corral: CONNECT, for wildcards";
export const LOOKED_INTO = "Corral: looked into";
export const CELL_ALONE = "Corral: no network";
export const CELL_LISTED = "Corral: an allow list of 1 host";

/** Where a fleet is. */
export const SQLITE = "SQLite";
export const POSTGRES = "PostgreSQL";
export const THREE_SHARING = "PostgreSQL, three machines and a coordinator";
export const MANY_MACHINES = "PostgreSQL, three machines";

export function sideBySide(store: string, width: number): string {
  return `${store}, width ${width}`;
}

export function amongItems(items: number): string {
  return `an item among ${items.toLocaleString("en-US")}`;
}
