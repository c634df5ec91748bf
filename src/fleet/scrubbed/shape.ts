import { ASK } from "../../sandbox/approval.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import { asksForHostExecuted } from "../../sandbox/host-executed.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { below, covers, isInMemory, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** One folder that an item writes: below which of the cell's writable mounts, and its real place on the host. */
export interface ItemOutput {
  /** Which of {@link CellShape.writes}. */
  readonly index: number;
  /** That mount, as the fleet has it. */
  readonly base: Mount;
  /** From there to the folder; never empty. */
  readonly parts: readonly string[];
  readonly path: VirtualPath;
  /** Absent: what programs of the host would execute is refused there, since no person is asked about an item of a shared cell. */
  readonly allowsHostExecuted?: true;
}

/** What a serving cell shows: to all its items what they only read, and in the place of each writable mount a folder of its own. */
export interface CellShape {
  readonly reads: readonly Mount[];
  readonly writes: readonly Mount[];
}

export type ItemFit =
  | { readonly ok: true; readonly shape: CellShape; readonly outputs: readonly ItemOutput[] }
  /** Why the item cannot share a cell with others, in words for people and LLMs. */
  | { readonly ok: false; readonly reason: string };

/**
 * Whether an item fits into a cell that serves many: what it reads beside its attachments must be what all read, and what
 * it writes a folder of its own below a mount that the fleet may write without approval.
 */
export function itemFit(fleet: Sandbox, item: Sandbox): ItemFit {
  const reads = item.mounts.filter(({ mode }) => mode === "ro");
  const writes = fleet.mounts.filter(({ mode }) => mode === "rw");
  const outputs: ItemOutput[] = [];
  const allowed = asksForHostExecuted(item) ? {} : { allowsHostExecuted: true as const };
  const [waiting] = item.withheld ?? [];
  if (waiting !== undefined) return refused(waiting, "a mount whose reading needs approval needs a cell of its own");
  for (const mount of item.mounts) {
    if (isInMemory(mount.path, fleet)) return refused(mount, "the directory around it is emptied after each item");
    if (deliveryOf(mount) !== "direct")
      return refused(mount, "a mount with `stage`, or that needs approval or limits files, needs a cell of its own");
    if (mount.mode === "ro") continue;
    const index = writes.findIndex((write) => write.path !== mount.path && covers(write.path, mount.path));
    const [within, rest] = [writes[index], writes[index] && below(writes[index].path, mount.path)];
    if (within === undefined || !rest)
      return refused(mount, "each item must write to a folder of its own below what the fleet writes");
    outputs.push({ index, base: within, parts: rest.split("/"), path: mount.path, ...allowed });
  }
  for (const mount of reads) {
    if (writes.some(({ path }) => covers(path, mount.path) || covers(mount.path, path)))
      return refused(mount, "the other items write there; let it read less with `allow_read`");
  }
  const used = writes.filter((_, index) => outputs.some((output) => output.index === index));
  const renumbered = outputs.map((output) => ({ ...output, index: used.indexOf(output.base) }));
  return { ok: true, shape: { reads, writes: used }, outputs: renumbered };
}

/** Cells of the same shape may serve the same items. */
export function shapeKey({ reads, writes }: CellShape): string {
  return JSON.stringify([reads, writes].map((mounts) => mounts.map(({ path, host }) => [path, host])));
}

/** The sandbox of the cell itself: `hosts` are its own folders, in the order of the writable mounts. */
export function cellSandbox(fleet: Sandbox, { reads, writes }: CellShape, hosts: readonly string[]): Sandbox {
  const free = { write: "pre_approved", delete: "pre_approved" } as const;
  const lent = writes.map((mount, index): Mount => {
    const host = hosts[index];
    if (host === undefined) throw new RangeError("a writable mount has no folder");
    return { ...mount, host, approval: free, view: { origin: mount.host, asked: mount.approval ?? ASK } };
  });
  const mounts = [...reads, ...lent].sort((a, b) => (a.path < b.path ? -1 : 1));
  return { ...fleet, mounts };
}

function refused({ path }: Mount, why: string): ItemFit {
  return {
    ok: false,
    reason: `${path} cannot be part of a cell that serves many items: ${why}. Use \`reuse: fresh\`.`,
  };
}
