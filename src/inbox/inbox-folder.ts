import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import fs, { constants, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import type { ApprovalScope, Decision, Question } from "../approval/approver.ts";
import type { AskedAt, BoardAnswer } from "../approval/queued-approver.ts";
import { hasCode, nullFor } from "../platform/errno.ts";
import { openRegularNow } from "../platform/write-file.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../state/owner.ts";
import { projectMark } from "../state/state-dir.ts";
import { lookAlikeTexts } from "../text/look-alike.ts";

/** A question in the inbox, as the process that asks it has written it. Only that process changes it, and only which runs wait for it. */
export interface PostedQuestion {
  /** 12 hex digits. */
  readonly id: string;
  /** The folder of the project: absolute, without symbolic links. */
  readonly project: string;
  /** Of everything that is shown: a decision names it. */
  readonly digest: string;
  /** ISO 8601. */
  readonly askedAt: string;
  /** Where else it is asked; `board`: nowhere. */
  readonly at: AskedAt;
  readonly answers: readonly BoardAnswer[];
  /** Without an answer for so long it is denied. Null: by a version of Corral that did not say it. */
  readonly timeoutMs: number | null;
  readonly question: Question;
  /** What of the names in it may be taken for something else, in words: found once, and not for each who looks. */
  readonly lookAlike: readonly string[];
}

/** How a question has ended. It is written once, and never changed. */
export interface QuestionEnd {
  /** Of the question as it was shown to the one who decided. */
  readonly digest: string;
  /** ISO 8601. */
  readonly decidedAt: string;
  readonly outcome: Decision["outcome"] | "withdrawn";
  readonly scope: ApprovalScope | null;
  /** For a grant: the directory that was chosen in place of the requested one. */
  readonly directory: string | null;
  /** Null: no user, since no answer came in time or the run has ended. */
  readonly by: string | null;
  /** Where it was decided: where it was asked, with `corral approvals`, or by a client of the service. */
  readonly via: Exclude<AskedAt, "board"> | "command" | "service" | null;
}

export interface StoredQuestion extends PostedQuestion {
  /** Null: it waits. */
  readonly end: QuestionEnd | null;
}

/** A place in the order of a list: a time, and the id of a question of that time. */
export const APPROVAL_CURSOR = /^(\d{1,15}(?:\.\d{1,9})?)-([0-9a-f]{12})$/;

/** Of one question, and not of another one that shows the same. */
function questionDigest(id: string, question: Question): string {
  return createHash("sha256")
    .update(`${id}\n${JSON.stringify(question)}`)
    .digest("hex");
}

/** Names the owner for those who look whether it is alive. */
interface QuestionFile
  extends Omit<PostedQuestion, "lookAlike" | "timeoutMs">,
    Partial<Pick<PostedQuestion, "lookAlike" | "timeoutMs">> {
  readonly owner: string;
}

type Kind = "question" | "end";

/** What a file of the inbox holds. The seal is for this kind and this id: no file can take the place of another one. */
function sealedText(key: Buffer, kind: Kind, id: string, value: QuestionFile | QuestionEnd): string {
  const json = JSON.stringify(value);
  return `${sealOf(key, kind, id, json)}\n${json}\n`;
}

/** Null: not exactly what a process with this key has written. */
function unsealedText(key: Buffer, kind: "question", id: string, text: string): QuestionFile | null;
function unsealedText(key: Buffer, kind: "end", id: string, text: string): QuestionEnd | null;
function unsealedText(key: Buffer, kind: Kind, id: string, text: string): QuestionFile | QuestionEnd | null {
  // `s`: JSON.stringify leaves U+2028 and U+2029 as they are, and a worker chooses its texts.
  const [, seal = "", json = ""] = /^([0-9a-f]{64})\n(.*)\n$/s.exec(text) ?? [];
  const expected = Buffer.from(sealOf(key, kind, id, json));
  const given = Buffer.from(seal);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
  return JSON.parse(json) as QuestionFile | QuestionEnd;
}

function sealOf(key: Buffer, kind: Kind, id: string, json: string): string {
  return createHmac("sha256", key).update(`inbox\0${kind}\0${id}\0${json}`).digest("hex");
}

/** Questions of one project that may wait. */
const MAX_WAITING = 1000;
/** Of one question, with its diff, in JSON. One that is larger is only asked where it came up. */
const MAX_QUESTION_BYTES = 8 * 1024 ** 2;
const MAX_END_BYTES = 64 * 1024;
/** Decided questions that are kept, to say who decided and what was shown; the oldest are removed. */
const MAX_DECIDED = 500;
const MAX_DECIDED_BYTES = 128 * 1024 ** 2;
/** So many more may be there before any is removed. */
const PRUNE_EVERY = 50;
/** The most entries of the folder that are read. */
const MAX_ENTRIES = 10_000;
/** A draft is there for a moment, unless its process was killed. */
const DRAFT_MS = 60_000;

const QUESTION = /^([0-9a-f]{12})\.question$/;
const END = /^([0-9a-f]{12})\.end$/;
const DRAFT = /^draft\.[0-9a-f]{16}$/;

export interface InboxPlace {
  /** Named by the mark of the project. */
  readonly dir: string;
  /** See `loadSealKey`. */
  readonly key: Buffer;
  readonly self: Owner;
}

/**
 * The questions of one project, as files that every process of this user can read. A question ends by a second file, whose name
 * is given to it with one link: of several processes that decide at once, one succeeds. Both files are complete from their
 * first moment, and sealed. All is done at once, so that nothing comes between looking and deciding.
 */
export class InboxFolder {
  readonly #place: InboxPlace;

  constructor(place: InboxPlace) {
    this.#place = place;
  }

  get path(): string {
    return this.#place.dir;
  }

  /** Makes the folder if it is missing. Throws if it is anything else than a folder of this user alone. */
  make(): void {
    const { dir } = this.#place;
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    const { uid, mode, isDir } = statOf(dir);
    if (!isDir || uid !== process.geteuid?.() || (mode & 0o077) !== 0)
      throw new Error(`${dir} must be a directory of your own with mode 0700; remove it`);
  }

  /** Null if the project has too many questions that wait, or if this one is too large. */
  post(asked: Omit<PostedQuestion, "id" | "digest" | "lookAlike">): PostedQuestion | null {
    const names = this.#names();
    if (names.waiting.length >= MAX_WAITING) return null;
    if (names.ended.length > MAX_DECIDED + PRUNE_EVERY) this.#prune();
    const id = randomBytes(6).toString("hex");
    const posted = { ...asked, id, digest: questionDigest(id, asked.question), lookAlike: lookAlikeIn(asked.question) };
    const text = sealedText(this.#place.key, "question", id, { ...posted, owner: formatOwner(this.#place.self) });
    if (Buffer.byteLength(text) > MAX_QUESTION_BYTES || !this.#give(`${id}.question`, text)) return null;
    return posted;
  }

  /**
   * The same question for other runs, which has another digest. It keeps its place in the order of those that wait. Null if it is too
   * large now. Who has read it just before can still end it, as it was: see `QuestionEnd.digest`.
   */
  change(posted: PostedQuestion, question: PostedQuestion["question"]): PostedQuestion | null {
    const { dir, key, self } = this.#place;
    const changed = { ...posted, question, digest: questionDigest(posted.id, question) };
    const text = sealedText(key, "question", posted.id, { ...changed, owner: formatOwner(self) });
    if (Buffer.byteLength(text) > MAX_QUESTION_BYTES) return null;
    const path = join(dir, `${posted.id}.question`);
    const { atimeMs, mtimeMs } = fs.lstatSync(path);
    const draft = this.#draft(text);
    fs.utimesSync(draft, atimeMs / 1000, mtimeMs / 1000);
    fs.renameSync(draft, path);
    return changed;
  }

  /** Ends a question; false if it has ended already. */
  end(id: string, end: QuestionEnd): boolean {
    return this.#give(`${id}.end`, sealedText(this.#place.key, "end", id, end));
  }

  /** Null: it waits. Undefined: what is there was not written by Corral. */
  endOf(id: string): QuestionEnd | null | undefined {
    const text = this.#read(`${id}.end`, MAX_END_BYTES);
    return text === null ? null : (unsealedText(this.#place.key, "end", id, text) ?? undefined);
  }

  /** Null if there is none, or if it cannot be trusted. One whose process has ended is withdrawn now. */
  find(id: string): StoredQuestion | null {
    const text = this.#read(`${id}.question`, MAX_QUESTION_BYTES);
    const file = text === null ? null : unsealedText(this.#place.key, "question", id, text);
    if (file === null || file.digest !== questionDigest(id, file.question)) return null;
    if (projectMark(file.project) !== basename(this.#place.dir)) return null;
    // A version of Corral before this one named one run, and compared no names.
    const { owner, lookAlike = lookAlikeIn(file.question), timeoutMs = null, ...rest } = file;
    const { waiting = [{ run: rest.question.run, root: rest.question.root }] } = rest.question as Partial<Question>;
    const posted = { ...rest, lookAlike, timeoutMs, question: { ...rest.question, waiting } };
    const end = this.endOf(id);
    if (end === undefined) return null;
    if (end !== null || !this.#isDead(owner)) return { ...posted, end };
    this.end(id, withdrawn(file));
    return { ...posted, end: this.endOf(id) ?? null };
  }

  /** The ids of those that wait; some of them may be of processes that have ended. */
  waiting(): readonly string[] {
    return this.#names().waiting;
  }

  /** Those that wait, the oldest first; or those that have ended, the newest first: with what reading them takes. */
  sized(state: "waiting" | "decided"): readonly { readonly id: string; readonly bytes: number; readonly at: number }[] {
    if (state === "decided") return this.#byEnd();
    const found = this.waiting().flatMap((id) => {
      const file = fs.lstatSync(join(this.#place.dir, `${id}.question`), { throwIfNoEntry: false });
      return file === undefined ? [] : [{ id, bytes: Math.min(file.size, MAX_QUESTION_BYTES), at: file.mtimeMs }];
    });
    return found.sort((a, b) => a.at - b.at);
  }

  /** The ids of those that have ended, the newest first. */
  ended(): readonly string[] {
    return this.#byEnd().map(({ id }) => id);
  }

  /** Ends what was asked by processes that have ended, and removes what is too much. */
  tidy(): void {
    for (const id of this.waiting())
      if (this.find(id) === null && this.#isAbandoned(id)) this.end(id, withdrawn({ digest: "" }));
    this.#prune();
  }

  #prune(): void {
    let bytes = 0;
    for (const [index, one] of this.#byEnd().entries()) {
      bytes += one.bytes;
      if (index < MAX_DECIDED && bytes <= MAX_DECIDED_BYTES) continue;
      // A question without its end would seem to wait.
      for (const name of [`${one.id}.question`, `${one.id}.end`])
        fs.rmSync(join(this.#place.dir, name), { force: true, recursive: true });
    }
    for (const name of this.#entries().filter((one) => DRAFT.test(one))) {
      const path = join(this.#place.dir, name);
      const { mtimeMs = Date.now() } = fs.lstatSync(path, { throwIfNoEntry: false }) ?? {};
      if (Date.now() - mtimeMs > DRAFT_MS) fs.rmSync(path, { force: true });
    }
  }

  #byEnd(): { readonly id: string; readonly bytes: number; readonly at: number }[] {
    const found = this.#names().ended.flatMap((id) => {
      const end = fs.lstatSync(join(this.#place.dir, `${id}.end`), { throwIfNoEntry: false });
      const question = fs.lstatSync(join(this.#place.dir, `${id}.question`), { throwIfNoEntry: false });
      return end === undefined ? [] : [{ id, bytes: end.size + (question?.size ?? 0), at: end.mtimeMs }];
    });
    return found.sort((a, b) => b.at - a.at);
  }

  #names(): { readonly waiting: readonly string[]; readonly ended: readonly string[] } {
    const entries = this.#entries();
    const ended = entries.flatMap((name) => END.exec(name)?.[1] ?? []);
    const over = new Set(ended);
    const asked = entries.flatMap((name) => QUESTION.exec(name)?.[1] ?? []);
    return { waiting: asked.filter((id) => !over.has(id)), ended };
  }

  #entries(): readonly string[] {
    try {
      return fs.readdirSync(this.#place.dir).slice(0, MAX_ENTRIES);
    } catch (error) {
      return nullFor("ENOENT")(error) ?? [];
    }
  }

  /** Of a question that cannot be read: no process that lives claims it. The claim is not sealed, and only keeps it waiting. */
  #isAbandoned(id: string): boolean {
    const owner = /"owner":"([^"\\]{1,200})"\}\n$/.exec(
      (this.#read(`${id}.question`, MAX_QUESTION_BYTES) ?? "").slice(-300),
    );
    return owner === null || this.#isDead(owner[1] ?? "");
  }

  #isDead(owner: string): boolean {
    const parsed = parseOwner(owner);
    return parsed === null || isDead(parsed, this.#place.self);
  }

  /** Null: there is none, or nothing that Corral would have written there. */
  #read(name: string, maxBytes: number): string | null {
    try {
      using file = openRegularNow(join(this.#place.dir, name), constants.O_RDONLY);
      return file.size > maxBytes ? "" : fs.readFileSync(file.fd, "utf8");
    } catch (error) {
      if (hasCode(error, "ENOENT")) return null;
      // A link, a folder or a device: an end that cannot be read must not count as none.
      return "";
    }
  }

  /** A file that is complete under its name; false if the name is taken. */
  #give(name: string, text: string): boolean {
    const draft = this.#draft(text);
    try {
      fs.linkSync(draft, join(this.#place.dir, name));
      return true;
    } catch (error) {
      return nullFor("EEXIST")(error) ?? false;
    } finally {
      fs.rmSync(draft, { force: true });
    }
  }

  #draft(text: string): string {
    const draft = join(this.#place.dir, `draft.${randomBytes(8).toString("hex")}`);
    fs.writeFileSync(draft, text, { mode: 0o600, flag: "wx" });
    return draft;
  }
}

function lookAlikeIn({ to, directory, paths }: Question): string[] {
  return lookAlikeTexts([to ?? "", directory ?? "", ...paths]);
}

export function withdrawn({ digest }: Pick<QuestionFile, "digest">): QuestionEnd {
  const decidedAt = new Date().toISOString();
  return { digest, decidedAt, outcome: "withdrawn", scope: null, directory: null, by: null, via: null };
}

function statOf(dir: string) {
  const found = fs.lstatSync(dir);
  return { uid: found.uid, mode: found.mode, isDir: found.isDirectory() };
}

const MARK = /^[0-9a-f]{16}$/;
const MAX_PROJECTS = 10_000;

/** The names of the projects' folders in an inbox; none if it does not exist. */
export function inboxFolders(dir: string): readonly string[] {
  try {
    return readdirSync(dir)
      .filter((name) => MARK.test(name))
      .slice(0, MAX_PROJECTS);
  } catch (error) {
    return nullFor("ENOENT")(error) ?? [];
  }
}
