import { posix } from "node:path";
import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { allowedFolders, askedDirectory } from "../../declarations/place/host-place.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { carve, governingMount, hostBelow, select } from "../../sandbox/access.ts";
import { consentOf } from "../../sandbox/approval.ts";
import { type DirectoryGrant, expand } from "../../sandbox/expand.ts";
import { asksForHostExecuted, whyHostExecuted } from "../../sandbox/host-executed.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import { declaredBy, type Sandbox, withheldAt } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { below, covers, holds, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import { present } from "../../text/present.ts";
import type { DirectoryGrantRecord, Grantee } from "../model/grantee.ts";
import {
  type DirectoryRequest,
  type GrantNeed,
  type GrantOutcome,
  type GrantSurroundings,
  type Grounds,
  type Judgement,
  judgeGrant,
  type Level,
  meaningOf,
  NOT_FOR_ONE,
  NOT_RECORDED,
  type Refused,
  refuse,
  unapproved,
  waitsOnSide,
} from "./judge.ts";

/** Asks for the directory of a path, once for the whole chain of runs that would be granted it. */
export async function requestGrant(
  need: GrantNeed,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<GrantOutcome> {
  await around.ledger.look();
  if (!grantee.takesRequest()) {
    const because = "The workers of this tree of runs have requested too many directories.";
    return refuse("GRANT_LIMIT", { directory: need.path, mode: need.mode }, because);
  }
  const waiting = withheldAt(need.under ?? grantee.sandbox, need.path);
  if (waiting !== undefined) return await requestReading(need, waiting, grantee, around, signal);
  const grounds = groundsOf(grantee, around);
  const within = await foldersOf(grantee, around);
  const levels = (): Level[] => levelsOf(grantee, within, need.under);

  const found = await directoryOf(need, levels(), grounds);
  if (typeof found !== "string") return found;
  const asked = { directory: found, mode: need.mode };
  const judged = judgeGrant(asked, levels(), grounds);
  if (!judged.ok) return judged;
  if (judged.had) return { ok: true, directory: found, scope: null, sandbox: judged.preview };
  const { host } = judged;
  const wasRevoked = (at: string): boolean =>
    around.ledger.wasRevoked({ worker: grantee.worker.name, host: at, mode: need.mode });
  if (wasRevoked(host)) return refuse("GRANT_REVOKED", asked, "It was granted before and then revoked.");
  const wider = widerThan(asked, levels(), grounds, wasRevoked);
  const executed = executedIn(asked, host, judged.preview);
  const question = { ...questionOf(asked, need, grantee), ...executed, ...wider };
  const had = (): Sandbox | null => {
    const now = judgeGrant(asked, levels(), grounds);
    return now.ok && now.had ? now.preview : null;
  };
  const decision = await decidedUnlessHad(question, had, around, signal);
  const sandbox = had();
  if (decision === null)
    return sandbox === null
      ? refuse("GRANT_REVOKED", asked, "It was granted meanwhile and then revoked.")
      : { ok: true, directory: found, scope: null, sandbox };
  if (decision.outcome !== "approved") return unapproved(asked, decision);
  // Only what was offered: an approver is a program, too.
  const chosen = wider.wider?.find((path) => path === decision.directory) ?? found;
  return await grantedAt(
    { directory: chosen, mode: need.mode },
    decision,
    need,
    grantee,
    { around, grounds, levels },
    signal,
  );
}

/** Null: what is asked for was given meanwhile, as by a user who was not asked, so that the question is withdrawn. */
async function decidedUnlessHad(
  question: ApprovalRequest,
  had: () => Sandbox | null,
  { approver, ledger }: GrantSurroundings,
  signal: AbortSignal,
): Promise<Decision | null> {
  const given = new AbortController();
  using _ = ledger.onAdded(() => {
    if (had() !== null) given.abort(new Error("it was given meanwhile"));
  });
  try {
    return await approver.decide(question, AbortSignal.any([signal, given.signal]));
  } catch (error) {
    if (!given.signal.aborted || signal.aborted) throw error;
    return null;
  }
}

interface Circumstances {
  readonly around: GrantSurroundings;
  readonly grounds: Grounds;
  readonly levels: () => Level[];
}

async function grantedAt(
  asked: DirectoryRequest,
  decision: Decision,
  need: GrantNeed,
  grantee: Grantee,
  { around, grounds, levels }: Circumstances,
  signal: AbortSignal,
): Promise<GrantOutcome> {
  const { directory } = asked;
  // Other grants may have been added or revoked meanwhile: it is judged again on what holds now.
  return await around.ledger.inTurn(async () => {
    signal.throwIfAborted();
    const now = judgeGrant(asked, levels(), grounds);
    if (!now.ok) return now;
    if (now.had) return { ok: true, directory, scope: null, sandbox: now.preview };
    if (decision.scope === "once" && need.mode === "write" && waitsOnSide(now.preview, directory))
      return refuse("GRANT_FOR_ONE_OPERATION", asked, NOT_FOR_ONE);
    const record = recordOf(need, directory, { decision, judged: now, grantee, grounds }, around);
    if (!(await around.record(record))) return refuse("APPROVAL_DENIED", asked, NOT_RECORDED);
    const violations = await around.ledger.add(record, () => kept(record, decision, now, grantee));
    if (violations.length > 0)
      return refuse("GRANT_SOURCE_REFUSED", asked, violations.map(describeViolation).join(" "));
    const lasting = need.under === undefined && decision.scope !== "once";
    return { ok: true, directory, scope: decision.scope, sandbox: lasting ? grantee.sandbox : now.preview };
  });
}

function groundsOf(grantee: Grantee, { project, refusedSources }: GrantSurroundings): Grounds {
  return {
    // What it asks for may be a directory whose reading needs consent: this question asks for that too.
    project: declaredBy(grantee.project),
    ownFiles: project.ownFiles,
    refusalOf: (host) => refusalOf(host, refusedSources),
  };
}

async function foldersOf(grantee: Grantee, { project, writableHosts }: GrantSurroundings) {
  const folders = new Map<Grantee, readonly string[] | null>();
  for (const each of grantee.chain()) {
    const within = each.worker.dynamic?.within ?? null;
    folders.set(each, within === null ? null : await allowedFolders(project.dir, within, await writableHosts()));
  }
  return folders;
}

function levelsOf(
  grantee: Grantee,
  within: ReadonlyMap<Grantee, readonly string[] | null>,
  under: Sandbox | undefined,
): Level[] {
  return grantee.chain().map((each) => ({
    worker: each.worker,
    sandbox: each === grantee ? (under ?? each.sandbox) : each.sandbox,
    limited: each.limited,
    within: within.get(each) ?? null,
    directories: each.directories,
  }));
}

/**
 * The directory that a path means. The disk is inspected only if the place could be granted at all, so that refusals do
 * not reveal what there is elsewhere on the host.
 */
async function directoryOf(
  { path, mode }: GrantNeed,
  levels: readonly Level[],
  grounds: Grounds,
): Promise<VirtualPath | Refused> {
  const judged = judgeGrant({ directory: path, mode }, levels, grounds);
  // The limit is on directories, and this may be a file in one that was granted already.
  if (!judged.ok && judged.refusal.code !== "GRANT_LIMIT") return judged;
  if (judged.ok && judged.had) return path;
  const { mount } = meaningOf(path, levels, grounds);
  // Only Corral writes where a view is; any other place of the host may have become a link since.
  const [base, rest] =
    mount?.view === undefined
      ? ["/", mount === null ? path : hostBelow(mount, path)]
      : [mount.host, below(mount.path, path) ?? ""];
  const found = await askedDirectory(base, rest);
  if (found === "itself") return path;
  if (found === "around") return posix.dirname(path) as VirtualPath;
  const because = "There is no such directory, or its path contains a symbolic link.";
  const instead = "Name an existing directory, or a file in one.";
  return refuse("GRANT_NO_DIRECTORY", { directory: path, mode }, because, instead);
}

/** How many directories around the asked one the user may choose from. */
const MAX_WIDER = 3;

/** The directories around it that could be granted as well; what was revoked before is none. */
function widerThan(
  { directory, mode }: DirectoryRequest,
  levels: readonly Level[],
  grounds: Grounds,
  wasRevoked: (host: string) => boolean,
): { readonly wider?: readonly VirtualPath[] } {
  const wider: VirtualPath[] = [];
  for (let path = posix.dirname(directory); path !== "/" && wider.length < MAX_WIDER; path = posix.dirname(path)) {
    const judged = judgeGrant({ directory: path as VirtualPath, mode }, levels, grounds);
    if (judged.ok && !judged.had && !wasRevoked(judged.host)) wider.push(path as VirtualPath);
  }
  return wider.length === 0 ? {} : { wider };
}

function questionOf(
  { directory, mode }: DirectoryRequest,
  { why, lastingOnly }: GrantNeed,
  grantee: Grantee,
): ApprovalRequest {
  const operations = [`grant_${mode}`] as const;
  const { run, root, worker } = grantee;
  const through = grantee.chain().map((each) => each.worker.name);
  const asked = { run, root, worker: worker.name, operations, paths: [directory], directory, through, why };
  return lastingOnly ? { ...asked, lastingOnly } : asked;
}

/** A grant to write in what programs of the host execute says so, and no rule or mode approves it. */
function executedIn({ directory, mode }: DirectoryRequest, host: string, preview: Sandbox) {
  const why = mode === "write" && asksForHostExecuted(preview) ? whyHostExecuted(host, "file") : null;
  return why === null ? {} : { hostExecuted: [{ path: directory, why }] };
}

/** From the one nearest to the project down, each from the one before: what is written lands in the caller's view first. */
async function kept(
  { id, mode, directory }: DirectoryGrantRecord,
  { reason }: Decision,
  judged: Judgement & { ok: true },
  grantee: Grantee,
): Promise<readonly Violation[]> {
  const path = directory as VirtualPath;
  const by = `approval (${reason})`;
  const granted: Grantee[] = [];
  let source = judged.source;
  const undo = async (): Promise<void> => {
    for (const each of granted.toReversed()) await each.release(id);
  };
  try {
    for (const each of grantee.chain().slice(judged.first)) {
      const violations = await each.hold({ id, path, mode, by, source });
      if (violations.length > 0) {
        await undo();
        return violations;
      }
      granted.push(each);
      source = select(each.sandbox, path);
    }
    return [];
  } catch (error) {
    await undo();
    throw error;
  }
}

function recordOf(
  { mode, why }: GrantNeed,
  directory: VirtualPath,
  made: { decision: Decision; judged: Judgement & { ok: true }; grantee: Grantee; grounds: Grounds },
  { newId, now }: GrantSurroundings,
): DirectoryGrantRecord {
  const { decision, judged, grantee, grounds } = made;
  const through = grantee.chain().map((each) => each.worker.name);
  return {
    id: newId(),
    run: grantee.run,
    root: grantee.root,
    worker: grantee.worker.name,
    through,
    granted: through.slice(judged.first),
    directory,
    host: judged.host,
    mount: governingMount(grounds.project, directory)?.name ?? null,
    mode,
    scope: decision.scope,
    why,
    grantedAt: now().toISOString(),
  };
}

/** One run of the chain that does not see the directory yet, and what it would be shown. */
interface Opening {
  readonly grantee: Grantee;
  readonly path: VirtualPath;
  readonly source: readonly Mount[];
}

/**
 * Asks to read a directory that the worker declares and whose reading needs consent. As with a grant, one question is for the
 * whole chain of runs that do not see it yet; each of them keeps its own mode, constraints and consent.
 */
async function requestReading(
  need: GrantNeed,
  waiting: Mount,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<GrantOutcome> {
  const directory = waiting.path;
  const asked = { directory, mode: "read" } as const;
  const now = need.under ?? grantee.sandbox;
  const source = withheldBelow(now, directory);
  const refused = whyNever(source, asked, around) ?? whyNotAbove(openingsOf(grantee, waiting), asked);
  if (refused !== null) return refused;
  const host = originOf(waiting);
  if (around.ledger.wasRevoked({ worker: grantee.worker.name, host, mode: "read" }))
    return refuse("GRANT_REVOKED", asked, "It was granted before and then revoked.");

  const { run, root, worker } = grantee;
  const through = grantee.chain().map((each) => each.worker.name);
  const question = { run, root, worker: worker.name, operations: ["read"], paths: [directory], through } as const;
  const lasting = need.lastingOnly ? { lastingOnly: true as const } : {};
  const decision = await around.approver.decide({ ...question, why: need.why, ...lasting }, signal);
  if (decision.outcome !== "approved") return unapproved(asked, decision);
  return await around.ledger.inTurn(async () => {
    signal.throwIfAborted();
    const grant = { id: around.newId(), path: directory, mode: "read", by: byOf(decision), declared: true } as const;
    const preview = expand(need.under ?? grantee.sandbox, { ...grant, source });
    if (governingMount(preview, directory) === undefined)
      return refuse("GRANT_NOT_ABOVE", asked, "The worker does not declare it any more.");
    if (decision.scope === "once" && need.mode === "write" && waitsOnSide(preview, directory))
      return refuse("GRANT_FOR_ONE_OPERATION", asked, NOT_FOR_ONE);
    const openings = openingsOf(grantee, waiting);
    const unseen = whyNotAbove(openings, asked);
    if (unseen !== null) return unseen;
    const granted = (openings ?? []).map((each) => each.grantee.worker.name);
    const record: DirectoryGrantRecord = {
      id: grant.id,
      run,
      root,
      worker: worker.name,
      through,
      granted,
      directory,
      host,
      mount: waiting.name,
      mode: "read",
      scope: decision.scope,
      why: need.why,
      declared: true,
      grantedAt: around.now().toISOString(),
    };
    if (!(await around.record(record))) return refuse("APPROVAL_DENIED", asked, NOT_RECORDED);
    const violations = await around.ledger.add(record, () => opened(grant, grantee, waiting));
    if (violations.length > 0)
      return refuse("GRANT_SOURCE_REFUSED", asked, violations.map(describeViolation).join(" "));
    const isLasting = need.under === undefined && decision.scope !== "once";
    return { ok: true, directory, scope: decision.scope, sandbox: isLasting ? grantee.sandbox : preview };
  });
}

/** Reasons that no approval changes. */
function whyNever(
  source: readonly Mount[],
  asked: { directory: string; mode: "read" },
  { refusedSources }: GrantSurroundings,
): Refused | null {
  if (source.some(({ approval }) => consentOf(approval, "read") === "blocked"))
    return refuse("GRANT_BLOCKED", asked, "Reading is blocked there; no approval changes that.");
  for (const mount of source) {
    const reason = mount.view === undefined ? refusalOf(mount.host, refusedSources) : null;
    if (reason !== null)
      return refuse("GRANT_SOURCE_REFUSED", asked, `This directory is never shown to a worker: ${reason}.`);
  }
  return null;
}

function whyNotAbove(openings: readonly Opening[] | null, asked: { directory: string; mode: "read" }): Refused | null {
  if (openings !== null) return null;
  return refuse("GRANT_NOT_ABOVE", asked, "A caller of this worker does not have it any more.");
}

function withheldBelow({ withheld = [] }: Sandbox, directory: VirtualPath): Mount[] {
  return withheld.filter(({ path }) => covers(directory, path));
}

/** The runs that do not see it, from the one nearest to the project down; null if one of them does not declare it. */
function openingsOf(grantee: Grantee, waiting: Mount): Opening[] | null {
  const openings: Opening[] = [];
  for (const each of grantee.chain()) {
    const own = each === grantee ? waiting : placeFor(waiting, each.sandbox.withheld ?? []);
    if (each !== grantee && own === null) {
      if (placeFor(waiting, each.sandbox.mounts) === null) return null;
      continue;
    }
    if (own !== null) openings.push({ grantee: each, path: own.path, source: withheldBelow(each.sandbox, own.path) });
  }
  return openings;
}

/** The mount of a caller that shows the host directory, whatever its name is there. */
function placeFor(waiting: Mount, mounts: readonly Mount[]): Mount | null {
  const around = mounts.filter((mount) => holds(originOf(mount), originOf(waiting)));
  return around.toSorted((a, b) => originOf(b).length - originOf(a).length)[0] ?? null;
}

/** Each run is shown it as the one above it now sees it: what is written lands in the caller's view first. */
async function opened(
  grant: Omit<DirectoryGrant, "source">,
  grantee: Grantee,
  waiting: Mount,
): Promise<readonly Violation[]> {
  const done: Grantee[] = [];
  const undo = async (): Promise<void> => {
    for (const each of done.toReversed()) await each.release(grant.id);
  };
  try {
    for (const { grantee: each, path, source } of openingsOf(grantee, waiting) ?? []) {
      const seen = source.map((mount) => throughCaller(mount, each.parent));
      const violations = await each.hold({ ...grant, path, source: seen });
      if (violations.length > 0) {
        await undo();
        return violations;
      }
      done.push(each);
    }
    return [];
  } catch (error) {
    await undo();
    throw error;
  }
}

function throughCaller(mount: Mount, caller: Grantee | null): Mount {
  const seen = caller === null ? null : placeFor(mount, caller.sandbox.mounts);
  if (seen?.view === undefined) return mount;
  const rest = originOf(mount).slice(originOf(seen).length).replace(/^\//, "");
  const path = joinVirtual(seen.path, rest);
  const { view, granted } = carve(seen, path);
  const mark = present({ granted });
  return { ...mount, ...mark, host: hostBelow(seen, path), ...present({ view }) };
}

function byOf({ reason }: Decision): string {
  return `approval (${reason})`;
}
