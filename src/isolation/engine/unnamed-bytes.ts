import { readFile } from "node:fs/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { collectSockets, heldBytes } from "../disk/unnamed-files.ts";
import { asked } from "./answers/asked.ts";

const ProcessTable = z.object({ Titles: z.array(z.string()), Processes: z.array(z.array(z.string())) });

/** What a container's processes hold of deleted files; null if this user may not inspect them. */
export async function unnamedBytes(container: Docker.Container): Promise<number | null> {
  await collectSockets();
  const table = await asked(() => container.top(), ProcessTable).catch(() => null);
  if (table === null) return null;
  const column = table.Titles.indexOf("PID");
  const pids = table.Processes.map((process) => Number(process[column]));
  // A process may have ended and its id been reused: files of the new process are not this cell's.
  const isItsOwn = async (pid: number): Promise<boolean> =>
    (await readFile(`/proc/${pid}/cgroup`, "latin1").catch(() => "")).includes(container.id);
  return await heldBytes(pids, isItsOwn);
}
