import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Question } from "../../approval/approver.ts";
import type { BoardAnswer } from "../../approval/queued-approver.ts";
import { ApiError, type SentFile } from "../../client/client.ts";
import type { AnswerOf, EventOf } from "../../operations/contract/table.ts";
import { shortQuestion } from "../../operations/wording/question-text.ts";
import type { RunResult } from "../../run/model/result.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { known } from "../host/at-service.ts";
import { UsageError } from "../terminal/arguments.ts";
import {
  type AtService,
  EXIT,
  exitStatusOf,
  type RunScreen,
  type Stop,
  say,
  stoppable,
  type Terminal,
  type WatchedEvent,
} from "../terminal/terminal.ts";
import { attachedPaths, type NamedPath, readInput } from "./attachments.ts";
import { type ScreenOptions, screenFor } from "./screen.ts";

export interface RemoteRunOptions extends ScreenOptions {
  readonly words?: readonly string[];
  readonly input?: string;
  readonly attach: readonly string[];
  readonly policy?: string;
  readonly continue?: string;
}

/** How often the service is asked for questions, and whether one was answered elsewhere. */
const LOOK_MS = 1000;
const FIRST_LOOK_MS = 300;
const WAIT_S = 30;

/** `corral run` of a worker of a service. Files go up as streams; questions are asked here, if a person is here. */
export async function runOverHost(
  worker: string | undefined,
  options: RemoteRunOptions,
  service: AtService,
  terminal: Terminal,
): Promise<number> {
  if (worker === undefined)
    throw new UsageError(
      "a service runs the workers of its projects: name one; a command without a project runs on the machine itself (--host local)",
    );
  const input = await readInput(options.input, terminal);
  const files = await sentFiles(await attachedPaths(options.attach, terminal.cwd), terminal.cwd);
  using screen = await screenFor(terminal, options);
  using stop = stoppable(terminal, (line) => screen.tell(line), { whileRead: true });
  const order = { worker, arguments: [...(options.words ?? [])], input, project: service.project };
  const more = present({ policy: options.policy, continues: options.continue });
  const { client } = service;
  let run: string;
  try {
    // Only a form can still be taken back: what has no files may have begun already.
    const asking = files.length === 0 ? {} : { files, signal: stop.signal };
    ({ run } = await client.call("runs.start", { ...order, ...more }, asking));
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    return stop.isUnread() ? EXIT.unread : EXIT.cancelled;
  }
  const result = await followed(run, service, { terminal, screen, stop, options });
  screen.end(result);
  if (terminal.env.GITHUB_STEP_SUMMARY)
    await (await import("../github/step-summary.ts")).addRunToStepSummary(result, terminal);
  return stop.isUnread() ? EXIT.unread : exitStatusOf(result);
}

/** What cannot be read is named before anything starts. */
async function sentFiles(attached: readonly NamedPath[], cwd: string): Promise<SentFile[]> {
  const files: SentFile[] = [];
  for (const { path, name } of attached) {
    const place = resolve(cwd, path);
    const found = await stat(place).catch((error: Error) => error);
    if (found instanceof Error) throw new UsageError(`--attach ${path} cannot be read: ${found.message}`);
    if (!found.isFile()) throw new UsageError(`--attach ${path} is not a regular file`);
    files.push({ name, content: createReadStream(place) });
  }
  return files;
}

interface Around {
  readonly terminal: Terminal;
  readonly screen: RunScreen;
  readonly stop: Stop;
  readonly options: RemoteRunOptions;
}

/** Shows what happens until the run has ended. */
async function followed(run: string, { client }: AtService, around: Around): Promise<RunResult> {
  const { terminal, screen, stop, options } = around;
  const over = new AbortController();
  const end = (): void => {
    const tell = (error: Error): void => screen.tell(`corral: the run could not be stopped: ${error.message}`);
    client.call("runs.stop", { run }).catch(tell);
  };
  stop.signal.addEventListener("abort", end, { once: true });
  if (stop.signal.aborted) end();
  const asking = answeredHere(run, client, around, over.signal);
  // Events are text. Into a file or another program go the bytes.
  const asBytes = !options.json && !terminal.stdout.isTTY;
  const printing = asBytes ? printed(run, client, around) : Promise.resolve();
  printing.catch(() => {});
  try {
    for await (const { event } of client.follow("runs.events", { run })) {
      const seen = watchedEvent(event, run);
      if (seen !== null && !(asBytes && isOutput(seen))) screen.see(seen);
    }
    await printing;
    return await resultOf(run, client);
  } finally {
    over.abort();
    await asking;
    stop.signal.removeEventListener("abort", end);
  }
}

