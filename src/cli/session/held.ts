import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { ApiError, ServiceClient } from "../../client/client.ts";
import { transportTo } from "../../client/node.ts";
import { parseDuration, parseSize } from "../../declarations/yaml/shape.ts";
import { SIGNALS } from "../../operations/contract/sessions.ts";
import type { AnswerOf, AskOf, EventOf } from "../../operations/contract/table.ts";
import { passedOn, written } from "../../platform/byte-streams.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine, shellWord } from "../../text/visible.ts";
import { toldQuestions } from "../host/at-service.ts";
import { type HoldOptions, idleTimes, portOf, UsageError } from "../terminal/arguments.ts";
import {
  type AtService,
  EXIT,
  exitStatusOf,
  keepHeapSmall,
  printJson,
  printList,
  printResult,
  say,
  stoppable,
  type Terminal,
} from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";
import { Allowance, folderArchive, receivedFile, receivedFolder, SENT_PIECES } from "./transfers.ts";

/** At a service, which holds it. On this machine `hold.ts` does. */
export async function startAt(
  service: AtService,
  worker: string,
  options: Pick<HoldOptions, "name" | "policy" | "from" | "port" | "idle" | "endAfter" | "json">,
  terminal: Terminal,
): Promise<number> {
  const { name, policy, from, port: ports = [] } = options;
  // The service takes ports that its worker does not declare from admins alone.
  const named = ports.length === 0 ? {} : { ports: ports.map(portOf) };
  const ask = { worker, ...named, ...idleAt(options), ...present({ name, policy, from, project: service.project }) };
  return await saidByService(terminal, async () => {
    const shown = await service.client.call("sessions.open", ask);
    printResult(terminal, options.json, shown, () => shown.name ?? shown.id);
    return 0;
  });
}

/** As the service takes them. @throws UsageError */
export function idleAt(options: Pick<HoldOptions, "idle" | "endAfter">) {
  const { pauseMs, endMs } = idleTimes(options);
  return present({ pauseAfterMs: pauseMs ?? undefined, endAfterMs: endMs ?? undefined });
}

/** A session, and who holds it: a process of this machine, or a service. */
export interface Client {
  readonly name: string;
  readonly client: ServiceClient;
  readonly session: string;
  /** Of the holder, for {@link connectToPort}. */
  readonly address: string;
  readonly token: string | null;
  /** Who asks owns the session: no rule judges commands. */
  readonly isOwner: boolean;
}

async function sessionNamed(name: string, { service, env }: Terminal): Promise<Client> {
  if (service !== undefined) return await sessionAt(service, name);
  const { heldSessions } = await import("../../serve/held-session.ts");
  const all = await heldSessions(stateDirFrom(env));
  const held = all.find((one) => one.name === name || one.id === name);
  if (held === undefined) {
    const names = all.map((one) => one.name).join(", ");
    throw new UsageError(
      `there is no session ${printableLine(name, 80)}; ${names === "" ? "start one with `corral session start WORKER`" : `there are: ${names}`}`,
    );
  }
  const client = new ServiceClient(transportTo(held.address), null);
  return { name: held.name, client, session: held.id, address: held.address, token: null, isOwner: true };
}

/** What is shorter is more often a name than the beginning of an id. */
const SHORT = 4;

/** Of the service, by its name, its id or the beginning of that. */
async function sessionAt({ client, url: address, token }: AtService, name: string): Promise<Client> {
  const { sessions } = await client.call("sessions.list", {});
  const exact = sessions.filter(({ id }) => id === name);
  const called = sessions.filter((one) => one.name === name);
  const begun = sessions.filter(({ id }) => id.startsWith(name) && name !== "");
  // Who may open a session may call it as the id of another one begins.
  const either = called.length > 0 && name.length < SHORT ? called : [...new Set([...called, ...begun])];
  const meant = exact.length > 0 ? exact : either;
  const [found] = meant;
  if (found === undefined || meant.length > 1) {
    const ids = sessions.map((one) => `${one.name ?? one.id} (${printableLine(one.worker, 80)})`).join(", ");
    const there = ids === "" ? "start one with `corral session start WORKER`" : `there are: ${ids}`;
    const what = found === undefined ? "there is no session" : "there are several sessions";
    throw new UsageError(`${what} ${printableLine(name, 80)} of the service; ${there}`);
  }
  return { name: found.name ?? found.id, client, session: found.id, address, token, isOwner: false };
}

export async function using(name: string, terminal: Terminal, act: (one: Client) => Promise<number>): Promise<number> {
  return await saidByService(terminal, async () => await act(await sessionNamed(name, terminal)));
}

