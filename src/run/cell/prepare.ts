import { lstatSync } from "node:fs";
import { posix } from "node:path";
import type { AttachmentRules, WorkerDefinition } from "../../declarations/worker/worker.ts";
import {
  type Anchor,
  type ItemPlumbing,
  type OwnFile,
  type PlannedSource,
  sandboxAnchors,
} from "../../isolation/plan/mounts.ts";
import {
  ATTACHMENTS_PATH,
  environmentSources,
  type Plan,
  type PlannedMount,
  type PlannedUser,
  SECRETS_PATH,
} from "../../isolation/plan/plan.ts";
import { type ImageFacts, type Planning, planFor } from "../../isolation/plan/plan-for.ts";
import { holdHostExecuted, partlyNote } from "../../isolation/sources/host-executed.ts";
import { misplacedMounts, type PinRefusal, type Pins, pinSources } from "../../isolation/sources/pin.ts";
import { Disposables } from "../../platform/disposables.ts";
import { isWritten } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { shownNetwork } from "../../sandbox/network/rule.ts";
import { readAfterApproval, type Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { counted, formatBytes } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import type { CellHost } from "../model/environment.ts";
import { type Attachment, inCell, inputEnvironment, type Job } from "../model/job.ts";
import { type MakeAsk, type ShownEnvironment, unmadeViolation } from "../model/worker-images.ts";

/** A plan, and its mount sources, which are held open until it is disposed of. */
export type Preparation = AsyncDisposable &
  (
    | { readonly ok: true; readonly plan: Plan; readonly pins: Pins; readonly notes: readonly string[] }
    | { readonly ok: false; readonly violations: readonly Violation[] }
  );

/** Which mounts are views; and the directories of a writable root, or why there are none. */
export interface StagedPaths {
  readonly paths: ReadonlySet<string>;
  readonly rootFolders?: (
    image: string,
    user: PlannedUser,
    points: readonly string[],
  ) => Promise<readonly Pick<PlannedMount, "path" | "host">[] | string>;
}

/** Corral's own mounts of a cell: its socket, if it has one, and what its kind needs. */
export interface Plumbing {
  readonly socket?: { readonly path: string; readonly source: PlannedSource };
  /** Of a cell with an allow list. */
  readonly files?: readonly OwnFile[];
  /** Names of what runs beside it, which are in `files`. */
  readonly services?: readonly string[];
  readonly outputDir?: string;
  /** Of a session whose first process starts its commands: the directory of their pipes. */
  readonly commandsDir?: string;
  /** For a cell that serves items: their directories. */
  readonly items?: ItemPlumbing;
  /** Directories of Corral's own that the sandbox mounts: only those in which packages are prepared. */
  readonly filled?: readonly string[];
  /** Which mounts of the sandbox are views; `would-be` if nothing runs: those that would have to be. */
  readonly views: StagedPaths | "would-be";
  /** If nothing runs: what does not exist yet, by the host path that it will have. */
  readonly wouldBe?: ReadonlyMap<string, PlannedSource>;
  /** If nothing runs: the owners of copies that would be mounted in place of these host paths. */
  readonly lent?: ReadonlyMap<string, Pick<PlannedSource, "uid" | "gid">>;
}

const NOTHING: ReadonlyMap<string, PlannedSource> = new Map();

/** What a plan needs to know of the work that its cell is for. */
export type PlannedJob = Pick<Job, "run" | "root" | "parent" | "worker" | "attachments"> & Partial<Pick<Job, "input">>;

/** From a sandbox to its plan: the image's facts, the pinned mount sources, and what follows from them. */
export async function prepare(
  job: PlannedJob,
  asked: Sandbox,
  plumbing: Plumbing,
  env: CellHost,
  ask: MakeAsk,
): Promise<Preparation> {
  const ready = await env.images.ready(job.worker, ask);
  if (ready.state === "unmade") return refused(ready.parts.map(unmadeViolation));
  if (ready.state === "refused") return refused(ready.violations);
  const image = await env.driver.imageFacts(ready.name);
  if (image === null) return refused([{ code: "IMAGE_MISSING", image: job.worker.image }]);

  const holding = await holdHostExecuted(asked);
  if (!holding.ok) return refused(holding.violations);
  const { sandbox } = holding;
  const anchors = sandboxAnchors(sandbox);
  const hosts = [...sandbox.mounts, ...job.attachments, ...anchors].map(({ host }) => host);
  const { outputDir, commandsDir, items, filled = [], wouldBe = NOTHING } = plumbing;
  const { environments } = ready;
  // Views are Corral's own, this run's and those of the runs that called it; what they show was judged when they were made.
  const viewed = [
    ...[...sandbox.mounts, ...job.attachments].filter(({ view }) => view !== undefined),
    ...anchors.filter(({ outer }) => outer.view !== undefined),
  ];
  const given = [outputDir, commandsDir, items?.io, items?.attachments].filter((dir) => dir !== undefined);
  const ownDirs = [...given, ...filled, ...environmentSources(environments), ...viewed.map(({ host }) => host)];
  const isThere = (host: string): boolean => !wouldBe.has(host);
  const pinning = await pinSources(hosts.filter(isThere), env.refusedSources, ownDirs.filter(isThere));
  if (!pinning.ok)
    return refused(pinning.refusals.flatMap((refusal) => sourceViolations(refusal, sandbox, anchors, job.attachments)));
  const { pins } = pinning;
  const parts = { image, sandbox, plumbing, environments };
  const held = new Disposables();
  held.use(pins);
  const { planning, pins: all } = await withRoot(pins, job, parts, env, held).catch(async (error: unknown) => {
    await held[Symbol.asyncDispose]();
    throw error;
  });
  const misplaced = planning.ok ? misplacedMounts(planning.plan.mounts, all) : [];
  const notes = holding.partly.map(partlyNote);
  const close = () => held[Symbol.asyncDispose]();
  if (planning.ok && misplaced.length === 0)
    return { ok: true, plan: planning.plan, pins: all, notes, [Symbol.asyncDispose]: close };
  await close();
  return refused(planning.ok ? misplaced : planning.violations);
}

interface PlanParts {
  readonly image: ImageFacts;
  readonly sandbox: Sandbox;
  readonly plumbing: Plumbing;
  readonly environments: readonly ShownEnvironment[];
  /** The directories of a writable root. */
  readonly root?: readonly Pick<PlannedMount, "path" | "host">[];
}

/** The init of the Engine is a file in that root. */
const NOT_ITS_FIRST =
  "only a container of a session has it, or of an agent's commands, under a policy with Corral's own seccomp profile, no other runtime and no capabilities";

/** The plan; with a writable root if the sandbox has one, which needs the image and the user of the plan. */
async function withRoot(
  pins: Pins,
  job: PlannedJob,
  parts: PlanParts,
  env: CellHost,
  held: Disposables,
): Promise<{ readonly planning: Planning; readonly pins: Pins }> {
  const without = await plannedWith(pins, job, parts, env);
  const { sandbox, plumbing } = parts;
  if (!sandbox.writableRoot || !without.ok || plumbing.views === "would-be") return { planning: without, pins };
  const refusedRoot = (reason: string): Planning => ({
    ok: false,
    violations: [{ code: "ROOT_NOT_ENFORCEABLE", reason }],
  });
  const { image, user, tmpfs, startsCommands } = without.plan;
  if (!startsCommands) return { planning: refusedRoot(NOT_ITS_FIRST), pins };
  const points = tmpfs.map(({ path }) => path);
  const folders = (await plumbing.views.rootFolders?.(image.id, user, points)) ?? "its cells have none";
  if (typeof folders === "string") return { planning: refusedRoot(folders), pins };
  const hosts = folders.map(({ host }) => host);
  const pinning = await pinSources([], env.refusedSources, hosts);
  if (!pinning.ok) return { planning: refusedRoot(pinning.refusals.map(({ reason }) => reason).join("; ")), pins };
  held.use(pinning.pins);
  const both = { ...pins, sources: new Map([...pins.sources, ...pinning.pins.sources]) };
  return { planning: await plannedWith(both, job, { ...parts, root: folders }, env), pins: both };
}

async function plannedWith(
  pins: Pins,
  job: PlannedJob,
  { image, sandbox, plumbing, environments, root }: PlanParts,
  env: CellHost,
): Promise<Planning> {
  const violations = attachmentViolations(job, pins);
  if (violations.length > 0) return { ok: false, violations };
  const { socket, files = [], services = [], outputDir, commandsDir, items, views, wouldBe = NOTHING, lent } = plumbing;
  const gate = await env.gate();
  const gateFile = wouldBe.get(gate) ?? gateSource(gate);
  return planFor({
    run: { id: job.run, root: job.root, parent: job.parent, project: env.projectDir },
    worker: {
      name: job.worker.name,
      command: job.worker.command ?? [],
      env: { ...job.worker.env, ...inputEnvironment(job.input) },
    },
    sandbox,
    image,
    sources: new Map([
      ...wouldBe,
      ...[...pins.sources].map(([host, source]) => [host, { ...source, ...lent?.get(host) }] as const),
      [gate, gateFile],
      ...(socket === undefined ? [] : [[socket.path, socket.source] as const]),
    ]),
    attachments: job.attachments,
    views: views === "would-be" ? views : views.paths,
    plumbing: {
      gate,
      files,
      services,
      ...(socket === undefined ? {} : { socket: socket.path }),
      ...present({ output: outputDir, commands: commandsDir, items, root }),
      environments,
    },
    orchestratorUid: process.getuid?.() ?? 0,
  });
}

function refused(violations: readonly Violation[]): Preparation {
  return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
}

function gateSource(gate: string): PlannedSource {
  const { dev, ino, uid, gid } = lstatSync(gate, { bigint: true });
  return { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid), kind: "file" };
}

