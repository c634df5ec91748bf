import fs from "node:fs";
import { join } from "node:path";
import { governingMount, parsePathIn } from "../../src/sandbox/access.ts";
import { deliveryOf } from "../../src/sandbox/expand.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { below, type VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { lookAt } from "./disk.ts";
import type { Abilities } from "./probe.ts";

/** One thing that the kernel allows at one place, and the validator does not. */
export interface Case {
  readonly text: string;
  readonly act: keyof Abilities;
  readonly sandbox: Sandbox;
}

export interface Stricter {
  readonly what: string;
  readonly why: string;
  covers(found: Case): boolean;
}

/** All that the validator refuses and the kernel allows. In the other direction there is nothing. */
export const STRICTER: readonly Stricter[] = [
  {
    what: "a text that is no path",
    why: "control characters, backslashes and `..` beyond the top can be written into logs and prompts, and mislead there",
    covers: ({ text, sandbox }) => !parsePathIn(sandbox, text).ok,
  },
  {
    what: "the cell's own directories and its image's files",
    why: "they are the container's and end with it; files of the sandbox are what was granted",
    covers: ({ text, sandbox }) => !sandbox.rooted && mountOf(sandbox, text) === null,
  },
  {
    what: "writing through a link",
    why: "the worker can change a link between a look at it and the writing",
    covers: (found) => found.act === "write" && metLinks(found).length > 0,
  },
  {
    what: "an absolute link",
    why: "it means one place in a cell and another on the host",
    covers: (found) => found.act !== "write" && metLinks(found).some(({ text }) => text.startsWith("/")),
  },
  {
    what: "a link that leads out of its mount",
    why: "what stands beside a mount in a cell stands elsewhere on the host",
    covers: (found) => found.act !== "write" && metLinks(found).some(({ leaves }) => leaves),
  },
  {
    what: "a change in a view",
    why: "a command may make it there; it is judged, and asked about, before it gets any further",
    covers: ({ text, act, sandbox }) => {
      const mount = mountOf(sandbox, text)?.mount;
      return act === "write" && mount?.mode === "rw" && deliveryOf(mount) === "view";
    },
  },
  {
    what: "a FIFO",
    why: "opening one waits for somebody at its other end",
    covers: (found) => found.act !== "list" && isFifo(found),
  },
];

interface MetLink {
  readonly text: string;
  readonly leaves: boolean;
}

function mountOf(sandbox: Sandbox, text: string): { mount: Mount; path: VirtualPath } | null {
  const parsed = parsePathIn(sandbox, text);
  const mount = parsed.ok ? governingMount(sandbox, parsed.path) : undefined;
  return parsed.ok && mount !== undefined ? { mount, path: parsed.path } : null;
}

/** The links that are met on the way to a place, up to the first that says where it cannot be followed. */
function metLinks({ text, sandbox }: Case): MetLink[] {
  const found = mountOf(sandbox, text);
  if (found === null) return [];
  const { mount, path } = found;
  const met: MetLink[] = [];
  const ahead = (below(mount.path, path) ?? "").split("/").reverse();
  let names: string[] = [];
  while (ahead.length > 0 && met.length < 40) {
    const name = ahead.pop() as string;
    if (name === "" || name === ".") continue;
    if (name === "..") {
      if (names.length === 0) return leaving(met);
      names = names.slice(0, -1);
      continue;
    }
    const host = join(mount.host, ...names, name);
    if (!lookAt(host)?.isSymbolicLink()) {
      names = [...names, name];
      if (
        met.length > 0 &&
        sandbox.mounts.some((other) => other !== mount && other.host === host && isBelow(other, mount))
      )
        return leaving(met);
      continue;
    }
    const target = fs.readlinkSync(host);
    met.push({ text: target, leaves: false });
    if (target.startsWith("/")) return met;
    ahead.push(...target.split("/").reverse());
  }
  return met;
}

function isBelow(inner: Mount, outer: Mount): boolean {
  return below(outer.path, inner.path) !== null;
}

function leaving(met: readonly MetLink[]): MetLink[] {
  return met.map((link, index) => ({ ...link, leaves: index === met.length - 1 }));
}

function isFifo({ text, sandbox }: Case): boolean {
  const found = mountOf(sandbox, text);
  if (found === null) return false;
  const host = join(found.mount.host, below(found.mount.path, found.path) ?? "");
  return lookAt(host, "behind")?.isFIFO() ?? false;
}
