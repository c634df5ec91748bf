import { setImmediate as nextTurn } from "node:timers/promises";
import { checkRead } from "../sandbox/access.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { ALL_SHOWN, type HiddenEntry, type NotShown } from "./model/hidden.ts";

/** The number of entries after which other work of the process gets a turn. */
const SLICE = 1000;

/** Counts what is left out, by the reason. */
export async function countNotShown(
  sandbox: Pick<Sandbox, "mounts">,
  entries: Iterable<HiddenEntry>,
  signal?: AbortSignal,
): Promise<NotShown> {
  const counts: { -readonly [Reason in keyof NotShown]: number } = { ...ALL_SHOWN };
  let looked = 0;
  for (const entry of entries) {
    counts[reasonOf(sandbox, entry)] += 1;
    looked += 1;
    if (looked % SLICE !== 0) continue;
    signal?.throwIfAborted();
    await nextTurn();
  }
  return counts;
}

function reasonOf(sandbox: Pick<Sandbox, "mounts">, { path, size }: HiddenEntry): keyof NotShown {
  if (size === null) return "unreadable";
  switch (checkRead(sandbox, path, { size })?.code) {
    case "SUFFIX_NOT_ALLOWED":
      return "otherSuffix";
    case "FILE_TOO_LARGE":
      return "tooLarge";
    default:
      return "unreadable";
  }
}
