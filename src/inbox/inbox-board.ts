import { existsSync, type FSWatcher, watch } from "node:fs";
import { join } from "node:path";
import { type Decision, denied, type Question } from "../approval/approver.ts";
import type { Board, DecidedThere, Posted, PostOptions } from "../approval/queued-approver.ts";
import { InboxFolder, type InboxPlace, type PostedQuestion, type QuestionEnd, withdrawn } from "./inbox-folder.ts";

/** While a question waits: inotify may lose events. */
const LOOK_MS = 2000;
/** If the folder cannot be watched, because the kernel has no watches left. */
const POLL_MS = 500;
/** Of one question, as it was shown before other runs waited for it: who has read it then may decide in the same moment. */
const MAX_EARLIER = 16;

interface Waiting {
  readonly posted: PostedQuestion;
  /** The newest first. */
  readonly earlier: readonly PostedQuestion[];
  readonly options: PostOptions;
  readonly decided: (end: DecidedThere) => void;
}

/**
 * Puts this process's questions of one project into the inbox, where others decide on them. Nothing is watched or
 * read while no question waits. An answer counts only if it is about exactly what this process has asked.
 */
export class InboxBoard implements Board, Disposable {
  readonly #project: string;
  readonly #place: () => InboxPlace;
  readonly #onTrouble: (error: Error) => void;
  readonly #waiting = new Map<string, Waiting>();
  #folder: InboxFolder | null = null;
  #watcher: FSWatcher | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** `project`: its folder. `place`: asked at the first question. `onTrouble`: a question could not be written; it is still asked where it came up. */
  constructor(project: string, place: () => InboxPlace, onTrouble: (error: Error) => void) {
    this.#project = project;
    this.#place = place;
    this.#onTrouble = onTrouble;
  }

  post(question: Question, options: PostOptions, decided: (end: DecidedThere) => void): Posted | null {
    try {
      const folder = this.#opened();
      this.#watch(folder);
      const { answers, at, timeoutMs } = options;
      const askedAt = new Date().toISOString();
      const posted = folder.post({ project: this.#project, askedAt, at, answers, timeoutMs, question });
      if (posted === null) {
        this.#rest();
        return null;
      }
      this.#waiting.set(posted.id, { posted, earlier: [], options, decided });
      return {
        id: posted.id,
        change: (changed) => this.#change(posted.id, changed),
        settle: (decision) => this.#settle(posted.id, decision),
        withdraw: () => this.#withdraw(posted.id),
      };
    } catch (error) {
      this.#rest();
      this.#onTrouble(error as Error);
      return null;
    }
  }

  /** Withdraws what still waits. */
  [Symbol.dispose](): void {
    for (const id of [...this.#waiting.keys()]) this.#withdraw(id);
  }

  #opened(): InboxFolder {
    if (this.#folder !== null) return this.#folder;
    const folder = new InboxFolder(this.#place());
    folder.make();
    folder.tidy();
    this.#folder = folder;
    return folder;
  }

  #change(id: string, question: Question): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    const { posted, earlier } = waiting;
    try {
      const changed = this.#opened().change(posted, question);
      if (changed === null) return;
      this.#waiting.set(id, { ...waiting, posted: changed, earlier: [posted, ...earlier].slice(0, MAX_EARLIER) });
    } catch (error) {
      this.#onTrouble(error as Error);
    }
  }

  #settle(id: string, decision: Decision): DecidedThere | null {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return null;
    const { posted, options } = waiting;
    const { outcome, scope, directory = null } = decision;
    const isAnswer = outcome !== "timed_out";
    const end: QuestionEnd = {
      digest: posted.digest,
      decidedAt: new Date().toISOString(),
      outcome,
      scope: outcome === "approved" ? scope : null,
      directory,
      by: isAnswer ? options.by : null,
      via: isAnswer && options.at !== "board" ? options.at : null,
    };
    this.#forget(id);
    try {
      if (this.#opened().end(id, end)) return null;
      return this.#endIn(waiting) ?? { decision: GONE, question: posted.question };
    } catch (error) {
      // Another one may have decided, which cannot be known now.
      this.#onTrouble(error as Error);
      return { decision: denied("the decision could not be recorded in the inbox"), question: posted.question };
    }
  }

  #withdraw(id: string): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#forget(id);
    try {
      this.#opened().end(id, withdrawn(waiting.posted));
    } catch (error) {
      this.#onTrouble(error as Error);
    }
  }

  #look(): void {
    const { path } = this.#opened();
    for (const [id, waiting] of [...this.#waiting]) {
      if (!existsSync(join(path, `${id}.end`))) continue;
      const end = this.#endIn(waiting);
      if (end === null || !this.#waiting.has(id)) continue;
      this.#forget(id);
      waiting.decided(end);
    }
  }

  /** What another process decided, and on what; null: nothing. What is kept of the question is what that user saw. */
  #endIn({ posted, earlier, options }: Waiting): DecidedThere | null {
    const folder = this.#opened();
    const end = folder.endOf(posted.id);
    if (end === null) return null;
    const before = earlier.find(({ digest }) => digest === end?.digest);
    const shown = end?.digest === posted.digest ? posted : (before ?? posted);
    if (shown !== posted) folder.change(shown, shown.question);
    return { decision: decisionIn(end, shown, options), question: shown.question };
  }

  #forget(id: string): void {
    this.#waiting.delete(id);
    this.#rest();
  }

  #watch(folder: InboxFolder): void {
    if (this.#timer !== null) return;
    const look = (ms: number): void => {
      if (this.#timer !== null) clearInterval(this.#timer);
      this.#timer = setInterval(() => this.#look(), ms).unref();
    };
    look(LOOK_MS);
    try {
      this.#watcher = watch(folder.path, { persistent: false }, (event, name) => {
        if (event === "rename" && (name === null || name.endsWith(".end"))) this.#look();
      });
      this.#watcher.on("error", () => look(POLL_MS));
    } catch {
      look(POLL_MS);
    }
  }

  #rest(): void {
    if (this.#waiting.size > 0) return;
    this.#watcher?.close();
    this.#watcher = null;
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }
}

const FORGED = denied("the answer in the inbox is not sealed by Corral, or is for another question");
const GONE = denied("another one decided on it in the inbox, but that answer is not there any more");

/** What an end of another process means here. Whatever is not clearly an answer to this question denies. */
function decisionIn(end: QuestionEnd | undefined, posted: PostedQuestion, options: PostOptions): Decision {
  if (end === undefined || end.digest !== posted.digest) return FORGED;
  const { outcome, scope, directory, by, via } = end;
  if (outcome === "timed_out") return { outcome, scope: "once", reason: "no answer came in time" };
  if (by === null || outcome === "withdrawn") return denied("the question was withdrawn in the inbox");
  const how = { service: "through the service", command: "with `corral approvals`" }[String(via)] ?? "in the inbox";
  if (outcome === "denied") return { ...denied(`${by} denied it ${how}`), by };
  const { question } = posted;
  const isOffered = directory === null || directory === question.directory || question.wider?.includes(directory);
  if (scope === null || scope === "session" || !options.answers.includes(scope) || !isOffered) return FORGED;
  const chosen = directory === null ? {} : { directory };
  return { outcome, scope, reason: `${by} approved it ${how}`, by, ...chosen };
}