/**
 * What a run may do, for the worker itself: paths as its cell has them, and nothing of the host. `sandbox`: what its tools act
 * on now, with what was granted since the cell of `plan` was started, which that does not show.
 */
export function sandboxView(job: Job, sandbox: Sandbox, plan: Plan): unknown {
  const granted = sandbox.mounts.filter((mount) => mount.granted !== undefined);
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    run: job.run,
    worker: job.worker.name,
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: writableIn(plan, sandbox),
    readAfterApproval: readAfterApproval(sandbox).map((path) => inCell(path, sandbox)),
    granted: granted.map(({ path, mode }) => ({ path: inCell(path, sandbox), mode: mode === "rw" ? "write" : "read" })),
    constraints: sandbox.mounts.flatMap((mount) => constraintsOf(mount, sandbox)),
    attachments: job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
    workingDir: plan.workingDir,
    network: shownNetwork(sandbox.network),
    secrets: (plan.secrets ?? []).map((name) => posix.join(SECRETS_PATH, name)),
    limits: plan.limits,
    policy: plan.policy,
    calls: job.worker.calls,
  };
}

/** What a command can write, as its cell has it. */
export function writableIn({ mounts }: Plan, sandbox: Sandbox): string[] {
  const written = new Set(sandbox.mounts.filter(isWritten).map(({ path }) => inCell(path, sandbox)));
  const shown = mounts.filter(({ origin, mode, path }) => origin === "sandbox" && mode === "rw" && written.has(path));
  return shown.map(({ path }) => path);
}

