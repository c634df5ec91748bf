import { join } from "node:path";
import type { Approver } from "../approval/approver.ts";
import type { BoardAnswer } from "../approval/queued-approver.ts";
import type { AuditTrail } from "../audit/trail.ts";
import type { Changeset } from "../changes/model/changeset.ts";
import { loadProject, type Project } from "../declarations/project.ts";
import {
  APPROVAL_CURSOR,
  InboxFolder,
  inboxFolders,
  type PostedQuestion,
  type QuestionEnd,
  type StoredQuestion,
} from "../inbox/inbox-folder.ts";
import { type Decided, decisionsOn } from "../run/changes/decisions.ts";
import { approverFor } from "../run/open/options.ts";
import { RecordedApprover } from "../run/recorded/run-history.ts";
import type { Env } from "../secrets/read-secret.ts";
import {
  type GivenDirectory,
  giveDirectory,
  type LiveGrant,
  listLiveGrants,
  revokeLiveGrant,
  takersIn,
} from "../state/live-grants.ts";
import { currentOwner, loadSealKey } from "../state/owner.ts";
import { projectMark, statePaths } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { printableLine } from "../text/visible.ts";
import type { ApplyApproval, ApplyRequest } from "./foreseen-changes.ts";
import { chosenId, noneText, RequestError } from "./request-error.ts";

interface Asking {
  readonly approval: ApplyRequest["approval"];
  /** For what is recorded: who agrees. */
  readonly by: string | undefined;
}

/** Who decides on changes that waited, project by project. */
export class ChangeDeciders {
  readonly #env: Env;
  readonly #projects = new Map<string, Project>();
  /** One approver for each project and way to ask, so that an answer for the session covers further changesets. */
  readonly #asked = new Map<string, { readonly approver: Approver; readonly approval: ApplyRequest["approval"] }>();

  /** `env`: Corral's own environment, for reading projects. */
  constructor(env: Env) {
    this.#env = env;
  }

  async projectOf(dir: string): Promise<Project> {
    const project = this.#projects.get(dir) ?? (await loadProject(dir, this.#env));
    this.#projects.set(dir, project);
    return project;
  }

  /** Asks for each change as a run of the changeset's project would: its rules first. */
  async decide(
    selected: Changeset,
    { approval, by }: Asking,
    trail: AuditTrail,
    signal: AbortSignal,
  ): Promise<Decided> {
    const project = await this.projectOf(selected.project);
    const approver = this.#approverOf(project, selected.project, approval);
    const recorded = new RecordedApprover(by === undefined ? approver : decidedBy(by, approver), trail, {
      emit: () => {},
      now: () => performance.now(),
    });
    const { run, root, worker } = selected;
    return await decisionsOn(
      // The rules speak of every change: what a run may do by itself was not withheld from its project.
      { changeset: selected, toAsk: selected.changes, leftToCallers: [] },
      { run, root, worker: { name: worker } },
      { project, approver: recorded },
      signal,
    );
  }

  #approverOf(project: Project, dir: string, approval: ApplyRequest["approval"]): Approver {
    const before = this.#asked.get(dir);
    if (before !== undefined && before.approval === approval) return before.approver;
    const approver = approverFor(project, approval === "agreed" ? AGREED : approval(project));
    this.#asked.set(dir, { approver, approval });
    return approver;
  }
}

const AGREED_REASON = "the caller agreed to it without a question";

/** Takes the place of a person's answer, whatever the project's mode; its rules come first all the same. */
const AGREED: ApplyApproval = {
  approvalMode: "interactive",
  approver: {
    decide: async () => ({ outcome: "approved", scope: "once", reason: AGREED_REASON }),
  },
};

/** Names who agreed in what is recorded; a rule that decides has its own reason. */
function decidedBy(by: string, approver: Approver): Approver {
  return {
    async decide(request, signal) {
      const decision = await approver.decide(request, signal);
      return decision.reason === AGREED_REASON
        ? { ...decision, reason: `${by} applied it through the service`, by }
        : decision;
    },
  };
}

