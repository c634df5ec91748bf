import { chown, mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Plan, PlannedMount } from "../../src/isolation/plan/plan.ts";
import type { Around } from "../measure.ts";
import { contentOf, ECHO, ITEM_SCRIPT, inputOf } from "../project.ts";

/** One command that is run to its end in a container of its own, with these binds. */
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

/** One item as it is without Corral: its file, and its folder, which whoever runs it makes beforehand. */
export async function itemRun(projectDir: string, index: number, { user }: Pick<Plan, "user">): Promise<OneRun> {
  const out = join(projectDir, "out", String(index));
  await mkdir(out, { recursive: true });
  if (process.getuid?.() === 0) await chown(out, user.uid, user.gid);
  return {
    command: ["sh", "-c", ITEM_SCRIPT],
    binds: [
      { host: inputOf(projectDir, index), path: "/attachments/in", mode: "ro", kind: "file" },
      { host: out, path: `/out/${index}`, mode: "rw", kind: "directory" },
    ],
  };
}

/** Nothing is there beforehand, and everything is right afterwards: what is quick and wrong is no contender. */
export function checkedItems(projectDir: string, items: number): Around {
  const out = (index: number): string => join(projectDir, "out", String(index));
  return {
    async before() {
      for (let index = 0; index < items; index += 1) await rm(out(index), { recursive: true, force: true });
    },
    async after() {
      for (let index = 0; index < items; index += 1) {
        const written = await readFile(join(out(index), "out"), "utf8").catch(() => null);
        if (written !== contentOf(index)) throw new Error(`item ${index} was not done`);
      }
    },
  };
}