/** What the session refuses is said as what it is. */
export async function saidByService(terminal: Terminal, act: () => Promise<number>): Promise<number> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    say(terminal, `corral: ${error.message}`);
    return (
      { 404: EXIT.wrongUsage, 400: EXIT.wrongUsage, 409: EXIT.wrongUsage, 422: EXIT.refused }[error.status] ??
      EXIT.engineTrouble
    );
  }
}

type Command = AnswerOf<"sessions.command">;

export async function listVerb(
  name: string | undefined,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  if (name !== undefined)
    return await using(name, terminal, async ({ client, session }) => {
      const { commands } = await client.call("sessions.commands", { session });
      printList<Command>(terminal, json, commands, {
        head: ["COMMAND", "STATUS", "STARTED", "LINE"],
        rowOf: ({ id, status, startedAt, command }) => [id, status, startedAt, printableLine(command, 200)],
        none: "Nothing was started in this session.",
      });
      return 0;
    });
  const { service } = terminal;
  if (service !== undefined)
    return await saidByService(terminal, async () => {
      const { sessions } = await service.client.call("sessions.list", {});
      const of = sessions.filter(({ project }) => service.project === undefined || project === service.project);
      printList<AnswerOf<"sessions.show">>(terminal, json, of, {
        head: ["NAME", "ID", "WORKER", "OPENED", "PROJECT", "STATE"],
        rowOf: (one) => [
          one.name ?? "-",
          one.id,
          printableLine(one.worker, 80),
          one.openedAt,
          printableLine(one.project, 200),
          one.isPaused ? "paused" : "open",
        ],
        none: "There are no sessions. `corral session start WORKER` starts one.",
      });
      return 0;
    });
  const { heldSessions } = await import("../../serve/held-session.ts");
  printList(terminal, json, await heldSessions(stateDirFrom(terminal.env)), {
    head: ["NAME", "ID", "WORKER", "OPENED", "PROJECT"],
    rowOf: (one) => [one.name, one.id, printableLine(one.worker, 80), one.openedAt, printableLine(one.project, 200)],
    none: "There are no sessions. `corral session start WORKER` starts one.",
  });
  return 0;
}

export interface ExecOptions {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly background?: boolean;
  readonly cwd?: string;
  readonly timeout?: string;
  readonly raw?: boolean;
}

export async function execVerb(
  name: string,
  words: readonly string[],
  options: ExecOptions,
  terminal: Terminal,
): Promise<number> {
  const { background = false, cwd, timeout, tty = false, interactive = tty, raw = false } = options;
  if (words.length === 0) throw new UsageError("name a command after --");
  if (background && interactive) throw new UsageError("use either --background, or -i or -t");
  const timeoutMs = timeout === undefined ? undefined : parseDuration(timeout);
  if (timeoutMs === null) throw new UsageError("--timeout must be a duration such as 30s, 5m or 1h");
  const command = words.map(shellWord).join(" ");
  return await using(name, terminal, async ({ client, session, isOwner }) => {
    const order = { command, ...asOwner(isOwner), ...present({ cwd, timeoutMs }) };
    if (!background) return await followed({ client, session, order, tty, interactive, raw, terminal });
    using _ = isOwner ? undefined : toldQuestions(client, session, terminal);
    const { id } = await client.call("sessions.start", { session, ...order });
    terminal.stdout.write(`${id}\n`);
    return 0;
  });
}

export async function heldShellVerb(name: string, terminal: Terminal): Promise<number> {
  const tty = terminal.stdin.isTTY === true && terminal.stdout.isTTY === true;
  const command = `if command -v bash > /dev/null; then exec bash ${tty ? "-i" : ""}; else exec sh ${tty ? "-i" : ""}; fi`;
  return await using(name, terminal, ({ client, session, isOwner }) =>
    followed({
      client,
      session,
      order: { command, ...asOwner(isOwner) },
      tty,
      interactive: true,
      raw: false,
      terminal,
    }),
  );
}

/** At a service, a token with the role `admin` owns what it types at a terminal; what another one types is judged. */
function asOwner(isOwner: boolean): { readonly asOwner?: true } {
  return isOwner ? { asOwner: true } : {};
}

interface Followed {
  readonly client: ServiceClient;
  readonly session: string;
  readonly order: Omit<AskOf<"sessions.exec">, "session">;
  readonly tty: boolean;
  readonly interactive: boolean;
  readonly raw: boolean;
  readonly terminal: Terminal;
}

