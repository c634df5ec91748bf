import type { EntryFacts } from "../model/changeset.ts";
import type { RawName } from "../model/raw-name.ts";

/** A change as the scan finds it: names are bytes, and nothing has been judged. */
export interface Draft {
  readonly names: readonly RawName[];
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link" | "other";
  readonly base: EntryFacts | null;
  readonly next: EntryFacts | null;
  readonly linkText?: string;
  /** True where something that the view does not show stands under that name. */
  readonly overHidden?: boolean;
  /** True for what has to go before something of another type can stand there. */
  readonly givesWay?: boolean;
}

/** The largest number of changes that one run may bring back. */
export const MAX_CHANGES = 50_000;

/** More was changed than can be looked at. */
export class TooManyChanges extends Error {}

/** What goes first: what gives way, from the bottom; then folders from the top, files, links; then deletions from the bottom. */
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
