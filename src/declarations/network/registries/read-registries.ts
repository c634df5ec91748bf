import type { PackageKind } from "../../../sandbox/network/rule.ts";
import { cargoRegistries } from "./cargo.ts";
import { debianRegistries } from "./debian.ts";
import { goRegistries } from "./go.ts";
import type { Machine } from "./machine.ts";
import { npmRegistries } from "./npm.ts";
import { pipRegistries } from "./pip.ts";
import type { Registries } from "./registry.ts";

/** The registries of the presets that something uses, as this machine is configured for them. */
export type RegistryMap = ReadonlyMap<PackageKind, Registries>;

const READERS: Readonly<Record<PackageKind, (machine: Machine) => Promise<Registries>>> = {
  npm: npmRegistries,
  pypi: pipRegistries,
  debian: debianRegistries,
  crates: cargoRegistries,
  go: goRegistries,
};

/** Reads the settings of these tools. The tools themselves are not run, and nothing is asked on the network. */
export async function readRegistries(kinds: Iterable<PackageKind>, machine: Machine): Promise<RegistryMap> {
  const read = [...new Set(kinds)].map(async (kind) => [kind, await READERS[kind](machine)] as const);
  return new Map(await Promise.all(read));
}