/** Runs a command with this terminal's streams. If this process leaves, it ends. */
async function followed({ client, session, order, tty, interactive, raw, terminal }: Followed): Promise<number> {
  const { stdin, stdout, env } = terminal;
  const isRaw = tty && stdin.isTTY === true;
  const sizeOf = () => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 });
  const at = tty ? { terminal: sizeOf(), env: { TERM: env.TERM ?? "xterm" } } : {};
  using stop = stoppable(terminal, () => {});
  const ask = { session, ...order, ...at, ...(interactive ? { input: true } : {}) };
  const events = client.stream("sessions.exec", ask, { signal: stop.signal });
  let ending: Disposable | null = null;
  using told = order.asOwner === true ? undefined : toldQuestions(client, session, terminal);
  try {
    const status = await printed(events, {
      raw,
      isScreen: isRaw,
      terminal,
      onStarted: (command) => {
        // Nothing is written over a program's screen.
        if (isRaw) told?.[Symbol.dispose]();
        if (interactive) ending = sentInput({ client, session, command, isRaw, sizeOf, terminal });
      },
    });
    if (status === null) say(terminal, "corral: the session ended before it was told how the command did");
    return status ?? EXIT.engineTrouble;
  } catch (error) {
    if (stop.signal.aborted) return EXIT.cancelled;
    throw error;
  } finally {
    (ending as Disposable | null)?.[Symbol.dispose]();
  }
}

interface Printing {
  readonly raw: boolean;
  /** A program has the whole terminal. */
  readonly isScreen?: boolean;
  readonly terminal: Terminal;
  readonly onStarted?: (command: string) => void;
}

/** The exit status of the command; null if its end does not come. */
async function printed(
  events: AsyncIterable<EventOf<"sessions.exec">>,
  { raw, isScreen = false, terminal, onStarted }: Printing,
): Promise<number | null> {
  const { stdout, stderr } = terminal;
  const texts = { stdout: workerTextTo(stdout, { raw, isScreen }), stderr: workerTextTo(stderr, { raw }) };
  let status: number | null = null;
  for await (const event of events) {
    if (event.type === "started") onStarted?.(event.command);
    else if (event.type === "ended") status = exitStatusOf(event as Parameters<typeof exitStatusOf>[0]);
    else {
      if (event.missingBytes > 0) say(terminal, `corral: ${event.missingBytes} bytes before this are kept no more`);
      await written(terminal[event.stream], texts[event.stream].piece(Buffer.from(event.base64, "base64")));
    }
  }
  stdout.write(texts.stdout.end());
  stderr.write(texts.stderr.end());
  return status;
}

interface Input {
  readonly client: ServiceClient;
  readonly session: string;
  readonly command: string;
  readonly isRaw: boolean;
  readonly sizeOf: () => { readonly columns: number; readonly rows: number };
  readonly terminal: Terminal;
}

/** Sends standard input, a piece after the other: what is typed meanwhile goes with the next. */
function sentInput({ client, session, command, isRaw, sizeOf, terminal: { stdin, stdout } }: Input): Disposable {
  const over = new AbortController();
  const send = async (): Promise<void> => {
    for await (const piece of stdin)
      await client.upload("sessions.input", { session, command }, piece as Buffer, { signal: over.signal });
    await client.upload("sessions.input", { session, command, end: true }, new Uint8Array(), { signal: over.signal });
  };
  // A command that has ended takes no more; its end is told by its events.
  const onResize = (): void => void client.call("sessions.resize", { session, command, ...sizeOf() }).catch(() => {});
  if (isRaw) {
    stdin.setRawMode(true);
    stdout.on("resize", onResize);
  }
  send().catch(() => {});
  return {
    [Symbol.dispose]() {
      over.abort(new Error("the command has ended"));
      if (isRaw) stdin.setRawMode(false);
      stdout.off("resize", onResize);
      stdin.destroy();
    },
  };
}

export async function logsVerb(
  name: string,
  command: string,
  { follow = false, raw = false }: { readonly follow?: boolean; readonly raw?: boolean },
  terminal: Terminal,
): Promise<number> {
  using stop = stoppable(terminal, () => {});
  return await using(name, terminal, async ({ client, session }) => {
    await printed(client.stream("sessions.output", { session, command, follow }, { signal: stop.signal }), {
      raw,
      terminal,
    }).catch((error: unknown) => {
      if (!stop.signal.aborted) throw error;
    });
    return 0;
  });
}

export async function signalVerb(
  name: string,
  command: string,
  raw: string | undefined,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const asked = `SIG${(raw ?? "TERM").toUpperCase().replace(/^SIG/, "")}`;
  const signal = SIGNALS.find((known) => known === asked);
  if (signal === undefined)
    throw new UsageError(
      `there is no signal ${printableLine(raw ?? "", 40)} for a command; there are: ${SIGNALS.map((one) => one.slice(3)).join(", ")}`,
    );
  return await using(name, terminal, async ({ client, session }) => {
    const shown = await client.call("sessions.signal", { session, command, signal });
    if (json) printJson(terminal, shown);
    return 0;
  });
}

