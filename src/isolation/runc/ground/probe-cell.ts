import { readFileSync, statSync } from "node:fs";
import { lstat, readFile } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { PACKAGE_ROOT } from "../../../declarations/place/package-root.ts";
import { loadPolicy } from "../../../declarations/policy/policy.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { sha256 } from "../../../platform/sha256.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { projectSandbox } from "../../../sandbox/declare.ts";
import { describeViolation } from "../../../sandbox/wording.ts";
import { makeClosedDir } from "../../../state/state-dir.ts";
import type { PlannedSource } from "../../plan/mounts.ts";
import { type ImageFacts, planFor } from "../../plan/plan-for.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { RuncCells } from "../model/layout.ts";
import type { Conditions } from "./conditions.ts";

/** What came of a cell that was made to see whether runc can make any. */
export type Probed = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const Remembered = z.object({ of: z.string(), at: z.number(), ok: z.boolean(), reason: z.string() });

/** What failed may have failed because the machine was busy. */
const FAILURE_MS = 24 * 3_600_000;

/** What came of the last probe under the same conditions; null if there was none, or if it is time for another. */
export async function rememberedProbe(file: string, of: string, nowMs: number): Promise<Probed | null> {
  const text = await readFile(file, "utf8").catch(nullFor("ENOENT"));
  const parsed = parseJson(text ?? "");
  const known = Remembered.safeParse(parsed.ok ? parsed.value : undefined).data;
  if (known === undefined || known.of !== of) return null;
  if (known.ok) return { ok: true };
  return nowMs - known.at < FAILURE_MS && known.at <= nowMs ? { ok: false, reason: known.reason } : null;
}

export async function rememberProbe(file: string, of: string, probed: Probed, nowMs: number): Promise<void> {
  await makeClosedDir(join(file, ".."));
  const reason = probed.ok ? "" : probed.reason;
  await writeAtomically(file, JSON.stringify({ of, at: nowMs, ok: probed.ok, reason }));
}

/** Names all on which the outcome depends: the kernel, the programs, the Engine, and Corral itself. */
export function probeConditions({ programs, apparmor }: Conditions, engineVersion: string): string {
  const { runtime, ...others } = programs;
  const files = [runtime.path, ...Object.values(others)].map((path) => {
    const { ino, size, mtimeMs } = statSync(path);
    return [path, ino, size, mtimeMs];
  });
  const corral = readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8");
  return sha256(JSON.stringify([release(), files, apparmor, engineVersion, corral]));
}

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
