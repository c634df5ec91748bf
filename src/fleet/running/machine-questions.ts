import { type ApprovalOperation, type ApprovalRequest, type Decision, denied } from "../../approval/approver.ts";
import { checkedPath } from "../../approval/memory.ts";
import { decideShell } from "../../approval/shell-rules/decide.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { bugText } from "../../platform/errno.ts";
import { callConsent } from "../../run/calls/call.ts";
import { judgeHost } from "../../run/grants/request-host.ts";
import { permissionOf } from "../../run/model/permission.ts";
import { consentTo, governingMount } from "../../sandbox/access.ts";
import { consentOf } from "../../sandbox/approval.ts";
import { type Sandbox, withheldAt } from "../../sandbox/sandbox.ts";
import { type FleetJob, itemJob } from "../items/item-job.ts";
import type { AskedElsewhere, QuestionName, UnreadQuestion, WorkStore } from "../model/work.ts";
import { answerText, parsedQuestion, type WireQuestion } from "../stored/rows.ts";

/** One run of the chain from the item's own run to the one that asks, as it would be here. */
interface Level {
  readonly worker: WorkerDefinition;
  readonly sandbox: Sandbox;
  /** Its caller took something away for it. */
  readonly limited: boolean;
}

export type JudgedQuestion =
  | { readonly ok: true; readonly request: ApprovalRequest }
  /** Why no run of this item asks that. */
  | { readonly ok: false; readonly why: string };

/**
 * What a machine says that a run of an item asks, as a question for this process's approver. All that can be derived here is: whose it is,
 * which workers are on the way, what these may do. Texts such as a command are the machine's word, as they are a worker's at home.
 */
export async function judgedQuestion(asked: AskedElsewhere, fleet: FleetJob): Promise<JudgedQuestion> {
  const question = parsedQuestion(asked.json);
  if (question === null) return refused("its text is not that of a question");
  const chain = await chainOf(question, asked, fleet);
  if (typeof chain === "string") return refused(chain);
  const why = whyNot(question, chain, fleet.caller);
  if (why !== null) return refused(why);
  // Nested runs are known to the machine alone, and it could name those of other items.
  const of = { run: asked.run, root: asked.run, machine: asked.machine };
  return { ok: true, request: { ...saidBy(question), ...reachedIn(question, chain), ...of } };
}

function refused(why: string): JudgedQuestion {
  return { ok: false, why };
}

type Subject = Exclude<keyof WireQuestion, "worker" | "through" | "operations" | "why">;

/**
 * What a question of an operation is about. Another field could show the user one thing and have another remembered: a call with a
 * command is shown as the command.
 */
const SUBJECTS: Partial<Record<ApprovalOperation, readonly Subject[]>> = {
  exec: ["command", "line", "paths"],
  call: ["callee", "input", "paths"],
  grant_network: ["to"],
  read: ["paths"],
  write: ["paths", "diff"],
  delete: ["paths", "diff"],
};

const OF_EACH: readonly (keyof WireQuestion)[] = ["worker", "through", "operations", "why"];

/** The first field of a question that one with these subjects does not have. */
function strangeField(question: WireQuestion, subjects: readonly Subject[]): string | null {
  const known = new Set<string>([...OF_EACH, ...subjects]);
  const said = Object.entries(question).filter(([, value]) => value !== undefined && !isEmptyList(value));
  return said.find(([name]) => !known.has(name))?.[0] ?? null;
}

