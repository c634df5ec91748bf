import { existsSync, readFileSync, statSync } from "node:fs";
import { lstat, readFile } from "node:fs/promises";
import { release } from "node:os";
import { basename, join } from "node:path";
import { z } from "zod";
import { PACKAGE_ROOT } from "../../../declarations/place/package-root.ts";
import { loadPolicy } from "../../../declarations/policy/policy.ts";
import { trustedProgram } from "../../../files/host/system-program.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { isDiskFull, nullFor } from "../../../platform/errno.ts";
import { sha256 } from "../../../platform/sha256.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { projectSandbox } from "../../../sandbox/declare.ts";
import { describeViolation } from "../../../sandbox/wording.ts";
import { makeClosedDir } from "../../../state/state-dir.ts";
import { kernelText } from "../../kernel/control-group.ts";
import type { PlannedSource } from "../../plan/mounts.ts";
import { type ImageFacts, planFor } from "../../plan/plan-for.ts";
import { type CellMaker, EngineTrouble } from "../../port/driver.ts";
import type { EngineFacts } from "../../port/images.ts";
import type { OciRuntime, RuncPrograms } from "../model/layout.ts";

/** What cells are made with on this machine. */
export interface Conditions {
  readonly programs: RuncPrograms;
  /** The profile that the Engine's containers have; null if it uses none. */
  readonly apparmor: string | null;
}

export type JudgedGround =
  | { readonly ok: true; readonly conditions: Conditions }
  /** `reason`: for people, what is missing. */
  | { readonly ok: false; readonly reason: string };

/** The names of runtimes in the order in which they are tried, if `CORRAL_OCI_RUNTIME` names none. */
const IN_ORDER = ["crun", "runc"] as const;

/** Which runtimes to try here: the one that is asked for, or those that there are. At least one. */
export function runtimesToTry(asked: string | undefined): readonly string[] {
  if (asked !== undefined && asked !== "") return [asked];
  return IN_ORDER.filter((name) => name === "runc" || trustedProgram(name) !== null);
}

/**
 * Whether cells can be made here without the Engine, as strong as its own. Asks this machine only.
 *
 * @param asked `runc`, which is the Engine's own, `crun`, or the path of either.
 */
export function conditionsFor(facts: EngineFacts, asked = "runc"): JudgedGround {
  const against = objection(facts);
  if (against !== null) return { ok: false, reason: against };
  const runtime = runtimeOf(asked, facts);
  if (runtime === null)
    return { ok: false, reason: `the program ${asked} was not found, or another user than root can write it` };
  if (runtime.kind === "other")
    return { ok: false, reason: `CORRAL_OCI_RUNTIME must be crun, runc or the path of one of them, not ${asked}` };
  const { kind, path } = runtime;
  const init = trustedProgram(facts.init);
  if (init === null)
    return { ok: false, reason: `the program ${facts.init} was not found, or another user than root can write it` };
  // Elsewhere it is a name of a program that has not this option.
  const env = trustedProgram("env");
  // The Engine loads this profile when it starts.
  const apparmor = facts.security.includes("apparmor") ? "docker-default" : null;
  const programs = { runtime: { kind, path }, init, ...(env !== null && basename(env) === "env" ? { env } : {}) };
  return { ok: true, conditions: { programs, apparmor } };
}

function runtimeOf(asked: string, { runc }: EngineFacts): { kind: OciRuntime["kind"] | "other"; path: string } | null {
  if (!/^(crun|runc|\/.*)$/.test(asked)) return { kind: "other", path: asked };
  const path = trustedProgram(asked === "runc" ? (runc ?? "") : asked);
  if (path === null) return null;
  return {
    kind: asked === "runc" ? "runc" : ((/^(crun|runc)/.exec(basename(path))?.[1] as OciRuntime["kind"]) ?? "other"),
    path,
  };
}

/** What an Engine's containers have and this driver cannot give must not be lost without a word. */
const FOREIGN: Readonly<Record<string, string>> = {
  selinux: "the Engine's containers have SELinux labels, which cells of runc would not have",
  userns: "the Engine's containers have users of their own (userns-remap), which cells of runc would not have",
  rootless: "the Engine is rootless",
};

function objection({ isLocal, security, runc }: EngineFacts): string | null {
  if (process.geteuid?.() !== 0) return "Corral does not run as root";
  if (!isLocal) return "the Engine is not reached over a Unix socket of this machine";
  for (const name of security) if (FOREIGN[name] !== undefined) return FOREIGN[name];
  if (runc === null) return "the Engine's default runtime is not runc";
  return missingCgroups();
}

/** Every limit of a cell is one of a control group. */
const CONTROLLERS = ["cpu", "memory", "pids"] as const;
const CGROUPS = "/sys/fs/cgroup";

/** With version 2, those that the root group has; with version 1, each is a hierarchy of its own. */
export function missingCgroups(root = CGROUPS): string | null {
  const unified = kernelText(join(root, "cgroup.controllers"))?.trim().split(" ");
  const has = (name: string): boolean => unified?.includes(name) ?? existsSync(join(root, name, "cgroup.procs"));
  const missing = CONTROLLERS.filter((name) => !has(name));
  return missing.length === 0 ? null : `the kernel has no control groups for ${missing.join(", ")}`;
}

/** What came of a cell that was made to see whether runc can make any. */
export type Probed =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string; readonly isDiskFull?: boolean };

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

/** Not of a full disk: the next process tries again, since space may have been freed. */
export async function rememberProbe(file: string, of: string, probed: Probed, nowMs: number): Promise<void> {
  if (!probed.ok && probed.isDiskFull === true) return;
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
export async function probeCell(cells: CellMaker, image: ImageFacts, gate: string, run: string): Promise<Probed> {
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
    const { message, cause } = error as Error;
    const isFull = isDiskFull(error) || isDiskFull(cause);
    return { ok: false, reason: `a cell could not be made: ${message}`, ...(isFull && { isDiskFull: true }) };
  }
}
