import { chmod, chown, mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Plan, PlannedMount } from "../../src/isolation/plan/plan.ts";
import type { Around } from "../measure.ts";
import { contentOf, ECHO, ITEM_SCRIPT, inputOf } from "../project.ts";

const SETTLED_MS = 2000;

/** One command that runs to its end in its own container, with these binds. */
export interface OneRun {
  readonly command: readonly string[];
  readonly binds: readonly Bind[];
}

export interface Bind {
  readonly host: string;
  readonly path: string;
  readonly mode: PlannedMount["mode"];
  readonly kind: "directory" | "file";
}

export const ECHO_RUN: OneRun = { command: ECHO, binds: [] };

/** One item without Corral: its file, and its output folder, which the caller must create first. */
export async function itemRun(projectDir: string, index: number, { user }: Pick<Plan, "user">): Promise<OneRun> {
  const out = join(projectDir, "out", String(index));
  await mkdir(out, { recursive: true });
  if (process.getuid?.() === 0) await chown(out, user.uid, user.gid);
  // Nobody else can give a folder away.
  else await chmod(out, 0o777);
  return {
    command: ["sh", "-c", ITEM_SCRIPT],
    binds: [
      { host: inputOf(projectDir, index), path: "/attachments/in", mode: "ro", kind: "file" },
      { host: out, path: "/out/item", mode: "rw", kind: "directory" },
    ],
  };
}

/** Removes all outputs before a batch and checks them after it: a contender that is quick but wrong does not count. */
export function checkedItems(projectDir: string, items: number): Around {
  const out = (index: number): string => join(projectDir, "out", String(index));
  return {
    async before() {
      for (let index = 0; index < items; index += 1) await rm(out(index), { recursive: true, force: true });
      // An Engine still removes what it had for the contender before.
      await sleep(SETTLED_MS);
    },
    async after() {
      for (let index = 0; index < items; index += 1) {
        const written = await readFile(join(out(index), "out"), "utf8").catch(() => null);
        if (written !== contentOf(index)) throw new Error(`item ${index} was not done`);
      }
    },
  };
}