/** A question of the inbox, and how it was decided. */
export interface Approval extends PostedQuestion {
  readonly state: "waiting" | "decided";
  readonly decidedAt: string | null;
  readonly outcome: QuestionEnd["outcome"] | null;
  readonly scope: QuestionEnd["scope"];
  readonly directory: string | null;
  /** Null: no user, since no answer came in time or the run has ended. */
  readonly by: string | null;
  readonly via: QuestionEnd["via"];
}

export interface ApprovalAnswer {
  readonly answer: BoardAnswer;
  /** Of what was shown to the one who decides; absent: of what is there. */
  readonly digest?: string;
  /** For a grant: one of `wider`, in place of the requested directory. */
  readonly directory?: string;
  readonly by: string;
  readonly via: "command" | "service" | "program";
}

export interface ApprovalFilter {
  readonly state: Approval["state"];
  /** Folders of projects; absent: all projects of the state directory. */
  readonly projects?: readonly string[];
  /** Only those that a run of this tree waits for. */
  readonly root?: string;
  /** Absent: 100. */
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
}

export interface ApprovalPage {
  readonly approvals: Approval[];
  /** Where the next page begins; null: there are no more. */
  readonly next: string | null;
}

const DEFAULT_LISTED = 100;
/** Read for one list: the page of the service asks for one every second or two. */
const MAX_LIST_BYTES = 16 * 1024 ** 2;

/** How many wait in a project, by the names of the files: some of them may be of processes that have ended. */
export async function countWaiting(stateDir: string, project: string): Promise<number> {
  const [folder] = await foldersOf(stateDir, [project]);
  return folder?.waiting().length ?? 0;
}

/** The first page of {@link pageOfApprovals} alone. */
export async function listApprovals(
  stateDir: string,
  filter: ApprovalFilter,
  maxBytes = MAX_LIST_BYTES,
): Promise<Approval[]> {
  return (await pageOfApprovals(stateDir, filter, maxBytes)).approvals;
}

/**
 * Those that wait, the oldest first; or those that were decided, the newest first: up to `limit`, and up to 16 MiB of them. `next` says
 * where the rest begins.
 */
export async function pageOfApprovals(
  stateDir: string,
  { state, projects, root, limit = DEFAULT_LISTED, after }: ApprovalFilter,
  maxBytes = MAX_LIST_BYTES,
): Promise<ApprovalPage> {
  const found: Approval[] = [];
  const folders = await foldersOf(stateDir, projects);
  const files = folders.flatMap((folder) => folder.sized(state).map((file) => ({ ...file, folder })));
  const inOrder = (a: Place, b: Place): number =>
    (state === "waiting" ? a.at - b.at : b.at - a.at) || (a.id < b.id ? -1 : 1);
  const from = after === undefined ? null : placeIn(after);
  const rest = files.sort(inOrder).filter((file) => from === null || inOrder(from, file) < 0);
  let [read, seen] = [0, 0];
  for (const { id, bytes, folder } of rest) {
    if (found.length >= limit || (read > 0 && read + bytes > maxBytes)) break;
    [read, seen] = [read + bytes, seen + 1];
    const stored = folder.find(id);
    if (stored === null || (stored.end === null) !== (state === "waiting")) continue;
    if (root === undefined || stored.question.waiting.some((one) => one.root === root)) found.push(approvalOf(stored));
  }
  const last = rest[seen - 1];
  const next = last === undefined || seen === rest.length ? null : `${last.at}-${last.id}`;
  if (state === "waiting") return { approvals: found.sort(byTime(({ askedAt }) => askedAt)), next };
  return { approvals: found.sort(byTime(({ decidedAt }) => decidedAt ?? "")).reverse(), next };
}

interface Place {
  readonly at: number;
  readonly id: string;
}

function placeIn(cursor: string): Place {
  const [, at = "", id = ""] = APPROVAL_CURSOR.exec(cursor) ?? [];
  if (id === "") throw new Error(`${JSON.stringify(cursor)} is not the cursor of a list of questions`);
  return { at: Number(at), id };
}