/** Which files may be there at all: files that may not be read are not shown. */
function constraintsOf({ path, suffixes, maxFileBytes }: Mount, sandbox: Sandbox): object[] {
  if (suffixes === undefined && maxFileBytes === undefined) return [];
  return [{ path: inCell(path, sandbox), suffixes: suffixes ?? null, maxFileBytes: maxFileBytes ?? null }];
}

/** A run's attachments, held open; for a run that has no plan of its own. */
type PinnedAttachments = AsyncDisposable &
  ({ readonly ok: true; readonly pins: Pins } | { readonly ok: false; readonly violations: readonly Violation[] });

export async function pinAttachments(
  job: Pick<Job, "worker" | "attachments">,
  sandbox: Sandbox,
  env: CellHost,
): Promise<PinnedAttachments> {
  const viewed = job.attachments.filter(({ view }) => view !== undefined).map(({ host }) => host);
  const hosts = job.attachments.map(({ host }) => host);
  const pinning = await pinSources(hosts, env.refusedSources, viewed);
  if (!pinning.ok) {
    const violations = pinning.refusals.flatMap((refusal) => sourceViolations(refusal, sandbox, [], job.attachments));
    return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
  }
  const { pins } = pinning;
  const violations = attachmentViolations(job, pins);
  const close = (): PromiseLike<void> => pins[Symbol.asyncDispose]();
  return violations.length > 0
    ? { ok: false, violations, [Symbol.asyncDispose]: close }
    : { ok: true, pins, [Symbol.asyncDispose]: close };
}

