import type { SealedRecord } from "../../audit/seal.ts";
import type { AddedGrant, Approval, ApprovalAnswer, ApprovalFilter, ApprovalPage } from "../../operations/approvals.ts";
import type { AuditFilter, AuditRecords } from "../../operations/audit.ts";
import type { GivenDirectory } from "../../state/given-grants.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { type ProjectOptions, projectPlaceOf } from "../terminal/arguments.ts";
import type { AtService, Terminal } from "../terminal/terminal.ts";
import { idMeant, known } from "./at-service.ts";
import { runMeant } from "./runs.ts";

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
const MAX_LISTED = 500;

function consentAt(service: AtService): ConsentOffer {
  const { client } = service;
  const project = present({ project: service.project });
  const meant = async (asked: string): Promise<string> => {
    const newest = async () => {
      const { approvals } = await client.call("approvals.list", { ...project, limit: MAX_LISTED });
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