function isOutput(event: WatchedEvent): boolean {
  return event.type === "output" && event.stream === "stdout" && event.parent === null;
}

async function printed(run: string, client: AtService["client"], { terminal, stop }: Around): Promise<void> {
  const pieces = await client.download("runs.output", { run, stream: "stdout", follow: true });
  for await (const piece of pieces) {
    if (stop.isUnread()) return;
    if (!terminal.stdout.write(piece)) await drained(terminal);
  }
  const { stdout } = await client.call("runs.show", { run });
  if (stdout.bytes > stdout.keptBytes)
    say(terminal, `corral: the service has kept ${stdout.keptBytes} of ${stdout.bytes} bytes of standard output`);
}

async function drained({ stdout }: Terminal): Promise<void> {
  await new Promise((resolve) => stdout.write("", resolve));
}

async function resultOf(run: string, client: AtService["client"]): Promise<RunResult> {
  for (;;) {
    try {
      return known<RunResult>(await client.call("runs.result", { run, wait: WAIT_S }));
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "RUN_NOT_OVER") throw error;
    }
  }
}

/** An event as a screen of this machine sees it; null: it shows nothing of it. */
function watchedEvent(event: EventOf<"runs.events">, root: string): WatchedEvent | null {
  if (!("parent" in event)) return null;
  const { run, parent, worker } = event;
  const who = { run, root, parent, worker, attachments: [] };
  switch (event.type) {
    case "requested":
      return { ...who, type: "requested", attachments: event.attachments };
    case "started":
      return { ...who, type: "started", plan: null };
    case "output":
      return { ...who, type: "output", stream: event.stream, chunk: Buffer.from(event.text) };
    case "ended": {
      const { status, exitCode, signal, error, durationMs } = event;
      return known({ ...who, type: "ended", result: { status, exitCode, signal, error, durationMs } });
    }
    default:
      return known({ ...who, ...event });
  }
}

type Asked = AnswerOf<"approvals.list">["approvals"][number];

/** Asks the person at this terminal what the run asks; without one, says where it can be answered. */
async function answeredHere(
  run: string,
  client: AtService["client"],
  around: Around,
  over: AbortSignal,
): Promise<void> {
  const { terminal, screen } = around;
  const seen = new Set<string>();
  for (let waitMs = FIRST_LOOK_MS; !over.aborted; waitMs = LOOK_MS) {
    await sleep(waitMs, undefined, { signal: over }).catch(() => {});
    const list = client.call("approvals.list", { root: run, state: "waiting" }, { signal: over });
    // What is between here and the service may be gone for a while.
    const approvals = await list.then(({ approvals: all }) => all).catch(() => []);
    for (const one of approvals) {
      if (seen.has(one.id) || over.aborted) continue;
      seen.add(one.id);
      if (terminal.stdin.isTTY && terminal.stderr.isTTY) await answerOne(one, client, around, over);
      else {
        const what = `Worker ${one.question.worker} asks to ${shortQuestion(known(one.question))}`;
        screen.tell(`corral: ${printableLine(what, 200)}. Answer with: corral approvals decide ${one.id}`);
      }
    }
  }
}

async function answerOne(
  { id: approval, digest, question }: Asked,
  client: AtService["client"],
  { terminal, screen, stop }: Around,
  over: AbortSignal,
): Promise<void> {
  const { promptAt } = await import("../consent/person.ts");
  const elsewhere = new AbortController();
  const left = AbortSignal.any([over, elsewhere.signal]);
  const looking = setInterval(async () => {
    const now = await client.call("approvals.show", { approval }).catch(() => null);
    if (now !== null && now.state !== "waiting") elsewhere.abort();
  }, LOOK_MS);
  try {
    const given = await promptAt(terminal, screen)(known<Question>(question), left);
    if (given === "interrupt") return stop.cancel();
    const answer = typeof given === "string" ? given : given.scope;
    const directory = typeof given === "string" ? undefined : given.directory;
    const decision = { answer: (answer === "session" ? "tree" : answer) as BoardAnswer, ...present({ directory }) };
    await client.call("approvals.decide", { approval, digest, ...decision });
  } catch (error) {
    if (over.aborted) return;
    const why = elsewhere.signal.aborted ? "it was decided elsewhere" : (error as Error).message;
    screen.tell(`corral: the question was not answered here: ${printableLine(why, 200)}`);
  } finally {
    clearInterval(looking);
  }
}
