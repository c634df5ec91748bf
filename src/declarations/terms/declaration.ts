import { resolve } from "node:path";
import { z } from "zod";
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
import { present } from "../../text/present.ts";
import { resolveNetwork } from "../network/package-rules.ts";
import type { RegistryMap } from "../network/registries/read-registries.ts";
import { plantedLinkFault, resolveHostPlace } from "../place/host-place.ts";
import { isBelowProject, isMissing, type NewZone, type ZonePlace, zoneFolder } from "../place/zone-folder.ts";
import type { Checked, KeyPath, YamlDocument } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import { byKind, later, map, namedMap } from "../yaml/shape.ts";
import { MAX_SECRETS, mountNameFault, named, nameFault } from "./names.ts";
import {
  constraints,
  constraintsOf,
  hostPath,
  limits,
  mode,
  mountPlace,
  network,
  onlyOn,
  refuseSamePlace,
  virtualPath,
} from "./terms.ts";

const MAX_MOUNTS = 100;

/** A `dynamic` worker may be granted more than `mode` says; without that the user is not even asked. */
const grantable = z.literal("rw", "can only be `rw`; leave it out otherwise").optional();

const description = z.string().max(500).optional();

/** `path` is relative to the project with `mode: direct`, and to the folder of all zones with `sandboxed`. */
const zone = () =>
  map({
    path: hostPath.optional(),
    at: mountPlace.optional(),
    mode: mode.default("ro"),
    grantable,
    ...constraints,
    description,
  });

/** `create`: a folder below the project that does not exist is made by the first run. */
const path = () =>
  map({
    root: hostPath,
    at: mountPlace.optional(),
    mode: mode.default("ro"),
    grantable,
    create: onlyOn.optional(),
    ...constraints,
    description,
  });
const rootForm = () => map({ root: hostPath, readonly: z.boolean().default(false), ...constraints, description });

export const sandboxYaml = map({
  mode: z.enum(["sandboxed", "direct"]).optional(),
  root: byKind(
    { text: hostPath, map: later(rootForm) },
    "must be a folder (for zones) or a map with its own `root`",
  ).optional(),
  zones: namedMap(later(zone), mountNameFault, MAX_MOUNTS).superRefine(refuseSamePlace).optional(),
  paths: namedMap(later(path), mountNameFault, MAX_MOUNTS).superRefine(refuseSamePlace).optional(),
  own_paths: z.enum(["inside", "allowed"]).optional(),
  network: later(() => network).optional(),
  /** The secrets that workers may have inside of their cells. */
  secrets: z.array(named(nameFault)).max(MAX_SECRETS).optional(),
  limits: later(() => limits).optional(),
  working_dir: virtualPath.optional(),
});

export type SandboxYaml = z.output<typeof sandboxYaml>;

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

/** What the disk says of a declaration: its sandbox, and the folders of zones that do not exist yet. */
export interface ResolvedDeclaration {
  readonly declaration: ProjectDeclaration;
  readonly newZones: readonly NewZone[];
}

/**
 * The I/O step: finds each host folder of a checked `sandbox` section. Problems are reported at their place in the section.
 * `registries`: those of the presets that it uses.
 */
