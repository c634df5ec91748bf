import type { EntryFacts } from "../model/changeset.ts";
import type { RawName } from "../model/raw-name.ts";

/** A change as the scan finds it: names are bytes, and nothing has been checked. */
export interface Draft {
  readonly names: readonly RawName[];
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link" | "other";
  readonly base: EntryFacts | null;
  readonly next: EntryFacts | null;
  readonly linkText?: string;
  /** True if an entry that the view does not show has that name. */
  readonly overHidden?: boolean;
  /** True for a deletion that makes room for an entry of another type. */
  readonly givesWay?: boolean;
  /** Why it was refused on the machine where the run was; absent: it was not. */
  readonly refusal?: string;
}

/** The most changes of one run. */
export const MAX_CHANGES = 50_000;

/** More was changed than can be checked. */
export class TooManyChanges extends Error {}

/** Deletions that make room, from the bottom; then folders from the top, files, links; then deletions from the bottom. */
export function inOrderOfApplying<
  One extends Pick<Draft, "kind" | "type" | "givesWay"> & { names: readonly unknown[] },
>(drafts: readonly One[]): One[] {
  const stage = ({ kind, type, givesWay }: One): number => {
    if (kind === "delete") return givesWay ? 0 : 3;
    return type === "directory" ? 1 : 2;
  };
  const upwards = (one: One): number => (one.kind === "delete" ? -one.names.length : one.names.length);
  return drafts.toSorted((a, b) => stage(a) - stage(b) || upwards(a) - upwards(b) || byName(a, b));
}

function byName(a: { names: readonly unknown[] }, b: { names: readonly unknown[] }): number {
  const [one, other] = [a.names.join("/"), b.names.join("/")];
  return one < other ? -1 : one > other ? 1 : 0;
}
