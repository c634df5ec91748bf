import fs from "node:fs";
import { posix } from "node:path";
import { governingMount, namesBeforeColon, readablePaths } from "../sandbox/access.ts";
import type { Policy } from "../sandbox/policy.ts";
import type { Needs, PathNeed, Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { below, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { resolveNetwork } from "./network/package-rules.ts";
import type { RegistryMap } from "./network/registries/read-registries.ts";
import { plantedLinkFault, resolveHostPlace } from "./place/host-place.ts";
import type { RawNeeds, RawPathNeed } from "./worker/exposure.ts";

export interface ResolveContext {
  readonly projectDir: string;
  /** The caller's sandbox: its mounts define names and places of files. */
  readonly parent: Sandbox;
  /** The policy that the worker names; absent if it names none. */
  readonly policy?: Policy;
  /** Host directories in which some worker may have put a link. */
  readonly writable?: readonly string[];
  /** Those of the presets that the worker uses. Absent: it uses none. */
  readonly registries?: RegistryMap;
}

export type NeedsResolution =
  | { readonly ok: true; readonly needs: Needs }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The I/O step between a worker's file and the pure `derive`. Reports all violations together. */
export async function resolveNeeds(raw: RawNeeds, context: ResolveContext): Promise<NeedsResolution> {
  const violations: Violation[] = [];
  const { parent, projectDir, policy, writable = [], registries = new Map() } = context;
  const place = (path: string): VirtualPath | undefined => {
    const parsed = parseIn(parent, path);
    if (!parsed.ok) violations.push(notAPath(parent, path));
    return parsed.ok ? parsed.path : undefined;
  };
  const directories = (paths: readonly string[] | undefined) => {
    const places = paths?.map(place).filter((path) => path !== undefined);
    return places && [...new Set(places.map((path) => directoryOf(parent, path)))];
  };

  const paths: PathNeed[] = [];
  for (const path of raw.paths ?? []) {
    const resolved = await resolvePath(path, projectDir, writable);
    if ("code" in resolved) violations.push(resolved);
    else paths.push(resolved);
  }
  const allowRead = directories(raw.allowRead);
  const allowWrite = directories(raw.allowWrite);
  const workingDir = raw.workingDir === undefined ? undefined : place(raw.workingDir);
  const network = raw.network === undefined ? undefined : await resolveNetwork(raw.network, { projectDir, registries });
  if (network?.ok === false)
    violations.push(
      ...network.faults.map(
        ({ at, fault }): Violation => ({ code: "NETWORK_NOT_RESOLVED", at: at.join("."), reason: fault }),
      ),
    );
  if (violations.length > 0 || network?.ok === false) return { ok: false, violations };
  const needs = {
    ...raw,
    paths: raw.paths && paths,
    allowRead,
    allowWrite,
    workingDir,
    network: network?.network,
    policy,
  };
  return { ok: true, needs: present(needs) };
}

/** A worker's paths are relative to `/`, so that its file means the same for every caller. */
function parseIn({ mounts }: Sandbox, path: string) {
  const home = mounts.find((mount) => mount.name === "home" && mount.path === "/home");
  return parseVirtualPath(path, { mountNames: namesBeforeColon(mounts), ...(home && { home: home.path }) });
}

function notAPath(parent: Sandbox, asked: string): Violation {
  const valid = readablePaths(parent);
  return { code: "PATH_NOT_AVAILABLE", asked, by: parent.chain.at(-1) ?? "project", valid };
}

async function resolvePath(
  { root, ...path }: RawPathNeed,
  projectDir: string,
  writable: readonly string[],
): Promise<PathNeed | Violation> {
  const place = await resolveHostPlace(projectDir, root);
  const fault = place.ok ? plantedLinkFault(place.links, writable) : place.fault;
  if (!place.ok || fault !== null)
    return {
      code: "MOUNT_SOURCE_REFUSED",
      path: path.at ?? `/${path.name}`,
      reason: `it ${fault ?? "cannot be opened"}`,
    };
  return { ...path, host: place.host };
}

/**
 * The directory that an allowlist entry means: itself, or the one around it if it is a file.
 *
 * No link below the mount is followed, since a worker may have planted it: such an entry stays as it is, and is
 * refused when it is opened. What does not exist yet stays as it is too.
 */
function directoryOf(parent: Sandbox, path: VirtualPath): VirtualPath {
  const mount = governingMount(parent, path);
  const parts = mount === undefined ? [] : (below(mount.path, path) ?? "").split("/").filter((part) => part !== "");
  let host = mount?.host ?? "";
  for (const [index, part] of parts.entries()) {
    host = posix.join(host, part);
    const found = entryAt(host);
    if (found === null || found.isSymbolicLink()) return path;
    const last = index === parts.length - 1;
    if (!found.isDirectory()) return last ? (posix.dirname(path) as VirtualPath) : path;
  }
  return path;
}

/** Null if nothing is known to be there. One call for a name takes microseconds; to have another thread do it costs more. */
function entryAt(host: string): fs.Stats | null {
  try {
    return fs.lstatSync(host, { throwIfNoEntry: false }) ?? null;
  } catch {
    return null;
  }
}
