import { namesBeforeColon, readablePaths } from "../sandbox/access.ts";
import type { Policy } from "../sandbox/policy.ts";
import type { Needs, PathNeed, Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { resolveNetwork } from "./network/package-rules.ts";
import type { RegistryMap } from "./network/registries/read-registries.ts";
import { directoryOf } from "./place/entry-directory.ts";
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