/** A refused source by the paths at which the worker would have seen it; an attachment by the one that its caller wrote. */
function sourceViolations(
  { host, reason }: PinRefusal,
  { mounts }: Pick<Sandbox, "mounts">,
  anchors: readonly Pick<Anchor, "path" | "host">[],
  attachments: readonly Attachment[],
): Violation[] {
  const places = [...mounts, ...anchors].filter((place) => place.host === host).map(({ path }) => path as string);
  const files = attachments.filter((file) => file.host === host).map(knownAs);
  return [
    ...places.map((path): Violation => ({ code: "MOUNT_SOURCE_REFUSED", path, reason })),
    ...files.map((path): Violation => ({ code: "MOUNT_SOURCE_REFUSED", path, reason, attached: true })),
  ];
}

/** Its path for the caller that handed it over. */
export function knownAs({ name, asked }: Attachment): string {
  return asked ?? posix.join(ATTACHMENTS_PATH, name);
}

/** What is wrong with files that are held open: what they are, and how many and how large the worker takes. */
function attachmentViolations({ worker, attachments }: Pick<Job, "worker" | "attachments">, pins: Pins): Violation[] {
  const violations: Violation[] = [];
  for (const attachment of attachments) {
    const { host, identity } = attachment;
    const source = pins.sources.get(host);
    const path = knownAs(attachment);
    const refuse = (reason: string): number =>
      violations.push({ code: "MOUNT_SOURCE_REFUSED", path, reason, attached: true });
    if (source?.kind !== "file") refuse("an attachment is one regular file");
    else if (identity !== undefined && identity !== `${source.device}:${source.inode}`) {
      refuse("it is not the file any more that its caller was given");
    }
  }
  const bytes = attachments.reduce((sum, { host }) => sum + (pins.sources.get(host)?.bytes ?? 0), 0);
  return [...violations, ...ruleViolations(worker, attachments, bytes)];
}

function ruleViolations(
  { name: worker, attachments: rules }: Pick<WorkerDefinition, "name" | "attachments">,
  attachments: readonly Attachment[],
  bytes: number,
): Violation[] {
  const { maxCount, maxBytes, suffixes }: AttachmentRules = rules ?? {};
  const violations: Violation[] = [];
  const refuse = (reason: string): number => violations.push({ code: "ATTACHMENTS_NOT_TAKEN", worker, reason });
  if (maxCount !== undefined && attachments.length > maxCount)
    refuse(`it takes at most ${counted(maxCount, "attachment")}, and was given ${attachments.length}`);
  if (maxBytes !== undefined && bytes > maxBytes)
    refuse(`it takes at most ${formatBytes(maxBytes)} of attachments, and was given ${formatBytes(bytes)}`);
  for (const { name } of suffixes === undefined ? [] : attachments) {
    const fits = suffixes?.some((suffix) => name.toLowerCase().endsWith(suffix));
    if (fits !== true) refuse(`it takes only files ending in ${suffixes?.join(", ")}, and was given ${name}`);
  }
  return violations;
}
