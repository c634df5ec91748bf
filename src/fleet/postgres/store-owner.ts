import { randomBytes } from "node:crypto";

const STORE = /\|store-[0-9a-f]{12}$/;

/**
 * The owner of the fleets that one open store of this process runs. A process that loses a fleet may take it over again, with another
 * store: its earlier run of the fleet is refused like that of any other process.
 */
export function newStoreOwner(process: string): string {
  return `${process}|store-${randomBytes(6).toString("hex")}`;
}

/** The process of an owner. */
export function processOf(owner: string): string {
  return owner.replace(STORE, "");
}
