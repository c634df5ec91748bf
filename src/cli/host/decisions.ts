import type { SealedRecord } from "../../audit/seal.ts";
import type { AddedGrant, Approval, ApprovalAnswer, ApprovalFilter, ApprovalPage } from "../../operations/approvals.ts";
import type { AuditFilter, AuditRecords } from "../../operations/audit.ts";
import type { Changesets } from "../../operations/changesets.ts";
import type { AppliedChange, AppliedChangeset, ForeseenChangeset } from "../../operations/foreseen-changes.ts";
import { RequestError } from "../../operations/request-error.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { GivenDirectory, LiveGrant } from "../../state/live-grants.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type ProjectOptions, projectPlaceOf } from "../terminal/arguments.ts";
import { type AtService, say, type Terminal } from "../terminal/terminal.ts";
import { idMeant, known } from "./at-service.ts";
import { fleetMeant, runMeant } from "./runs.ts";

interface OnlyRules {
  readonly only: readonly VirtualPath[] | null;
  readonly digest?: string | undefined;
}

/** Changes that wait, of this machine or of a service. */
export interface ChangesOffer
  extends Pick<Changesets, "list" | "idsOf" | "show" | "foresee" | "digest" | "diff" | "diffs" | "apply" | "discard">,
    AsyncDisposable {
  /** Of a service: applies what its project approves without a person. Absent: `apply` knows it by whom it is to ask. */
  applyRuled?(id: string, what: OnlyRules): Promise<AppliedChangeset>;
}

export async function openChangesets(terminal: Terminal): Promise<ChangesOffer> {
  if (terminal.service !== undefined) return changesetsAt(terminal.service);
  const { Changesets: Local } = await import("../../operations/changesets.ts");
  return await Local.open(stateDirFrom(terminal.env), terminal.env, (text) => say(terminal, `corral: ${text}`));
}

/** Of one answer of a service. */
const MAX_LISTED = 1000;

