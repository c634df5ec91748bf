import { governingMount, namesBeforeColon } from "../../sandbox/access.ts";
import {
  mountFromRoot,
  mountsFromPaths,
  mountsFromZones,
  type NamedPlace,
  type ProjectDeclaration,
} from "../../sandbox/declare.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { parseVirtualPath, ROOT, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type HostPlace, plantedLinkFault, resolveHostPlace } from "../place/host-place.ts";
import { ensureZoneFolder } from "../place/zone-folder.ts";
import type { Checked } from "../yaml/check.ts";
import type { KeyPath, YamlDocument } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import { present } from "./present.ts";
import type { SandboxYaml } from "./sandbox-yaml.ts";
import { constraintsOf } from "./terms.ts";

const DEFAULT_ROOT = ".sandbox";

/** The zones of a project that declares no sandbox: one for input, one for results. */
const DEFAULT_ZONES: NonNullable<SandboxYaml["zones"]> = new Map([
  ["cache", { mode: "rw" as const }],
  ["workspace", { mode: "rw" as const }],
]);

/** The declaration of a folder without `corral.yaml`. */
export function defaultDeclaration(projectDir: string, problemAt: YamlDocument["problemAt"]) {
  return resolveDeclaration({ mode: "sandboxed", own_paths: "allowed" }, projectDir, problemAt);
}

/** The I/O step: finds (or makes) each host folder of a checked `sandbox` section. Problems are reported at their place in the section. */
export async function resolveDeclaration(
  sandbox: SandboxYaml,
  projectDir: string,
  problemAt: YamlDocument["problemAt"],
): Promise<Checked<ProjectDeclaration>> {
  const problems: Problem[] = [];
  const followed: { readonly at: KeyPath; readonly links: readonly string[] }[] = [];
  const hostOf = async (at: KeyPath, find: Promise<HostPlace>, directoryOnly = false): Promise<string> => {
    const place = await find;
    if (!place.ok) problems.push(problemAt(at, place.fault));
    else if (directoryOnly && !place.directory) problems.push(problemAt(at, "is not a folder"));
    if (place.ok) followed.push({ at, links: place.links });
    return place.ok ? place.host : "";
  };

  const rooted = typeof sandbox.root === "object";
  const mounts = await mountsOf(sandbox, projectDir, hostOf);
  const writable = mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.host);
  for (const { at, links } of followed) {
    const fault = plantedLinkFault(links, writable);
    if (fault !== null) problems.push(problemAt(at, fault));
  }
  const workingDir = workingDirOf(sandbox, mounts);
  if (workingDir !== undefined && !workingDir.ok)
    problems.push(problemAt(["sandbox", "working_dir"], workingDir.fault));
  if (problems.length > 0) return { ok: false, problems };
  const { network, limits, own_paths } = sandbox;
  const ownPaths = own_paths === "allowed" || undefined;
  return {
    ok: true,
    value: { mounts, rooted, ...present({ network, limits, workingDir: workingDir?.path, ownPaths }) },
  };
}

type HostOf = (at: KeyPath, find: Promise<HostPlace>, directoryOnly?: boolean) => Promise<string>;

async function mountsOf(sandbox: SandboxYaml, projectDir: string, hostOf: HostOf): Promise<Mount[]> {
  if (typeof sandbox.root === "object") {
    const { root, readonly } = sandbox.root;
    const host = await hostOf(["sandbox", "root", "root"], resolveHostPlace(projectDir, root), true);
    return mountFromRoot({ host, readonly, ...constraintsOf(sandbox.root) });
  }
  const places: NamedPlace[] = [];
  if (sandbox.paths !== undefined) {
    for (const [name, path] of sandbox.paths) {
      const host = await hostOf(["sandbox", "paths", name, "root"], resolveHostPlace(projectDir, path.root));
      places.push({ name, at: path.at, host, mode: path.mode, ...constraintsOf(path) });
    }
    return mountsFromPaths(places);
  }
  for (const [name, zone] of sandbox.zones ?? DEFAULT_ZONES) {
    const direct = sandbox.mode === "direct";
    const find = direct
      ? resolveHostPlace(projectDir, zone.path ?? "")
      : ensureZoneFolder(projectDir, sandbox.root ?? DEFAULT_ROOT, name);
    const host = await hostOf(["sandbox", "zones", name, ...(direct ? ["path"] : [])], find);
    places.push({ name, at: zone.at, host, mode: zone.mode, ...constraintsOf(zone) });
  }
  return mountsFromZones(places);
}

type WorkingDir =
  | { readonly ok: true; readonly path: VirtualPath }
  | { readonly ok: false; readonly path?: undefined; readonly fault: string };

function workingDirOf(sandbox: SandboxYaml, mounts: readonly Mount[]): WorkingDir | undefined {
  if (sandbox.working_dir === undefined) return undefined;
  const names = namesBeforeColon(mounts);
  const home = names.includes("home") ? { home: "/home" as VirtualPath } : {};
  const parsed = parseVirtualPath(sandbox.working_dir, { mountNames: names, ...home });
  if (!parsed.ok) return { ok: false, fault: parsed.reason };
  const seen = parsed.path === ROOT || governingMount({ mounts }, parsed.path) !== undefined;
  return seen
    ? parsed
    : { ok: false, fault: `is outside of the declared folders: ${mounts.map(({ path }) => path).join(", ")}` };
}
