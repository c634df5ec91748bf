import type { SealedRecord } from "../audit/seal.ts";
import type { Verdict } from "../audit/verify.ts";
import type { ItemResult } from "../fleet/model/item.ts";
import type { FleetEvent, FleetSummary } from "../fleet/running/events.ts";
import type { StreamName } from "../history/recording.ts";
import type { RunRecord } from "../history/run-record.ts";
import {
  type AddedGrant,
  type Approval,
  type ApprovalAnswer,
  addGrant,
  decideApproval,
  listApprovals,
  listGrants,
  revokeGrant,
  showApproval,
} from "../operations/approvals.ts";
import {
  type AuditFilter,
  type AuditRecords,
  auditRecords,
  newestAuditRecords,
  type ProjectPlace,
  verifyAudit,
} from "../operations/audit.ts";
import { Changesets } from "../operations/changesets.ts";
import type { FleetStart } from "../operations/fleet-start.ts";
import {
  type CancelledFleet,
  cancelFleet,
  type FleetDetails,
  type FleetItem,
  type FleetPlace,
  fleetReport,
  fleetResults,
  type ListedFleet,
  listFleets,
  pendingItems,
  removeFleets,
  showFleet,
  showItem,
} from "../operations/fleets.ts";
import type {
  AppliedChangeset,
  ApplyRequest,
  ForeseenChangeset,
  ListedChangeset,
  ShownChangeset,
} from "../operations/foreseen-changes.ts";
import {
  listRuns,
  type OutputPiece,
  type RunFilter,
  type RunsToRemove,
  removeRuns,
  runOutput,
  type StoppedRun,
  showRun,
  stopRun,
} from "../operations/runs.ts";
import type { GivenDirectory, LiveGrant } from "../state/live-grants.ts";

/** How what a run printed is read. */
export interface LogOptions {
  /** Absent: both, standard output first. */
  readonly stream?: StreamName;
  /** What a service of it printed; absent: what the run itself did. */
  readonly service?: string;
  /** Only the last lines of each stream. */
  readonly lines?: number;
  /** Until the run has ended. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

/**
 * The history of the project's runs and sessions; items of fleets are in `fleets`. Methods that take an id, a prefix of it or
 * `latest` throw a `RequestError`: `UNKNOWN_RUN`, `AMBIGUOUS_ID`.
 */
export class ProjectRuns {
  readonly #place: ProjectPlace;

  constructor(place: ProjectPlace) {
    this.#place = place;
  }