/** The question, with nothing but what it may have. */
function saidBy(question: WireQuestion): Omit<ApprovalRequest, "run" | "root"> {
  const { worker, operations, paths } = question;
  const names = [...OF_EACH, ...operations.flatMap((operation) => SUBJECTS[operation] ?? [])];
  const said = names.flatMap((name) => (question[name] === undefined ? [] : [[name, question[name]]]));
  return { ...Object.fromEntries(said), worker, operations, paths };
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

/** The workers from the item's own down to the one that asks, each as the one before may call it; or why there is none. */
async function chainOf(
  { worker: asking, through = [asking] }: WireQuestion,
  { request, run, fleet: id }: AskedElsewhere,
  fleet: FleetJob,
): Promise<readonly Level[] | string> {
  const { env } = fleet;
  const never = { signal: NEVER, turn: async () => {} };
  const job = itemJob(fleet, request, { run, fleet: id, ...never });
  const [first, ...called] = through;
  if (first !== job.worker.name) return `the item is of worker ${job.worker.name}`;
  if (through.at(-1) !== asking) return `worker ${asking} is not the last of those that it was called through`;
  if (new Set(through).size < through.length) return "a worker is twice in the chain of calls";
  if (through.length > job.tree.maxDepth) return `the chain of calls is longer than ${job.tree.maxDepth}`;
  const own = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
  if (!own.ok) return "its sandbox is no longer allowed";
  const chain: Level[] = [{ worker: job.worker, sandbox: own.sandbox, limited: job.narrow !== null }];
  for (const name of called) {
    const caller = chain.at(-1);
    const worker = env.project.workers.get(name);
    if (caller === undefined || worker === undefined || !caller.worker.calls.includes(name))
      return `worker ${caller?.worker.name} does not call ${name}`;
    const derived = await permissionOf(worker, caller.sandbox, null, env);
    if (!derived.ok) return `worker ${name} is not allowed under ${caller.worker.name}`;
    chain.push({ worker, sandbox: derived.sandbox, limited: false });
  }
  return chain;
}

/** Null if the last of the chain may ask this. */
function whyNot(question: WireQuestion, chain: readonly Level[], project: Sandbox): string | null {
  const asking = chain.at(-1);
  if (asking === undefined) throw new RangeError("a chain has at least the item's own run");
  const [operation, ...more] = new Set(question.operations);
  if (operation === undefined) return "no operation is named";
  const isChange = [operation, ...more].every((one) => one === "write" || one === "delete");
  if (more.length > 0 && !isChange) return "no question has these operations together";
  const subjects = SUBJECTS[operation];
  if (subjects === undefined) return `${operation} is not possible on another machine`;
  const strange = strangeField(question, subjects);
  if (strange !== null) return `a question of the operation ${operation} has no \`${strange}\``;
  if (isChange)
    return chain.length === 1 ? "what the item itself changes is decided on at its end" : whyNoChange(question, asking);
  switch (operation) {
    case "exec":
      return whyNoCommand(question, asking);
    case "call":
      return whyNoCall(question, asking);
    case "grant_network":
      return whyNoHost(question, chain, project);
    case "read":
      return whyNoReading(question, asking);
    default:
      throw new RangeError(`no rule judges a question of the operation ${operation}`);
  }
}

function whyNoCommand({ command, line }: WireQuestion, { worker }: Level): string | null {
  if (command === undefined || line === undefined) return "no command is named";
  // Rules decide on one, and the user sees the other.
  if (command !== line && !command.startsWith(`${line}\n(`)) return "what is shown is not what would run";
  return decideShell(line, worker.shellRules).consent === "blocked" ? "the command is blocked" : null;
}

function whyNoCall({ callee = "" }: WireQuestion, { worker, sandbox }: Level): string | null {
  if (!worker.calls.includes(callee)) return `worker ${worker.name} does not call ${callee}`;
  const { consent } = callConsent(worker, sandbox);
  return consent === "ask" ? null : `the call is ${consent}`;
}

function whyNoHost({ to }: WireQuestion, chain: readonly Level[], project: Sandbox): string | null {
  if (to === undefined) return "no host is named";
  const levels = chain.map((level) => ({ ...level, hosts: new Set<string>() }));
  const judged = judgeHost(to, levels, project);
  if (!judged.ok) return judged.refusal.because;
  return judged.had ? "it already reaches this host" : null;
}

function whyNoReading({ paths }: WireQuestion, { sandbox }: Level): string | null {
  const [path = "", ...more] = paths;
  const asked = checkedPath(path);
  const waiting = asked === null || more.length > 0 ? undefined : withheldAt(sandbox, asked);
  if (waiting === undefined) return "reading there needs no approval";
  return consentOf(waiting.approval, "read") === "blocked" ? "reading is blocked there" : null;
}

/** Of a called worker: what it writes goes to the view of its caller, on that machine. */
function whyNoChange({ operations, paths }: WireQuestion, { sandbox }: Level): string | null {
  if (paths.length === 0) return "no path is named";
  for (const each of paths) {
    const path = checkedPath(each);
    if (path === null || governingMount(sandbox, path)?.mode !== "rw") return `${each.slice(0, 200)} is not writable`;
    for (const operation of operations)
      if ((operation === "write" || operation === "delete") && consentTo(sandbox, path, operation) === "blocked")
        return `${operation} is blocked at ${each.slice(0, 200)}`;
  }
  return null;
}

/** The most hosts that a question names as reached already. */
const MAX_REACHED = 20;

function reachedIn({ to }: WireQuestion, chain: readonly Level[]): Pick<ApprovalRequest, "reaches"> {
  if (to === undefined) return {};
  const network = chain.at(-1)?.sandbox.network;
  const allow = network === undefined || typeof network === "boolean" ? [] : network.allow;
  return { reaches: [...new Set(allow.map((host) => host.to))].slice(0, MAX_REACHED) };
}

const NEVER = new AbortController().signal;

/** Decides on questions of machines as on those of runs of this process: rules, mode, approver, inbox, audit trail. */
export function decidedHere(job: FleetJob, onTrouble: (detail: string) => void) {
  return async (asked: AskedElsewhere, signal: AbortSignal): Promise<Decision> => {
    const judged = await judgedQuestion(asked, job);
    if (judged.ok) return await job.env.approver.decide(judged.request, signal);
    // A machine may ask for ever: one line for each attempt is enough.
    if (asked.number === 0)
      onTrouble(`machine ${asked.machine} asks what item ${asked.request.key} may not ask: ${judged.why}`);
    return denied(`its coordinator refuses the question: ${judged.why}`);
  };
}

interface QuestionParts {
  /** The fleet, which this process owns. */
  readonly id: string;
  readonly work: Pick<WorkStore, "questions" | "readQuestions" | "answer">;
  /** Judges a question, and has it decided on. */
  readonly decide: (asked: AskedElsewhere, signal: AbortSignal) => Promise<Decision>;
  readonly onTrouble: (detail: string) => void;
}

/** Questions of machines that wait here at once, and their bytes; the others wait in the store. A larger one waits alone. */
const MAX_OPEN = 1000;
const MAX_OPEN_BYTES = 32 * 1024 ** 2;

/** A question that waits here, or whose answer the store may not have yet. */
interface Open {
  readonly bytes: number;
  readonly ends: AbortController;
  /** What was decided; it is decided once, and sent until the store no longer lists the question. */
  answer: string | null;
  isSending: boolean;
  /** The last look that had begun when the answer was sent; 0: none was. It may list the question although it is answered. */
  sentIn: number;
}

/** Questions of runs on machines: each is decided on here once, and withdrawn here if its run does not wait any more. */
export class QuestionsElsewhere {
  readonly #parts: QuestionParts;
  readonly #open = new Map<string, Open>();
  readonly #answering = new Set<Promise<void>>();
  #looks = 0;

  constructor(parts: QuestionParts) {
    this.#parts = parts;
  }

  /** Rejects if the store does not answer; what is open here stays. */
  async look(): Promise<void> {
    const { id, work } = this.#parts;
    this.#looks += 1;
    const look = this.#looks;
    const waiting = await work.questions(id, MAX_OPEN);
    this.#see(new Map(waiting.map((one) => [questionKey(one), one])), look);
    const next = this.#next(waiting);
    if (next.length === 0) return;
    const sizes = new Map(next.map((one) => [questionKey(one), one.bytes]));
    for (const asked of await work.readQuestions(id, next)) this.#begin(asked, sizes.get(questionKey(asked)) ?? 0);
  }

  /** Withdraws what is open, and waits for that. Machines wait for the next owner of the fleet, as long as they may. */
  async end(): Promise<void> {
    for (const { ends } of this.#open.values()) ends.abort(new Error("its coordinator ends"));
    await Promise.all(this.#answering);
  }

  /** What is open here and waits no more is withdrawn or forgotten. An answer that did not arrive is sent again. */
  #see(waiting: ReadonlyMap<string, QuestionName>, look: number): void {
    for (const [text, open] of this.#open) {
      const question = waiting.get(text);
      if (open.answer === null) {
        if (question === undefined) open.ends.abort(new Error("its run does not wait any more"));
      } else if (!open.isSending && open.sentIn < look) {
        if (question === undefined) this.#open.delete(text);
        else this.#track(this.#send(question, open, open.answer));
      }
    }
  }

  /** The oldest that are not open here and have room. */
  #next(waiting: readonly UnreadQuestion[]): readonly UnreadQuestion[] {
    let [count, bytes] = [this.#open.size, 0];
    for (const open of this.#open.values()) bytes += open.bytes;
    const next: UnreadQuestion[] = [];
    for (const one of waiting) {
      if (this.#open.has(questionKey(one))) continue;
      if (count >= MAX_OPEN || (count > 0 && bytes + one.bytes > MAX_OPEN_BYTES)) break;
      next.push(one);
      count += 1;
      bytes += one.bytes;
    }
    return next;
  }

  #begin(asked: AskedElsewhere, bytes: number): void {
    const open: Open = { bytes, ends: new AbortController(), answer: null, isSending: false, sentIn: 0 };
    this.#open.set(questionKey(asked), open);
    this.#track(this.#answer(asked, open));
  }

  #track(work: Promise<void>): void {
    const answering = work.finally(() => this.#answering.delete(answering));
    this.#answering.add(answering);
  }

  async #answer(asked: AskedElsewhere, open: Open): Promise<void> {
    const { decide, onTrouble } = this.#parts;
    const { signal } = open.ends;
    const decision = await decide(asked, signal).catch((error: unknown): Decision => {
      if (!signal.aborted) onTrouble(`a question of a machine is denied: ${bugText(error)}`);
      return { outcome: "denied", scope: "once", reason: "an internal error of its coordinator" };
    });
    // The next owner of the fleet decides on it.
    if (signal.aborted) return void this.#open.delete(questionKey(asked));
    open.answer = answerText(asked.json, decision);
    const { fleet, index, attempt, number } = asked;
    await this.#send({ fleet, index, attempt, number }, open, open.answer);
  }

  async #send({ fleet, index, attempt, number }: QuestionName, open: Open, answer: string): Promise<void> {
    const { work, onTrouble } = this.#parts;
    open.isSending = true;
    try {
      await work.answer({ fleet, index, attempt, number }, answer);
    } catch (error) {
      if (open.sentIn === 0)
        onTrouble(`an answer to a question of a machine did not reach the queue: ${(error as Error).message}`);
    }
    open.isSending = false;
    open.sentIn = this.#looks;
  }
}

function questionKey({ index, attempt, number }: QuestionName): string {
  return `${index}:${attempt}:${number}`;
}
