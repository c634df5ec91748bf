import { mountFromRoot, mountsFromZones, type ProjectDeclaration, projectSandbox } from "../../src/sandbox/declare.ts";
import { derive } from "../../src/sandbox/derive.ts";
import type { Mode, Mount } from "../../src/sandbox/mount.ts";
import type { Policy } from "../../src/sandbox/policy.ts";
import type { Needs, Sandbox } from "../../src/sandbox/sandbox.ts";
import type { Violation } from "../../src/sandbox/violation.ts";
import { parseVirtualPath, type VirtualPath } from "../../src/sandbox/virtual-path.ts";

const MIB = 1024 ** 2;

/** A policy that allows much, so that a test sees only the narrowing that it is about. */
export const roomy: Policy = {
  name: "roomy",
  description: "",
  hardening: {
    rootUser: true,
    readOnlyRoot: true,
    noNewPrivileges: true,
    capabilities: ["CAP_CHOWN", "CAP_KILL"],
    seccomp: "engine",
    fileWatches: true,
    tmpExec: true,
    secrets: "allowed",
    hostExecuted: "allow",
    limitScope: "process",
  },
  network: true,
  maxLimits: { timeoutMs: 3_600_000, memoryBytes: 1024 * MIB, cpus: 4, pids: 512, outputBytes: MIB, diskBytes: MIB },
  defaultLimits: { timeoutMs: 60_000, memoryBytes: 256 * MIB, cpus: 1, pids: 64, outputBytes: MIB, diskBytes: MIB },
  tmpBytes: 64 * MIB,
  reuse: "fresh",
  homeBytes: 64 * MIB,
  nofile: 1024,
};

export const strict: Policy = {
  ...roomy,
  name: "strict",
  hardening: {
    ...roomy.hardening,
    rootUser: false,
    capabilities: [],
    seccomp: "corral",
    fileWatches: false,
    tmpExec: false,
    secrets: "none",
  },
  network: { allow: [{ to: "*.example.org:443" }] },
  maxLimits: { ...roomy.maxLimits, memoryBytes: 512 * MIB },
};

export function at(raw: string): VirtualPath {
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) throw new Error(parsed.reason);
  return parsed.path;
}

export function mount(path: string, mode: Mode, more: Partial<Mount> = {}): Mount {
  return { name: path.split("/")[1] || "/", path: at(path), host: `/host${path === "/" ? "" : path}`, mode, ...more };
}

export function project(mounts: readonly Mount[], more: Partial<ProjectDeclaration> = {}, policy = roomy): Sandbox {
  const rooted = mounts.some(({ path }) => path === "/");
  return projectSandbox({ mounts, rooted, network: true, ...more }, policy);
}

export function zones(modes: Readonly<Record<string, Mode>>): Sandbox {
  return project(mountsFromZones(Object.entries(modes).map(([name, mode]) => ({ name, mode, host: `/host/${name}` }))));
}

export function rooted(readonly = false): Sandbox {
  return project(mountFromRoot({ host: "/host", readonly }));
}

export function child(parent: Sandbox, needs: Needs, name = "child"): Sandbox {
  const derivation = derive(parent, needs, name);
  if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations, null, 2));
  return derivation.sandbox;
}

export function refusals(parent: Sandbox, needs: Needs): readonly Violation[] {
  const derivation = derive(parent, needs, "child");
  return derivation.ok ? [] : derivation.violations;
}

/** `["/data ro"]`: the mounts as a person would write them. */
export function shown(sandbox: Sandbox): string[] {
  return sandbox.mounts.map(({ path, mode }) => `${path} ${mode}`);
}