  /** The newest first, at most 50 if no other `limit` is given. */
  async list(filter: RunFilter = {}): Promise<readonly RunRecord[]> {
    return (await listRuns(this.#place, filter)).runs;
  }

  async show(id: string): Promise<RunRecord> {
    return await showRun(this.#place, id);
  }

  /** What it printed, in pieces. Of a long stream the first 512 KiB and at least the last 512 KiB are kept. */
  async logs(id: string, { stream, ...options }: LogOptions = {}): Promise<AsyncGenerator<OutputPiece, void>> {
    const streams = stream === undefined ? (["stdout", "stderr"] as const) : [stream];
    return await runOutput(this.#place, id, { ...options, streams });
  }

  /** Stops a run of any process of this user, and waits up to 15 s until it has ended. */
  async stop(id: string): Promise<StoppedRun> {
    return await stopRun(this.#place, id);
  }

  /** Removes runs that have ended from the history. Answers with their ids. @throws RequestError RUN_NOT_ENDED */
  async remove(which: RunsToRemove): Promise<string[]> {
    return await removeRuns(this.#place, which);
  }
}

/** How a fleet is resumed or retried. */
export interface ContinueOptions {
  /** Ends running items at once. The fleet can be resumed. */
  readonly signal?: AbortSignal;
  /** Receives each event of the fleet. It must not throw. */
  readonly onEvent?: (event: FleetEvent) => void;
}

/** Results as they come; then how the fleet ended. A caller that stops taking them lets running items end. */
export type FleetResults = AsyncGenerator<ItemResult, FleetSummary, undefined>;

/** The project's fleets: `map` starts one. Methods that take an id, a prefix of it or `latest` throw a `RequestError`: `UNKNOWN_FLEET`. */
export class ProjectFleets {
  readonly #place: FleetPlace;
  readonly #run: (start: FleetStart, options: ContinueOptions) => FleetResults;

  constructor(place: FleetPlace, run: (start: FleetStart, options: ContinueOptions) => FleetResults) {
    this.#place = place;
    this.#run = run;
  }

  /** The newest first. */
  async list(limit?: number): Promise<ListedFleet[]> {
    return await listFleets(this.#place, limit);
  }

  async show(id: string): Promise<FleetDetails> {
    return await showFleet(this.#place, id);
  }

  /** Of the items that have ended, in the order of the manifest. `status`: only with this one. */
  async results(id: string, options: { readonly status?: string } = {}): Promise<AsyncGenerator<ItemResult, void>> {
    return await fleetResults(this.#place, id, options);
  }

  /** A self-contained HTML page, in pieces. */
  async report(id: string): Promise<AsyncGenerator<string, void>> {
    return await fleetReport(this.#place, id);
  }

  /** Continues a fleet that no process runs any more. @throws RequestError FLEET_REFUSED with the first result */
  resume(id: string, options: ContinueOptions = {}): FleetResults {
    return this.#run({ kind: "resume", fleet: id }, options);
  }

  /**
   * Runs the failed items of a fleet again, in the same fleet, or with `asNew` in a new one.
   *
   * @throws RequestError FLEET_REFUSED with the first result
   */
  retry(id: string, { asNew = false, ...options }: ContinueOptions & { readonly asNew?: boolean } = {}): FleetResults {
    return this.#run({ kind: "retry", fleet: id, asNew }, options);
  }

  /** One item: its result, request, earlier attempts and both streams. @throws RequestError UNKNOWN_ITEM */
  async item(id: string, key: string): Promise<FleetItem> {
    return await showItem(this.#place, id, key);
  }

  /** Items that wait will not run; a process that runs the fleet sees this at its next item. */
  async cancel(id: string): Promise<CancelledFleet> {
    return await cancelFleet(this.#place, id);
  }

  /** Removes fleets that have ended, with their results. Answers with their ids. @throws RequestError FLEET_NOT_ENDED */
  async remove(which: { readonly ids?: readonly string[]; readonly endedBefore?: Date }): Promise<string[]> {
    const { ids = [], endedBefore } = which;
    return await removeFleets(this.#place, { ids, endedBefore: endedBefore?.getTime() ?? null });
  }
}

/** What the item of a fleet would change now. */
export interface FleetChangeset extends ForeseenChangeset {
  readonly item: { readonly index: number; readonly key: string };
}

export interface ApplyOptions extends Pick<ApplyRequest, "only" | "which" | "digest" | "hostExecuted" | "signal"> {
  /**
   * True: the program approved all of it, so no person is asked; rules of the project that deny still deny, and what programs of the host
   * would execute waits unless `hostExecuted` names it.
   */
  readonly agreed?: boolean;
}

/** What the project's runs wrote and was not applied. Methods that take an id, a prefix of it or `latest` throw a `RequestError`. */
export class ProjectChangesets {
  readonly #place: FleetPlace;
  readonly #ask: Exclude<ApplyRequest["approval"], "agreed">;
  readonly #until: (signal: AbortSignal | undefined) => AbortSignal;
  #opened: Promise<Changesets> | null = null;

  constructor(
    place: FleetPlace,
    ask: Exclude<ApplyRequest["approval"], "agreed">,
    until: (signal: AbortSignal | undefined) => AbortSignal,
  ) {
    this.#place = place;
    this.#ask = ask;
    this.#until = until;
  }

  /** The oldest first. */
  async list(): Promise<ListedChangeset[]> {
    return await (await this.#open()).list(this.#place.projectDir);
  }

  async show(id: string): Promise<ShownChangeset> {
    return await (await this.#open()).show(await this.#idOf(id));
  }

  /** A unified diff against the files as they are now. */
  async diff(id: string): Promise<string> {
    return await (await this.#open()).diff(await this.#idOf(id));
  }

  /** What it would do now, file by file, and what the project's rules say of each. */
  async foresee(id: string): Promise<ForeseenChangeset> {
    await this.show(id);
    return await (await this.#open()).foresee(id);
  }

  /** Those of a fleet's items, in the order of the manifest, each as {@link foresee} answers. `fleet`: its id, a prefix, or `latest`. */
  async *ofFleet(fleet: string): AsyncGenerator<FleetChangeset, void, undefined> {
    const changesets = await this.#open();
    const { each } = await pendingItems(this.#place, fleet);
    for await (const { index, key, run } of each()) yield { item: { index, key }, ...(await changesets.foresee(run)) };
  }

  /** Asks the project's rules and its approver, and applies what is approved; never overwrites a conflict. */
  async apply(id: string, { signal, agreed = false, ...what }: ApplyOptions = {}): Promise<AppliedChangeset> {
    const approval = agreed ? ("agreed" as const) : this.#ask;
    const request = { approval, signal: this.#until(signal), ...what };
    return await (await this.#open()).apply(await this.#idOf(id), request);
  }

  /** Removes what was written there. */
  async discard(id: string): Promise<void> {
    await (await this.#open()).discard(await this.#idOf(id));
  }

  async #idOf(asked: string): Promise<string> {
    const [id = asked] = await (await this.#open()).idsOf([asked], this.#place.projectDir, { elsewhere: false });
    return id;
  }

  #open(): Promise<Changesets> {
    this.#opened ??= Changesets.open(this.#place.stateDir, this.#place.engineEnv);
    return this.#opened;
  }
}

/** What running workers were granted beyond their declarations, in all projects of the state directory. */
export class Grants {
  readonly #stateDir: string;

  constructor(stateDir: string) {
    this.#stateDir = stateDir;
  }

  /** The oldest first. */
  async list(): Promise<LiveGrant[]> {
    return await listGrants(this.#stateDir);
  }

  /**
   * Grants a directory to a running worker that has not asked for it, by the rules for those that ask. `path`: as the worker would ask for
   * it. `by`: who grants it.
   *
   * @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID, GRANT_REFUSED
   */
  async add(run: string, given: GivenDirectory): Promise<AddedGrant> {
    return await addGrant(this.#stateDir, run, given);
  }

  /** Takes a grant back: tools lose it at once, containers that have it are replaced. @throws RequestError UNKNOWN_GRANT */
  async revoke(id: string): Promise<void> {
    await revokeGrant(this.#stateDir, id);
  }
}

/** Questions of the project's runs, in all processes, and how they were decided. */
export class ProjectApprovals {
  readonly #place: ProjectPlace;

  constructor(place: ProjectPlace) {
    this.#place = place;
  }

  /** Those that wait, the oldest first; or those that were decided, the newest first. */
  async list(filter: { readonly state?: Approval["state"]; readonly limit?: number } = {}): Promise<Approval[]> {
    const { stateDir, projectDir } = this.#place;
    return await listApprovals(stateDir, { state: "waiting", ...filter, projects: [projectDir] });
  }

  async show(id: string): Promise<Approval> {
    return await showApproval(this.#place.stateDir, id, [this.#place.projectDir]);
  }

  /**
   * Decides on a question, for the process that asks it. The first decision counts. `by`: who decides.
   *
   * @throws RequestError UNKNOWN_APPROVAL, ALREADY_DECIDED, QUESTION_CHANGED, WRONG_ANSWER
   */
  async decide(id: string, answer: Omit<ApprovalAnswer, "via">): Promise<Approval> {
    const { stateDir, projectDir } = this.#place;
    return await decideApproval(stateDir, id, { ...answer, via: "program" }, [projectDir]);
  }
}

/** The project's audit trail. */
export class ProjectAudit {
  readonly #place: ProjectPlace;

  constructor(place: ProjectPlace) {
    this.#place = place;
  }

  /** All records that fit, the oldest first. @throws RequestError UNKNOWN_VALUE for a type that no record has */
  async *records(filter: AuditFilter = {}): AsyncGenerator<SealedRecord, void, undefined> {
    for await (const { records } of auditRecords(this.#place, filter)) yield* records;
  }

  /** The newest `limit` of those, and how many lines are no sealed records. */
  async newest(limit: number, filter: AuditFilter = {}): Promise<AuditRecords> {
    return await newestAuditRecords(this.#place, filter, limit);
  }

  /** Checks each record's seal and its place; null if nothing is recorded. */
  async verify(): Promise<Verdict | null> {
    return await verifyAudit(this.#place);
  }
}