export async function resolveDeclaration(
  sandbox: SandboxYaml,
  projectDir: string,
  problemAt: YamlDocument["problemAt"],
  registries: RegistryMap = new Map(),
): Promise<Checked<ResolvedDeclaration>> {
  const problems: Problem[] = [];
  const newZones: NewZone[] = [];
  const followed: { readonly at: KeyPath; readonly links: readonly string[] }[] = [];
  const hostOf: HostOf = async (at, find, directoryOnly = false) => {
    const place = await find;
    if (!place.ok) problems.push(problemAt(at, place.fault));
    else if (directoryOnly && !place.directory) problems.push(problemAt(at, "is not a folder"));
    if (place.ok) followed.push({ at, links: place.links });
    if (place.ok && place.isMissing) newZones.push({ host: place.host, declared: problemAt(at, "") });
    return place.ok ? place.host : "";
  };

  const rooted = typeof sandbox.root === "object";
  if (typeof sandbox.root === "string" && !isBelowProject(projectDir, sandbox.root)) {
    const advice = "write `root: { root: . }` to give the project itself as `/`";
    return { ok: false, problems: [problemAt(["sandbox", "root"], `must be a folder below the project; ${advice}`)] };
  }
  const mounts = await mountsOf(sandbox, projectDir, hostOf);
  const writable = mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.host);
  for (const { at, links } of followed) {
    const fault = plantedLinkFault(links, writable);
    if (fault !== null) problems.push(problemAt(at, fault));
  }
  const workingDir = workingDirOf(sandbox, mounts);
  if (workingDir !== undefined && !workingDir.ok)
    problems.push(problemAt(["sandbox", "working_dir"], workingDir.fault));
  const resolved = await resolveNetwork(sandbox.network ?? false, { projectDir, registries });
  if (!resolved.ok)
    problems.push(...resolved.faults.map(({ at, fault }) => problemAt(["sandbox", "network", ...at], fault)));
  if (problems.length > 0 || !resolved.ok) return { ok: false, problems };
  const { limits, own_paths, secrets } = sandbox;
  const network = sandbox.network && resolved.network;
  const ownPaths = own_paths === "allowed" || undefined;
  const further = present({ network, secrets, limits, workingDir: workingDir?.path, ownPaths });
  return { ok: true, value: { declaration: { mounts, rooted, ...further }, newZones } };
}

type HostOf = (at: KeyPath, find: Promise<ZonePlace>, directoryOnly?: boolean) => Promise<string>;

async function mountsOf(sandbox: SandboxYaml, projectDir: string, hostOf: HostOf): Promise<Mount[]> {
  if (typeof sandbox.root === "object") {
    const { root, readonly } = sandbox.root;
    const host = await hostOf(["sandbox", "root", "root"], resolveHostPlace(projectDir, root), true);
    return mountFromRoot({ host, readonly, ...constraintsOf(sandbox.root) });
  }
  const places: NamedPlace[] = [];
  if (sandbox.paths !== undefined) {
    for (const [name, path] of sandbox.paths) {
      const find = path.create ? madePlace(projectDir, path.root) : resolveHostPlace(projectDir, path.root);
      const host = await hostOf(["sandbox", "paths", name, "root"], find);
      places.push({ name, at: path.at, host, mode: path.mode, ...grantableOf(path), ...constraintsOf(path) });
    }
    return mountsFromPaths(places);
  }
  for (const [name, zone] of sandbox.zones ?? DEFAULT_ZONES) {
    const direct = sandbox.mode === "direct";
    const find = direct
      ? resolveHostPlace(projectDir, zone.path ?? "")
      : zoneFolder(projectDir, sandbox.root ?? DEFAULT_ROOT, zone.path ?? name);
    const host = await hostOf(["sandbox", "zones", name, ...(zone.path === undefined ? [] : ["path"])], find);
    places.push({ name, at: zone.at, host, mode: zone.mode, ...grantableOf(zone), ...constraintsOf(zone) });
  }
  return mountsFromZones(places);
}

function grantableOf({ grantable }: { readonly grantable?: "rw" | undefined }): Pick<NamedPlace, "grantable"> {
  return grantable === undefined ? {} : { grantable: true };
}

/** A place that exists, or a folder below the project that the first run makes. */
async function madePlace(projectDir: string, raw: string): Promise<ZonePlace> {
  const place = await resolveHostPlace(projectDir, raw);
  if (place.ok || !(await isMissing(resolve(projectDir, raw)))) return place;
  if (isBelowProject(projectDir, raw)) return await zoneFolder(projectDir, ".", raw);
  return { ok: false, fault: `${place.fault}, and only a folder below the project is created` };
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
