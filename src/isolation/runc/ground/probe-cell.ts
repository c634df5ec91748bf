import { lstat } from "node:fs/promises";
import { loadPolicy } from "../../../declarations/policy/policy.ts";
import { projectSandbox } from "../../../sandbox/declare.ts";
import { describeViolation } from "../../../sandbox/wording.ts";
import type { PlannedSource } from "../../plan/mounts.ts";
import { type ImageFacts, planFor } from "../../plan/plan-for.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { RuncCells } from "../model/cells.ts";
import type { Probed } from "./probe-memory.ts";

/** Longer than any start takes, also on a slow machine that has yet to unpack the image. */
const PROBE_MS = 10 * 60_000;

/**
 * Makes a cell under the strictest policy, as a worker with no files would get, and compares it with its plan from inside. It
 * must print what it was given, and end as its command ended.
 */
export async function probeCell(cells: RuncCells, image: ImageFacts, gate: string, run: string): Promise<Probed> {
  const policy = await loadPolicy("untrusted", { dirs: [] });
  const { dev, ino, uid, gid } = await lstat(gate, { bigint: true });
  const source: PlannedSource = { device: `${dev}`, inode: `${ino}`, uid: Number(uid), gid: Number(gid), kind: "file" };
  const planning = planFor({
    run: { id: run, root: run, parent: null },
    worker: { name: "probe", command: ["cat"], env: {} },
    sandbox: { ...projectSandbox({ mounts: [], rooted: false }, policy), limits: policy.defaultLimits },
    image,
    sources: new Map([[gate, source]]),
    attachments: [],
    views: new Set(),
    plumbing: { gate },
    orchestratorUid: 0,
  });
  if (!planning.ok) return { ok: false, reason: planning.violations.map(describeViolation).join("; ") };
  const output: Buffer[] = [];
  try {
    const started = await cells.start({
      plan: planning.plan,
      pins: { sources: new Map(), [Symbol.asyncDispose]: async () => {} },
      signal: AbortSignal.timeout(PROBE_MS),
      onOutput: (_, chunk) => void output.push(chunk),
    });
    if (!started.ok) return { ok: false, reason: started.violations.map(describeViolation).join("; ") };
    await using cell = started.cell;
    cell.release(Buffer.from(run));
    const exit = await cell.exit;
    if (exit.kind === "exited" && exit.code === 0 && Buffer.concat(output).toString() === run) return { ok: true };
    const how = exit.kind === "lost" ? exit.reason : `it ended with ${exit.code}, or did not print what it was given`;
    return { ok: false, reason: `a cell did not work: ${how}` };
  } catch (error) {
    if (!(error instanceof EngineTrouble) && (error as Error).name !== "TimeoutError") throw error;
    return { ok: false, reason: `a cell could not be made: ${(error as Error).message}` };
  }
}
