import type { Decision } from "../../approval/approver.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { carve, governingMount, hostBelow } from "../../sandbox/access.ts";
import { consentOf } from "../../sandbox/approval.ts";
import { type DirectoryGrant, expand } from "../../sandbox/expand.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { covers, holds, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import { present } from "../../text/present.ts";
import type { DirectoryGrantRecord, Grantee } from "../model/grantee.ts";
import {
  type GrantNeed,
  type GrantOutcome,
  type GrantSurroundings,
  NOT_FOR_ONE,
  NOT_RECORDED,
  type Refused,
  refuse,
  unapproved,
  waitsOnSide,
} from "./judge.ts";

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
export async function requestReading(
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