function changesetsAt({ client, project }: AtService): ChangesOffer {
  const list: ChangesOffer["list"] = async (place) => {
    const which = place === null ? {} : present({ project });
    const { changesets } = await client.call("changesets.list", { ...which, limit: MAX_LISTED });
    return known(changesets.map((one) => ({ ok: true, ...one })));
  };
  const foresee = async (changeset: string): Promise<ForeseenChangeset> =>
    known(await client.call("changesets.review", { changeset }));
  const digestOf = async (changeset: string): Promise<string> =>
    (await client.call("changesets.show", { changeset })).digest;
  return {
    list,
    foresee,
    digest: digestOf,
    idsOf: async (asked) =>
      await Promise.all(
        asked.map((one) => {
          const newest = async () => known<Listed[]>(await list("")).toReversed();
          const about = ({ worker, createdAt }: Listed) => `${worker}, ${createdAt}`;
          return idMeant(one, "UNKNOWN_CHANGESET", "changeset", newest, about);
        }),
      ),
    show: async (changeset) => known(await client.call("changesets.show", { changeset })),
    diff: async (changeset) => (await client.call("changesets.show", { changeset })).diff,
    async diffs(id) {
      const { digest, parts, unfit, notShown } = await foresee(id);
      const fits = parts.map(({ indexes: [index = 0], ...part }) => ({
        change: { ...part, index },
        verdict: null,
        lines: part.lines,
      }));
      const others = unfit.map(({ outcome, reason, ...change }) => ({
        change,
        verdict: { outcome, reason },
        lines: [],
      }));
      return known({ digest, diffs: [...fits, ...others], notShown });
    },
    async apply(changeset, { only, which, digest, hostExecuted }) {
      const what = present({ only: only && [...only], which: which && [...which] });
      const agreed = { digest: digest ?? (await digestOf(changeset)), hostExecuted: [...(hostExecuted ?? [])] };
      return known(await client.call("changesets.apply", { changeset, ...what, ...agreed }));
    },
    async applyRuled(changeset, { only, digest }) {
      const seen = await foresee(changeset);
      if (digest !== undefined && digest !== seen.digest)
        throw new RequestError(
          "CHANGESET_CHANGED",
          changeset,
          "the changeset is not what was shown any more: look at it again",
        );
      const isMeant = ({ path }: { readonly path: VirtualPath }) =>
        only === null || only.some((at) => covers(at, path));
      const parts = seen.parts.filter(isMeant);
      const unfit = seen.unfit.filter(isMeant);
      if (only !== null && parts.length + unfit.length === 0) {
        const places = only.map((path) => printableLine(path)).join(", ");
        throw new RequestError("UNKNOWN_CHANGE", changeset, `no change waits at ${places}`);
      }
      const isApproved = ({ ruled, hostExecuted }: (typeof parts)[number]) =>
        ruled === null ? seen.mode === "approve_all" && hostExecuted === null : ruled.outcome === "approved";
      const which = parts.filter(isApproved).flatMap(({ indexes }) => indexes);
      const done =
        which.length === 0
          ? { changes: [], left: seen.waiting }
          : await client.call("changesets.apply", { changeset, digest: seen.digest, which });
      const withheld = parts
        .filter((part) => !isApproved(part))
        .flatMap(({ indexes, path, kind, type, ruled }) =>
          indexes.map((index) => ({ index, path, kind, type, ...withheldBy(ruled, seen.mode) })),
        );
      return {
        id: changeset,
        left: done.left,
        changes: [...known<AppliedChange[]>(done.changes), ...withheld, ...unfit],
      };
    },
    async discard(changeset, { digest } = {}) {
      await client.call("changesets.discard", { changeset, digest: digest ?? (await digestOf(changeset)) });
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

interface Listed {
  readonly id: string;
  readonly worker: string;
  readonly createdAt: string;
}

function withheldBy(
  ruled: ForeseenChangeset["parts"][number]["ruled"],
  mode: string,
): Pick<AppliedChange, "outcome" | "reason"> {
  if (ruled !== null) return { outcome: "denied", reason: ruled.reason };
  if (mode === "auto_deny") return { outcome: "denied", reason: "the approval mode is auto_deny" };
  return { outcome: "held", reason: `the approval mode is ${mode}, and no person was asked: use --yes, or a terminal` };
}

/** The changes that items of a fleet left. `asked`: its id, a beginning of it, or `latest`. */
export async function fleetChangesAt(service: AtService, asked: string) {
  const { client, project } = service;
  const fleet = await fleetMeant(service, asked);
  const { changesets } = await client.call("changesets.list", { ...present({ project }), limit: MAX_LISTED });
  return { fleet, changesets: changesets.filter((one) => one.fleet === fleet) };
}

/** Questions and grants of running workers, of this machine or of a service. Ids may be beginnings of them, or `latest`. */
export interface ConsentOffer {
  page(filter: Pick<ApprovalFilter, "state">): Promise<ApprovalPage>;
  show(asked: string): Promise<Approval>;
  /** @throws RequestError as the operation; a service knows by its token who decides */
  decide(id: string, answer: ApprovalAnswer): Promise<Approval>;
  grants(): Promise<LiveGrant[]>;
  /** @throws RequestError as the operation */
  add(run: string, given: GivenDirectory): Promise<AddedGrant>;
  /** Answers with the whole id. */
  revoke(asked: string): Promise<string>;
}

export async function consentOffered(terminal: Terminal): Promise<ConsentOffer> {
  if (terminal.service !== undefined) return consentAt(terminal.service);
  const approvals = await import("../../operations/approvals.ts");
  const stateDir = stateDirFrom(terminal.env);
  return {
    page: (filter) => approvals.pageOfApprovals(stateDir, filter),
    show: (asked) => approvals.showApproval(stateDir, asked),
    decide: (id, answer) => approvals.decideApproval(stateDir, id, answer),
    grants: () => approvals.listGrants(stateDir),
    add: (run, given) => approvals.addGrant(stateDir, run, given),
    revoke: (asked) => approvals.revokeGrant(stateDir, asked),
  };
}

/** Of one answer of a service. */
const MAX_LISTED_APPROVALS = 500;

function consentAt(service: AtService): ConsentOffer {
  const { client } = service;
  const project = present({ project: service.project });
  const meant = async (asked: string): Promise<string> => {
    const newest = async () => {
      const { approvals } = await client.call("approvals.list", { ...project, limit: MAX_LISTED_APPROVALS });
      return approvals.toReversed();
    };
    return await idMeant(asked, "UNKNOWN_APPROVAL", "question", newest, ({ question }) => question.worker);
  };
  const grants = async () => {
    const { grants: all } = await client.call("grants.list", {});
    return known<(LiveGrant & { readonly project: string })[]>(all).filter(
      (one) => (service.project ?? one.project) === one.project,
    );
  };
  return {
    page: async ({ state }) => known(await client.call("approvals.list", { ...project, state })),
    show: async (asked) => known(await client.call("approvals.show", { approval: await meant(asked) })),
    async decide(approval, { answer, digest = "", directory }) {
      return known(await client.call("approvals.decide", { approval, answer, digest, ...present({ directory }) }));
    },
    grants,
    async add(asked, { path, mode }) {
      return known(await client.call("grants.add", { run: await runMeant(service, asked), path, mode }));
    },
    async revoke(asked) {
      const newest = async () => (await grants()).toReversed();
      const grant = await idMeant(asked, "UNKNOWN_GRANT", "grant", newest, ({ worker }) => worker);
      return (await client.call("grants.revoke", { grant })).id;
    },
  };
}

/** The audit trail of a project. Its seals are verified where it is. */
export interface TrailOffer {
  newest(filter: AuditFilter, limit: number): Promise<AuditRecords>;
  /** The oldest first. */
  all(filter: AuditFilter): AsyncIterable<AuditRecords>;
}

export async function trailOffered(options: ProjectOptions, terminal: Terminal): Promise<TrailOffer> {
  if (terminal.service !== undefined) return trailAt(terminal.service);
  const audit = await import("../../operations/audit.ts");
  const place = await projectPlaceOf(options, terminal);
  return {
    newest: (filter, limit) => audit.newestAuditRecords(place, filter, limit),
    all: (filter) => audit.auditRecords(place, filter),
  };
}

const PAGE = 1000;
/** A service gives the newest first, and the oldest is printed first: so many are kept in memory. */
const MAX_RECORDS = 100_000;

function trailAt(service: AtService): TrailOffer {
  const newest = async ({ run: asked, type, since }: AuditFilter, limit: number): Promise<AuditRecords> => {
    const run = asked === undefined ? undefined : await runMeant(service, asked);
    const from = since === undefined ? undefined : new Date(since).toISOString();
    const filter = present({ project: service.project, run, type, since: from });
    const records: SealedRecord[] = [];
    let foreign = 0;
    for (let cursor: number | undefined; records.length < limit; ) {
      const page = await service.client.call("audit.page", {
        ...filter,
        limit: Math.min(PAGE, limit - records.length),
        ...present({ cursor }),
      });
      records.push(...known<SealedRecord[]>(page.records));
      foreign += page.foreign;
      if (page.next === null) break;
      cursor = page.next;
    }
    return { records: records.toReversed(), sealed: records.length, foreign };
  };
  return {
    newest,
    async *all(filter) {
      yield await newest(filter, MAX_RECORDS);
    },
  };
}
