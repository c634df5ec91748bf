import type { Narrowing } from "./ancestry.ts";
import { type ShownNetwork, shownNetwork } from "./network/shown-rule.ts";

type OfNetwork = Extract<Narrowing, { readonly kind: "network" }>;

/** A narrowing as people and records see it: files of lock files as a number. */
export type ShownNarrowing =
  | Exclude<Narrowing, OfNetwork>
  | (Omit<OfNetwork, "from" | "to"> & { readonly from: ShownNetwork; readonly to: ShownNetwork });

export function shownNarrowing(narrowing: Narrowing): ShownNarrowing {
  if (narrowing.kind !== "network") return narrowing;
  return { ...narrowing, from: shownNetwork(narrowing.from), to: shownNetwork(narrowing.to) };
}