/** `asked`: its id, a beginning of it, or `latest` of those that wait. @throws RequestError UNKNOWN_APPROVAL, AMBIGUOUS_ID */
export async function showApproval(stateDir: string, asked: string, projects?: readonly string[]): Promise<Approval> {
  return approvalOf((await found(stateDir, asked, projects)).stored);
}

/**
 * Decides on a question as it was shown, for the process that asks it. The first decision counts.
 *
 * @throws RequestError UNKNOWN_APPROVAL, AMBIGUOUS_ID, ALREADY_DECIDED, QUESTION_CHANGED, WRONG_ANSWER
 */
export async function decideApproval(
  stateDir: string,
  asked: string,
  { answer, digest, directory, by, via }: ApprovalAnswer,
  projects?: readonly string[],
): Promise<Approval> {
  const { folder, stored } = await found(stateDir, asked, projects);
  const { id, question, answers } = stored;
  if (stored.end !== null) throw decidedError(stored);
  if (digest !== undefined && digest !== stored.digest)
    throw new RequestError(
      "QUESTION_CHANGED",
      id,
      "the digest is not that of this question, or other runs wait for it now: look at it again",
    );
  if (!answers.includes(answer)) throw wrongAnswer(stored, answer);
  const isOffered = directory === undefined || directory === question.directory || question.wider?.includes(directory);
  if (!isOffered || (directory !== undefined && answer === "no"))
    throw new RequestError("WRONG_ANSWER", id, "the directory is none of those that can be granted: see `wider`");
  const end: QuestionEnd = {
    digest: stored.digest,
    decidedAt: new Date().toISOString(),
    ...(answer === "no"
      ? { outcome: "denied" as const, scope: null, directory: null }
      : { outcome: "approved" as const, scope: answer, directory: directory ?? null }),
    by,
    via,
  };
  if (!folder.end(id, end)) throw decidedError(folder.find(id) ?? stored);
  return approvalOf({ ...stored, end });
}

async function foldersOf(stateDir: string, projects: readonly string[] | undefined): Promise<InboxFolder[]> {
  const { inbox } = statePaths(stateDir);
  const there = inboxFolders(inbox);
  const marks = projects?.map(projectMark).filter((mark) => there.includes(mark)) ?? there;
  if (marks.length === 0) return [];
  const [key, self] = [await loadSealKey(stateDir), currentOwner()];
  return marks.map((mark) => new InboxFolder({ dir: join(inbox, mark), key, self }));
}

const WHOLE_ID = /^[0-9a-f]{12}$/;

async function found(stateDir: string, asked: string, projects: readonly string[] | undefined) {
  const folders = await foldersOf(stateDir, projects);
  const unknown = () => new RequestError("UNKNOWN_APPROVAL", asked, noneText("question", asked));
  const id = WHOLE_ID.test(asked) ? asked : chosenId(asked, await known(stateDir, folders, projects), unknown);
  for (const folder of folders) {
    const stored = folder.find(id);
    if (stored !== null) return { folder, stored };
  }
  throw unknown();
}

/** The newest first; those that wait come before all that do not. */
async function known(stateDir: string, folders: readonly InboxFolder[], projects: readonly string[] | undefined) {
  const filter = present({ projects });
  const all = { state: "waiting", limit: Number.POSITIVE_INFINITY, ...filter } as const;
  const waiting = (await listApprovals(stateDir, all, Number.POSITIVE_INFINITY)).toReversed();
  const ended = folders.flatMap((folder) => folder.ended().map((id) => ({ id, about: "decided" })));
  return [...waiting.map(({ id, question, askedAt }) => ({ id, about: `${question.worker}, ${askedAt}` })), ...ended];
}

function decidedError({ id, end }: StoredQuestion): RequestError {
  const { outcome = "decided", by = null, decidedAt = "" } = end ?? {};
  if (outcome === "withdrawn")
    return new RequestError("ALREADY_DECIDED", id, `question ${id} was withdrawn: its run has ended. Nothing to do`);
  const text = {
    approved: `${by} approved it`,
    denied: `${by} denied it`,
    timed_out: "no answer came in time",
    decided: "another one decided on it",
  }[outcome];
  return new RequestError(
    "ALREADY_DECIDED",
    id,
    `question ${id} is decided: ${printableLine(text, 200)} (${decidedAt})`,
  );
}

