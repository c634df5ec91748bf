import { join } from "node:path/posix";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";

/** Packages that were prepared for a worker. `host`: their directory. */
export interface PlannedEnvironment {
  readonly kind: "pip" | "npm";
  readonly digest: string;
  readonly host: string;
}

/** Where the packages of each tool are in a cell, both when they are prepared and when they are used. */
export const ENVIRONMENT_PLACE = { pip: "/env/python", npm: "/env/node" } as const;

/**
 * The read-only mounts. Modules of Node are at `/node_modules` too: `import` looks there for every file of the cell, and does
 * not read NODE_PATH.
 */
export function environmentMounts(environments: readonly PlannedEnvironment[]): [path: string, host: string][] {
  return environments.flatMap(({ kind, host }): [string, string][] => [
    [ENVIRONMENT_PLACE[kind], host],
    ...(kind === "npm" ? [[MODULES, modulesOf(host)] as [string, string]] : []),
  ]);
}

const MODULES = "/node_modules";

/** The directories on the host that are mounted. */
export function environmentSources(environments: readonly PlannedEnvironment[]): string[] {
  return environmentMounts(environments).map(([, host]) => host);
}

function modulesOf(host: string): string {
  return join(host, "node_modules");
}

/** What programs need to find the packages; they come before those of the image. */
export function environmentVariables(
  environments: readonly PlannedEnvironment[],
  path: string,
): Readonly<Record<string, string>> {
  const kinds = environments.map(({ kind }) => kind);
  const programs = kinds.map((kind) => PROGRAMS[kind]);
  return {
    ...(programs.length === 0 ? {} : { PATH: [...programs, path].join(":") }),
    ...(kinds.includes("pip") ? { VIRTUAL_ENV: ENVIRONMENT_PLACE.pip } : {}),
  };
}

const PROGRAMS = { pip: `${ENVIRONMENT_PLACE.pip}/bin`, npm: `${MODULES}/.bin` } as const;

/** A mount of the sandbox at, in or around a place of the packages would hide one of both. */
export function refuseHiddenEnvironments(
  environments: readonly PlannedEnvironment[],
  { mounts, rooted }: Sandbox,
  violations: Violation[],
): void {
  const places = environmentMounts(environments).map(([path]) => path);
  for (const { path } of rooted ? [] : mounts) {
    if (places.some((place) => `${place}/`.startsWith(`${path}/`) || `${path}/`.startsWith(`${place}/`)))
      violations.push({ code: "MOUNT_RESERVED", path, because: "environment" });
  }
}
