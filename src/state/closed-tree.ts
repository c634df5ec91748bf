import fs from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Descriptor } from "../files/host/descriptor.ts";

export type ClosedTree =
  | { readonly ok: true; readonly bytes: number; readonly entries: number }
  /** `path` is from the tree; `reason` follows it. */
  | { readonly ok: false; readonly path: string; readonly reason: string };

export const MAX_ENTRIES = 500_000;
const MAX_DEPTH = 100;
/** After so many names other work of the process gets a turn. */
const SLICE = 500;
const LINK_IN_TREE = /^(?:\.\.\/)*(?!\.\.?(?:\/|$))[^/]+(?:\/(?!\.\.?(?:\/|$))[^/]+)*\/?$/;

/**
 * Examines everything that a cell left in a tree, and closes it: every user may read it, and only Corral's user may write
 * it. What a package should never bring is refused: setuid and setgid, devices, FIFOs, sockets, links that may leave the tree.
 * Nothing runs that could change the tree meanwhile.
 */
export async function closeTree(dir: string, maxBytes: number): Promise<ClosedTree> {
  const walk = new Walk(maxBytes);
  using root = Descriptor.name(dir, true);
  const refused = await walk.folder(root, [], 0);
  return refused ?? { ok: true, bytes: walk.bytes, entries: walk.entries };
}

type Refused = Extract<ClosedTree, { ok: false }>;

class Walk {
  readonly #maxBytes: number;
  bytes = 0;
  entries = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  async folder(folder: Descriptor, names: readonly string[], depth: number): Promise<Refused | null> {
    for (const name of fs.readdirSync(folder.path(), { encoding: "buffer" })) {
      const path = [...names, name.toString()];
      const refuse = (reason: string): Refused => ({ ok: false, path: path.join("/"), reason });
      this.entries += 1;
      if (this.entries % SLICE === 0) await nextTurn();
      if (this.entries > MAX_ENTRIES) return refuse(`is one of more than ${MAX_ENTRIES} entries`);
      if (depth >= MAX_DEPTH) return refuse(`is deeper than ${MAX_DEPTH} folders`);
      const place = folder.path(name);
      const stats = fs.lstatSync(place);
      if (stats.isSymbolicLink()) {
        const text = fs.readlinkSync(place);
        // A link goes up first and then only down: so it stays in the tree, whatever other links it passes.
        const up = text.match(/^(?:\.\.\/)+/)?.[0].length ?? 0;
        const isInside = LINK_IN_TREE.test(text) && up / 3 <= depth;
        if (!isInside) return refuse("is a link that may lead out of it");
        ownedByCorral(place);
      } else if (stats.isDirectory()) {
        using inner = folder.child(name, true);
        fs.chmodSync(inner.path(), 0o700);
        const refused = await this.folder(inner, path, depth + 1);
        if (refused !== null) return refused;
        closed(inner.path(), 0o755);
      } else if (stats.isFile()) {
        if ((stats.mode & 0o6000) !== 0) return refuse("is setuid or setgid");
        this.bytes += stats.size;
        if (this.bytes > this.#maxBytes) return refuse(`is one of more than ${this.#maxBytes} bytes`);
        closed(place, (stats.mode & 0o100) === 0 ? 0o644 : 0o755);
      } else return refuse("is no file, folder or link");
    }
    if (depth === 0) closed(folder.path(), 0o755);
    return null;
  }
}

function closed(place: string | Buffer, mode: number): void {
  if (process.getuid?.() === 0) fs.chownSync(place, 0, 0);
  fs.chmodSync(place, mode);
}

function ownedByCorral(place: string | Buffer): void {
  if (process.getuid?.() === 0) fs.lchownSync(place, 0, 0);
}