function wrongAnswer({ id, answers }: StoredQuestion, answer: BoardAnswer): RequestError {
  const why =
    answer === "once"
      ? "`once` would have no effect: nothing is done with the answer now"
      : "nothing of this question can be remembered";
  return new RequestError("WRONG_ANSWER", id, `${why}; the answers are: ${answers.join(", ")}`);
}

function approvalOf({ end, ...posted }: StoredQuestion): Approval {
  const { decidedAt = null, outcome = null, scope = null, directory = null, by = null, via = null } = end ?? {};
  return {
    ...posted,
    state: end === null ? "waiting" : "decided",
    decidedAt,
    outcome,
    scope,
    directory,
    by,
    via,
  };
}

function byTime(timeOf: (approval: Approval) => string) {
  return (a: Approval, b: Approval) => (timeOf(a) < timeOf(b) ? -1 : timeOf(a) > timeOf(b) ? 1 : 0);
}

/** What running workers were granted beyond their declarations, in all processes of a state directory; the oldest first. */
export async function listGrants(stateDir: string): Promise<LiveGrant[]> {
  return await listLiveGrants(statePaths(stateDir).live, currentOwner());
}

/**
 * Takes a grant back. Tools lose it at once, and containers that have it are replaced. `asked`: its id, a prefix of it, or
 * `latest`. Answers with the id.
 *
 * @throws RequestError UNKNOWN_GRANT, AMBIGUOUS_ID
 */
export async function revokeGrant(stateDir: string, asked: string): Promise<string> {
  const unknown = () => new RequestError("UNKNOWN_GRANT", asked, noneText("grant", asked));
  const known = (await listGrants(stateDir)).toReversed().map((grant) => ({ id: grant.id, about: aboutGrant(grant) }));
  const id = chosenId(asked, known, unknown);
  if (!(await revokeLiveGrant(statePaths(stateDir).live, currentOwner(), id))) throw unknown();
  return id;
}

/** What a running worker was given without asking for it. */
export interface AddedGrant {
  readonly run: string;
  /** Null: the worker already had it. */
  readonly id: string | null;
  readonly directory: string;
  readonly mode: "read" | "write";
}

/**
 * Grants a directory to a running worker that has not asked for it, by the rules for those that ask. `asked`: the id of its run, a prefix
 * of it, or `latest`. `isOwn`: of the tree of runs with this root; absent: any.
 *
 * @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID, GRANT_REFUSED
 */
export async function addGrant(
  stateDir: string,
  asked: string,
  given: GivenDirectory,
  isOwn: (root: string) => Promise<boolean> = async () => true,
): Promise<AddedGrant> {
  const takers = await takersIn(statePaths(stateDir).live, currentOwner());
  const why = "only a running worker whose file has `dynamic` can be granted more";
  const unknown = () =>
    new RequestError("UNKNOWN_RUN", asked, `${noneText("run", asked)} that can be granted more: ${why}`);
  const about = (at: number): string => `since ${new Date(at).toISOString()}`;
  const known = takers.map(({ run, sinceMs }) => ({ id: run, about: about(sinceMs) }));
  const run = chosenId(asked, known, unknown);
  const taker = takers.find((one) => one.run === run);
  if (taker === undefined || !(await isOwn(taker.root))) throw unknown();
  const answer = await giveDirectory(taker, given, await loadSealKey(stateDir));
  if (answer === null)
    throw new RequestError("GRANT_REFUSED", run, `run ${run} has ended, or its process does not answer`);
  if (answer.granted) return { run, id: answer.id, directory: answer.directory, mode: answer.mode };
  const text = `'${printableLine(given.path, 200)}' was not granted: ${answer.message} (${answer.code})`;
  throw new RequestError("GRANT_REFUSED", run, text);
}

function aboutGrant(grant: LiveGrant): string {
  return `${grant.worker}: ${"to" in grant ? grant.to : grant.directory}, ${grant.grantedAt}`;
}