export async function waitVerb(
  name: string,
  command: string,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  using stop = stoppable(terminal, () => {});
  return await using(name, terminal, async ({ client, session }) => {
    for (;;) {
      const shown = await client.call("sessions.command", { session, command, wait: 60 }, { signal: stop.signal });
      if (shown.status === "running") continue;
      if (json) printJson(terminal, shown);
      return exitStatusOf(shown as Parameters<typeof exitStatusOf>[0]);
    }
  });
}

export async function putVerb(
  name: string,
  source: string,
  path: string,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const about = source === "-" ? null : await found(source);
  const isFolder = about?.isDirectory() === true;
  // A file that grows meanwhile is as it was when its size was read.
  const length = about?.isFile() && about.size > 0 ? about.size : undefined;
  const content =
    about === null
      ? terminal.stdin
      : isFolder
        ? folderArchive(source)
        : createReadStream(source, { ...SENT_PIECES, ...(length === undefined ? {} : { end: length - 1 }) });
  keepHeapSmall();
  return await using(name, terminal, async ({ client, session }) => {
    const ask = { session, path, kind: isFolder ? "folder" : "file" } as const;
    const sent = await client.upload("sessions.upload", ask, passedOn(content as AsyncIterable<Uint8Array>), {
      length,
    });
    if (json) printJson(terminal, sent);
    return 0;
  });
}

async function found(path: string) {
  return await stat(path).catch((error: Error) => {
    throw new UsageError(`${printableLine(path, 200)} cannot be read: ${error.message}`, { cause: error });
  });
}

export async function getVerb(
  name: string,
  path: string,
  target: string | undefined,
  { maxBytes: said }: { readonly maxBytes?: string },
  terminal: Terminal,
): Promise<number> {
  const maxBytes = said === undefined ? null : parseSize(said);
  if (said !== undefined && maxBytes === null)
    throw new UsageError(`--max-bytes takes a size such as 512m or 8g, not ${printableLine(said, 80)}`);
  keepHeapSmall();
  return await using(name, terminal, async ({ client, session }) => {
    const found = await client.downloadWith("sessions.download", { session, path }, "x-corral-kind");
    const [header, pieces] = [found.header, passedOn(found.pieces)];
    if (target === "-") {
      const allowance = new Allowance("-", maxBytes ?? Number.POSITIVE_INFINITY);
      for await (const piece of pieces) {
        allowance.take(piece.length);
        await written(terminal.stdout, piece);
      }
      return 0;
    }
    const to = target ?? path.replace(/\/+$/, "").split("/").at(-1) ?? "";
    if (to === "" || to === "." || to === "..") throw new UsageError("name where it is to be written");
    const received = header === "folder" ? receivedFolder : receivedFile;
    const skipped = await received(pieces, to, new Allowance(to, maxBytes));
    if (skipped > 0)
      say(terminal, `corral: ${skipped} links that lead out of the folder, devices and the like were left out`);
    return 0;
  });
}

export async function pauseVerb(name: string, isPaused: boolean, terminal: Terminal): Promise<number> {
  return await using(name, terminal, async ({ client, session }) => {
    await client.call(isPaused ? "sessions.pause" : "sessions.resume", { session });
    return 0;
  });
}

const SLOW_MS = 2000;

/** The process that holds a session answers for that alone. */
function toldWhenSlow(terminal: Terminal): Disposable {
  const why = "what was written may wait for an answer, for which `corral approvals ls` has the questions";
  const timer = setTimeout(() => say(terminal, `corral: the session has not ended: ${why}`), SLOW_MS);
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}

export async function endVerb(
  name: string,
  { json, discard }: { readonly json?: boolean; readonly discard?: boolean },
  terminal: Terminal,
): Promise<number> {
  return await using(name, terminal, async ({ client, session, isOwner }) => {
    using _ = isOwner ? toldWhenSlow(terminal) : toldQuestions(client, session, terminal);
    const settled = await client.call("sessions.close", { session, ...present({ discard }) });
    const { changeset, error } = settled;
    if (json) printJson(terminal, settled);
    else if (changeset?.id) say(terminal, `corral: changes wait: \`corral changes apply ${changeset.id}\``);
    if (error !== null && !json) say(terminal, `corral: ${printableLine(error.message, 2000)}`);
    return error === null ? 0 : EXIT.refused;
  });
}
