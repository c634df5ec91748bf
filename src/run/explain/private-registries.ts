import { isIP } from "node:net";
import { kindsOf } from "../../declarations/network/package-rules.ts";
import type { Project } from "../../declarations/project.ts";
import { within } from "../../platform/within.ts";
import { blockText, isAddressIn, parseBlock } from "../../sandbox/network/address.ts";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import type { NetworkHost } from "../model/environment.ts";

/** How long a check waits for the name of a registry. */
const LOOKUP_MS = 3000;

/** Registries of this machine that no worker reaches: they are at addresses that are not public, and a file of the project names none. */
export async function privateRegistries(
  project: Project,
  { resolveName }: Pick<NetworkHost, "resolveName">,
): Promise<string[]> {
  const known = new Map<PackageKind, Promise<readonly RegistryPlace[]>>();
  const warnings: string[] = [];
  for (const { at, kind, line } of presetsWithoutAddresses(project)) {
    const hosts = project.registries.get(kind)?.registries.map(({ url }) => new URL(url).hostname) ?? [];
    const finding = known.get(kind) ?? privatePlaces([...new Set(hosts)], resolveName);
    known.set(kind, finding);
    const places = await finding;
    if (places.length === 0) continue;
    const where = places.map(({ host, block }) => `${host} at ${block}`).join(", ");
    const way = line([...new Set(places.map(({ block }) => block))].join(", "));
    warnings.push(
      `${at}: the registry of ${kind} is ${where}, which is not public, so it is not reached. Write \`${way}\`.`,
    );
  }
  return [...new Set(warnings)];
}

interface Preset {
  /** The file, and the section in it. */
  readonly at: string;
  readonly kind: PackageKind;
  /** The line that names these addresses. */
  readonly line: (addresses: string) => string;
}

/** Each use of a preset for which no addresses are given. */
function presetsWithoutAddresses({ declaration, file, dir, workers }: Project): Preset[] {
  const inNetwork = (of: string, kind: PackageKind): Preset => {
    const line = (addresses: string): string => `packages: [{ kind: ${kind}, addresses: [${addresses}] }]`;
    return { at: `${of}: sandbox.network`, kind, line };
  };
  const inEnvironment = (of: string, kind: PackageKind): Preset => ({
    at: `${of}: environment`,
    kind,
    line: (addresses) => `addresses: [${addresses}]`,
  });
  const allowed = typeof declaration.network === "object" ? declaration.network.allow : [];
  return [
    ...allowed.flatMap(({ packages, addresses }) =>
      packages === undefined || addresses !== undefined ? [] : [inNetwork(file ?? dir, packages.kind)],
    ),
    ...[...workers.values()].flatMap(({ file: of, needs: { network }, environment = {} }) => {
      const terms = typeof network === "object" ? network : { packages: [] };
      const { packages = [] } = terms;
      const isOpen = (kind: PackageKind): boolean =>
        !packages.some((preset) => preset.kind === kind && preset.addresses !== undefined);
      const kinds = kindsOf(terms).filter(isOpen);
      const { pip, npm, addresses } = environment;
      const prepared = addresses === undefined ? ([pip && "pypi", npm && "npm"] as const) : [];
      return [
        ...kinds.map((kind) => inNetwork(of, kind)),
        ...prepared.flatMap((kind) => (kind ? [inEnvironment(of, kind)] : [])),
      ];
    }),
  ];
}

interface RegistryPlace {
  readonly host: string;
  /** In CIDR. */
  readonly block: string;
}

/** Those that have no public address. A name that is not found now has no address here. */
async function privatePlaces(
  hosts: readonly string[],
  resolve: NetworkHost["resolveName"],
): Promise<readonly RegistryPlace[]> {
  const places: RegistryPlace[] = [];
  for (const host of hosts) {
    const plain = host.replace(/^\[(.*)\]$/, "$1");
    const lookup = isIP(plain) > 0 ? [plain] : resolve(plain, AbortSignal.timeout(LOOKUP_MS));
    const found = (await within(Promise.resolve(lookup), LOOKUP_MS).catch(() => null)) ?? [];
    const [first] = found.flatMap((address) => parseBlock(address) ?? []);
    if (first === undefined || found.some((address) => isAddressIn(address, undefined))) continue;
    places.push({ host, block: blockText(first) });
  }
  return places;
}
