import { fileURLToPath } from "node:url";
import type { ElicitRequestFormParams } from "@modelcontextprotocol/server";
import pc from "picocolors";
import { type Answer, type ApprovalRequest, type Approver, type Decision, unasked } from "../../approval/approver.ts";
import { lastingOf, mayBeOnce } from "../../approval/memory.ts";
import { type Board, isShareable, QueuedApprover, type Shareable } from "../../approval/queued-approver.ts";
import { resolveHostPlace } from "../../declarations/place/host-place.ts";
import { type AskedOfPerson, choiceTexts, EVERYTHING, questionText } from "../../operations/wording/question-text.ts";
import type { ClientExchange, ClientToolUse } from "./call.ts";

/** Routes each question to the approver of the session that it comes from, by the root of its tree of runs. */
export class QuestionRoutes implements Approver, Shareable {
  readonly #bySession = new Map<string, Approver>();
  readonly #otherwise: Approver;
  #board: Board | null = null;

  /** `otherwise`: for what comes from no session, or from one that is over. */
  constructor(otherwise: Approver) {
    this.#otherwise = otherwise;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    return await (this.#bySession.get(request.root) ?? this.#otherwise).decide(request, signal);
  }

  shareOn(board: Board): void {
    this.#board = board;
    for (const approver of [...this.#bySession.values(), this.#otherwise]) this.#share(approver);
  }

  /** `root`: the session's run. Answers with how to end it. */
  add(root: string, approver: Approver): () => void {
    this.#share(approver);
    this.#bySession.set(root, approver);
    return () => this.#bySession.delete(root);
  }

  #share(approver: Approver): void {
    if (this.#board !== null && isShareable(approver)) approver.shareOn(this.#board);
  }
}

/** Clients show the text in windows of their own; lines are broken as for a terminal of this width. */
const COLUMNS = 100;
/** A question with a longer text is not asked: a person cannot approve what is not shown. */
const MAX_MESSAGE_CHARS = 100_000;
const PLAIN = pc.createColors(false);

/** What a client answers with; the rest of the protocol's words (decline, cancel) is a no as well. */
const CHOICES = ["deny", "once", "session"] as const;

/**
 * A question as a form that a client shows; null if it is too long to be shown whole. `isShared`: others use the same
 * session, so no approval for the session is offered.
 */
export function questionForm(question: AskedOfPerson, isShared: boolean): ElicitRequestFormParams | null {
  if ((question.diff ?? "").length > MAX_MESSAGE_CHARS) return null;
  const { above, message } = questionText(question, COLUMNS, PLAIN, EVERYTHING);
  const text = [...above, message].join("\n");
  const lasting = !isShared && lastsIn(question);
  const once = mayBeOnce(question);
  if (text.length > MAX_MESSAGE_CHARS) return null;
  const session = choiceTexts(question, 0).find(({ value }) => value === "session")?.label;
  const offered = { deny: true, once, session: lasting };
  const meanings = [
    "deny: no.",
    ...(once ? ["once: yes, for this alone."] : []),
    ...(lasting ? [`session: ${session}, while this connection lasts.`] : []),
  ];
  return {
    mode: "form",
    message: text,
    requestedSchema: {
      type: "object",
      properties: {
        answer: {
          type: "string",
          title: "Answer",
          description: meanings.join(" "),
          enum: CHOICES.filter((choice) => offered[choice]),
          default: "deny",
        },
      },
      required: ["answer"],
    },
  };
}

/** An answer that is not clearly a yes means no. A yes for longer than was offered counts for one use, if that is useful. */
export function answerIn(
  reply: unknown,
  question: AskedOfPerson,
  isShared: boolean,
): Exclude<Answer, "interrupt" | "tree"> {
  const { action, content } = (reply ?? {}) as { action?: unknown; content?: { answer?: unknown } };
  if (action !== "accept") return "no";
  const answer = content?.answer;
  if (answer === "once") return mayBeOnce(question) ? "once" : "no";
  if (answer !== "session" || !lastsIn(question)) return "no";
  if (!isShared) return "session";
  return mayBeOnce(question) ? "once" : "no";
}

function lastsIn(question: AskedOfPerson): boolean {
  return lastingOf(question) !== null;
}

/** Forms that may be open at one client at once. */
const MAX_AT_ONCE = 20;

export interface ClientApproverOptions {
  /** The call that a question comes from, if its client can be asked; null: no client can be asked. */
  readonly callInQuestion: () => ClientToolUse | null;
  /** Shows a form to the person behind a call. */
  readonly ask: (call: ClientToolUse, form: ElicitRequestFormParams, signal: AbortSignal) => Promise<unknown>;
  /** How long one form may be open. */
  readonly timeoutMs: number;
  /** True if the calls are of many clients: each may be a different person, so consent is for one use only. */
  readonly isShared: boolean;
  /** Decides if the client cannot ask a person. */
  readonly otherwise: Approver;
}

/**
 * Asks the person behind a client, by a form that the client shows. The question is the same as at a terminal, and the
 * person can agree to no more. Consent for the session lasts as long as the connection. If the connection is shared,
 * nothing is remembered, and no two calls share a question.
 */
export class ClientApprover implements Approver, Shareable {
  readonly #options: ClientApproverOptions;
  readonly #person: QueuedApprover;
  readonly #persons = new WeakMap<ClientToolUse, QueuedApprover>();
  #board: Board | null = null;

  constructor(options: ClientApproverOptions) {
    this.#options = options;
    this.#person = this.#personBehind(options.callInQuestion);
  }

  shareOn(board: Board): void {
    this.#board = board;
    this.#person.shareOn(board);
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    const { callInQuestion, isShared, otherwise } = this.#options;
    const call = callInQuestion();
    if (call === null) return await otherwise.decide(request, signal);
    return await (isShared ? this.#personOf(call) : this.#person).decide(request, signal);
  }

  #personOf(call: ClientToolUse): QueuedApprover {
    const known = this.#persons.get(call);
    if (known !== undefined) return known;
    const person = this.#personBehind(() => (call.asks ? call : null));
    if (this.#board !== null) person.shareOn(this.#board);
    this.#persons.set(call, person);
    return person;
  }

  #personBehind(callInQuestion: () => ClientToolUse | null): QueuedApprover {
    const { ask, timeoutMs, isShared } = this.#options;
    return new QueuedApprover({
      ask: async (question, signal) => {
        const call = callInQuestion();
        if (call === null) return unasked("the client that could be asked is gone");
        if (isShared && !mayBeOnce(question)) return unasked("it would last, and others share this session");
        const form = questionForm(question, isShared);
        if (form === null) return unasked("it is too long to be shown to the client");
        return answerIn(await ask(call, form, signal), question, isShared);
      },
      timeoutMs,
      atOnce: MAX_AT_ONCE,
      who: "the person at the client",
      at: "client",
      onceOnly: isShared,
    });
  }
}

/** For the mode `interactive`, if neither the client nor a terminal can ask a person. */
export const nobodyAsks: Approver = {
  decide: async () => unasked("the approval mode is interactive, and the client offers no way to ask a person"),
};

/** Further roots of one client are ignored. */
const MAX_ROOTS = 100;
const MAX_URI_CHARS = 8192;

/** The host directories that a client's roots name. */
interface RootPlaces {
  /** Real, without links; sorted. */
  readonly hosts: readonly string[];
  /** How many roots are not directories of this machine, or exceed the limit. */
  readonly unusable: number;
}

/** Looks each root up once. A root that is not a directory grants nothing: roots only restrict. */
async function rootPlaces(uris: readonly string[]): Promise<RootPlaces> {
  const places = await Promise.all(uris.slice(0, MAX_ROOTS).map(rootPath));
  const hosts = [...new Set(places.filter((place) => place !== null))].sort();
  const usable = places.filter((place) => place !== null).length;
  return { hosts, unusable: uris.length - usable };
}

async function rootPath(uri: string): Promise<string | null> {
  const path = uri.length > MAX_URI_CHARS ? null : pathOf(uri);
  if (path === null) return null;
  // A root that cannot be looked up for any other reason is ignored too.
  const place = await resolveHostPlace("/", path).catch(() => null);
  return place?.ok && place.directory ? place.host : null;
}

function pathOf(uri: string): string | null {
  try {
    const url = new URL(uri);
    if (url.protocol !== "file:" || (url.hostname !== "" && url.hostname !== "localhost")) return null;
    url.hostname = "";
    const path = fileURLToPath(url);
    return path.includes("\0") ? null : path;
  } catch {
    return null;
  }
}

/** The roots of one client. Corral asks for them when a request first needs them, and again if the client reports a change. */
export class ClientRoots {
  readonly #isHonoured: boolean;
  readonly #tell: (line: string) => void;
  #hosts: Promise<readonly string[] | null> | null = null;
  /** A client that never named a root restricts nothing. A client that did, and now names none, has removed all access. */
  #hasNamed = false;
  /** How often they have changed. */
  #changes = 0;
  #isAsking = false;

  constructor(options: { readonly isHonoured: boolean; readonly tell: (line: string) => void }) {
    this.#isHonoured = options.isHonoured;
    this.#tell = options.tell;
  }

  /**
   * Real host directories; null if the client has no roots. Rejects if it has some and does not send them: what they
   * exclude is then unknown.
   */
  async current({ push, signal }: Pick<ClientExchange, "push" | "signal">): Promise<readonly string[] | null> {
    if (!this.#isHonoured) return null;
    if (this.#hosts !== null) return await this.#hosts;
    const ask = push?.roots ?? null;
    const hosts = ask === null ? Promise.resolve(null) : this.#lookedUp(ask(signal));
    this.#hosts = hosts;
    try {
      return await hosts;
    } catch (error) {
      if (this.#hosts === hosts) this.#hosts = null;
      throw error;
    }
  }

  /**
   * Drops the roots that were sent before. `ask`: requests the new ones at once. Null if that failed (the next request that
   * needs roots asks again), or if such a request was quicker. Null also while this question is open: however often the roots
   * change meanwhile, Corral asks once more.
   */
  async changed(ask: () => Promise<readonly string[]>): Promise<readonly string[] | null> {
    if (!this.#isHonoured) return null;
    this.#hosts = null;
    this.#changes += 1;
    if (this.#isAsking) return null;
    this.#isAsking = true;
    const uris = await this.#latest(ask).finally(() => {
      this.#isAsking = false;
    });
    if (uris === null || this.#hosts !== null) return null;
    const hosts = this.#lookedUp(Promise.resolve(uris));
    this.#hosts = hosts;
    return await hosts;
  }

  /** Ignores an answer to a question from before the last change. */
  async #latest(ask: () => Promise<readonly string[]>): Promise<readonly string[] | null> {
    for (;;) {
      const change = this.#changes;
      const uris = await ask().catch(() => null);
      if (change === this.#changes) return uris;
    }
  }

  async #lookedUp(asked: Promise<readonly string[]>): Promise<readonly string[] | null> {
    const uris = await asked;
    this.#hasNamed ||= uris.length > 0;
    if (!this.#hasNamed) return null;
    const { hosts, unusable } = await rootPlaces(uris);
    if (unusable > 0) this.#tell(`${unusable} of the client's roots are no directories of this machine.`);
    return hosts;
  }
}
