import { plannedSeccomp } from "../../seccomp/planned-profile.ts";

/** A filter of system calls as runc reads it (OCI runtime specification, `linux.seccomp`). */
export interface OciSeccomp {
  readonly defaultAction: string;
  readonly architectures: readonly string[];
  readonly syscalls: readonly OciRule[];
}

interface OciRule {
  readonly names: readonly string[];
  readonly action: string;
  readonly errnoRet?: number;
  readonly args?: readonly OciArgument[];
}

interface OciArgument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo?: number;
  readonly op: string;
}

interface EngineRule extends OciRule {
  readonly includes?: { readonly arches?: readonly string[] };
}

interface EngineProfile {
  readonly defaultAction: string;
  readonly archMap: readonly { readonly architecture: string; readonly subArchitectures: readonly string[] }[];
  readonly syscalls: readonly EngineRule[];
}

/** By the name of Node: as the Engine calls a processor, and as the kernel's filters do. */
const ARCHITECTURES: Readonly<Record<string, { readonly engine: string; readonly filter: string }>> = {
  x64: { engine: "amd64", filter: "SCMP_ARCH_X86_64" },
  arm64: { engine: "arm64", filter: "SCMP_ARCH_AARCH64" },
};

const PROFILE_KEYS = ["defaultAction", "archMap", "syscalls"];
const RULE_KEYS = ["names", "action", "errnoRet", "args", "includes"];

/**
 * What the Engine makes of a profile in its own format, for this machine's processor.
 *
 * @throws Error for anything that is not translated here: a condition that was left out would make another filter.
 */
export function ociSeccomp(profile: string, arch: string): OciSeccomp {
  const { defaultAction, archMap, syscalls, ...others } = JSON.parse(profile) as EngineProfile;
  refuseOthers("the profile", Object.keys(others), PROFILE_KEYS);
  const own = ARCHITECTURES[arch];
  const architecture = archMap.find((each) => each.architecture === own?.filter);
  if (own === undefined || architecture === undefined)
    throw new Error(`the seccomp profile has no part for processors of the kind ${arch}`);
  return {
    defaultAction,
    architectures: [architecture.architecture, ...architecture.subArchitectures],
    syscalls: syscalls.flatMap((rule) => {
      refuseOthers(`the rule of ${rule.names[0]}`, Object.keys(rule), RULE_KEYS);
      refuseOthers(`a condition of ${rule.names[0]}`, Object.keys(rule.includes ?? {}), ["arches"]);
      const { includes, ...translated } = rule;
      return includes?.arches?.includes(own.engine) === false ? [] : [translated];
    }),
  };
}

/** The filters of all plans, each translated once. `strictest`: as for {@link plannedSeccomp}. */
export class OciFilters {
  readonly #strictest: string;
  /** By their text; as many as there are kinds of plans. */
  readonly #translated = new Map<string, OciSeccomp>();

  constructor(strictest: string) {
    this.#strictest = strictest;
  }

  of(plan: Parameters<typeof plannedSeccomp>[0]): OciSeccomp {
    const profile = plannedSeccomp(plan, this.#strictest);
    const filter = this.#translated.get(profile) ?? ociSeccomp(profile, process.arch);
    this.#translated.set(profile, filter);
    return filter;
  }
}

function refuseOthers(what: string, keys: readonly string[], known: readonly string[]): void {
  const unknown = keys.filter((key) => !known.includes(key));
  if (unknown.length > 0) throw new Error(`${what} in the seccomp profile cannot be translated: ${unknown.join(", ")}`);
}
