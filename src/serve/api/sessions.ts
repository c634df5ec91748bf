import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { CarriableContent, PipeEnd } from "../../isolation/port/cell.ts";
import { MAX_DIFFERENCES } from "../../operations/contract/sessions.ts";
import type { AnswerOf, EventOf, Given } from "../../operations/contract/table.ts";
import { aborted } from "../../platform/within.ts";
import type { Session } from "../../run/session/session.ts";
import type { SessionSnapshots } from "../../run/session/session-snapshots.ts";
import type { CommandStart, StartedCommand } from "../../run/session/started-commands.ts";
import type { EventLine } from "../../state/service/event-log.ts";
import { present } from "../../text/present.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { eventStream, HEARTBEAT_MS, lastEventId } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import { type Handlers, permits, type ServiceCaller } from "../http/router.ts";
import { ShownPort } from "../ports/shown-port.ts";
import { refusePolicy, refuseStopping, type Served } from "./owned.ts";

/** Of one request to the input of a command. */
const MAX_INPUT_BYTES = 1024 ** 2;

export function sessionHandlers({
  projects,
  sessions,
  over,
}: Pick<Served, "projects" | "sessions" | "over">): Handlers<"sessions"> {
  const within = <T>(id: string, act: (session: Session) => Promise<T>): Promise<T> => sessions.within(id, act);
  /** No rule judged them: who types there owns the session. */
  const owned = new WeakSet<StartedCommand>();
  const started = async (id: string, order: Order, isBackground: boolean, caller: ServiceCaller, gone: AbortSignal) => {
    refuseStopping(over);
    const isAdmin = permits(caller, "admin");
    if (order.asOwner === true && !isAdmin)
      throw new ServiceFault(403, "FORBIDDEN", "a command that no rule judges needs a token with the role admin");
    const isOwn = isAdmin && (order.asOwner === true || order.terminal !== undefined);
    const request = startRequest(order, isBackground);
    const command = await within(id, (session) => session.start(request, isOwn, gone));
    if (isOwn) owned.add(command);
    return command;
  };
  type Named = { readonly session: string; readonly command: string };
  const commandOf = ({ session, command }: Named): Promise<StartedCommand> =>
    within(session, async ({ started: commands }) => commands.find(command));
  const shownOf = ({ session, command }: Named): Promise<StartedCommand> =>
    sessions.look(session, async ({ started: commands }) => commands.find(command));
  return {
    async "sessions.open"({ body, caller }) {
      const { project, worker, policy, from, name, pauseAfterMs: pauseMs, endAfterMs: endMs, ports = [] } = body;
      refuseStopping(over);
      refusePolicy(policy, caller);
      if (ports.length > 0 && !permits(caller, "admin"))
        throw new ServiceFault(403, "FORBIDDEN", "ports beside those of the worker need a token with the role admin");
      const shown = await sessions.open(projects.named(project), worker, {
        policy: policy ?? null,
        ...present({ from, name }),
        idle: present({ pauseMs, endMs }),
      });
      await within(shown.id, async (session) => session.ports.allow(ports));
      return shown;
    },
    "sessions.list": async () => ({ sessions: sessions.all }),
    "sessions.show": async ({ params }) => sessions.find(params.session),
    "sessions.tools": async ({ params }) => ({ tools: sessions.toolsOf(params.session) }),
    async "sessions.use"({ params, body, gone }) {
      return await sessions.runTool(params.session, params.tool, body, AbortSignal.any([gone, over]));
    },
    async "sessions.exec"({ params: { session: id }, body, caller, gone }) {
      const command = await started(id, body, false, caller, gone);
      const leave = (): void => command.stop("cancelled");
      gone.addEventListener("abort", leave, { once: true });
      if (gone.aborted) leave();
      const signal = AbortSignal.any([gone, over]);
      // The session is in use while the command runs.
      const ended = within(id, async () => void (await command.ended));
      ended.catch(() => {});
      async function* lines(): AsyncGenerator<EventLine[]> {
        yield [lineOf(0, { type: "started", at: command.startedAt, command: command.id })];
        yield* linesOf(command, 0, { follow: true, signal, takes: true });
      }
      return { pieces: eventStream(lines()) };
    },
    async "sessions.start"({ params: { session: id }, body, caller, gone }) {
      const command = await started(id, body, true, caller, gone);
      const ended = within(id, async () => void (await command.ended));
      ended.catch(() => {});
      return shownCommand(command);
    },
    async "sessions.commands"({ params }) {
      return await sessions.look(params.session, async ({ started: { all } }) => ({ commands: all.map(shownCommand) }));
    },
    async "sessions.command"({ params, query: { wait = 0 }, gone }) {
      const command = await shownOf(params);
      if (wait > 0 && command.ending === null) await waited(command.ended, wait, AbortSignal.any([gone, over]));
      return shownCommand(command);
    },
    async "sessions.output"({ params, query: { follow = true }, request, gone }) {
      const command = await shownOf(params);
      const from = lastEventId(request.headers["last-event-id"]);
      if (from === null)
        throw new ServiceFault(400, "WRONG_REQUEST", "Last-Event-ID is the id of no event of this stream");
      if (command.ending !== null && from > command.output.end) return null;
      const signal = AbortSignal.any([gone, over]);
      return { pieces: eventStream(linesOf(command, from, { follow, signal, takes: false })) };
    },
    async "sessions.input"({ params, query: { end = false }, request, caller, gone }) {
      const command = await commandOf(params);
      if (owned.has(command) && !permits(caller, "admin"))
        throw new ServiceFault(
          403,
          "FORBIDDEN",
          "no rule judges this command: what it reads needs a token with the role admin",
        );
      const chunk = await bytesOf(request);
      if (chunk.length > 0) await Promise.race([command.write(chunk), command.ended, aborted(gone)]);
      if (end) command.closeInput();
      return { bytes: chunk.length };
    },
    async "sessions.signal"({ params, body }) {
      const command = await commandOf(params);
      if (command.ending !== null) throw new ServiceFault(409, "COMMAND_OVER", `command ${command.id} has ended`);
      if (!(await command.signal(body.signal)) && command.ending === null)
        throw new ServiceFault(
          503,
          "NOT_SIGNALLED",
          "some of what the command started may not have it; end the session to end all",
        );
      return shownCommand(command);
    },
    async "sessions.resize"({ params, body }) {
      const command = await commandOf(params);
      await command.resize(body);
      return shownCommand(command);
    },
    async "sessions.upload"({ params, query: { path, kind = "file" }, request, gone, carriage }) {
      refuseStopping(over);
      const signal = AbortSignal.any([gone, over]);
      // What is refused has an answer, for which the connection has to stay.
      const content: AsyncIterable<Uint8Array> = request.iterator({ destroyOnReturn: false });
      const bytes = kind === "file" ? (carriage?.bodyBytes ?? null) : null;
      const carried =
        bytes === null || carriage === null
          ? {}
          : { carried: { bytes, into: (pipe: PipeEnd) => carriage.bodyInto(pipe, bytes) } };
      return await within(params.session, (session) => session.put({ path, kind, content, ...carried }, signal));
    },
    async "sessions.download"({ params, query: { path, maxBytes }, gone }) {
      const signal = AbortSignal.any([gone, over]);
      const taken = Promise.withResolvers<void>();
      const found = await within(params.session, (session) => session.get(path, taken.promise, signal, maxBytes)).catch(
        (error) => {
          taken.resolve();
          throw error;
        },
      );
      // The session is in use while the content is read.
      within(params.session, () => taken.promise).catch(() => {});
      const { kind, content, carriable } = found;
      gone.addEventListener("abort", () => taken.resolve(), { once: true });
      async function* pieces(): AsyncGenerator<Uint8Array> {
        try {
          yield* content;
        } finally {
          taken.resolve();
        }
      }
      // A browser saves it, whatever is in it.
      const headers = { "x-corral-kind": kind, "content-disposition": "attachment" };
      if (carriable === undefined) return { pieces: pieces(), headers };
      const through: CarriableContent["through"] = (carry) => carriable.through(carry).finally(() => taken.resolve());
      return { pieces: pieces(), headers, carriable: { bytes: carriable.bytes, through } };
    },
    "sessions.pause": async ({ params }) => await paused(params.session, true),
    "sessions.resume": async ({ params }) => await paused(params.session, false),
    async "sessions.close"({ params: { session: id }, query: { discard: discards = false, ask: asks = true } }) {
      const settled = await sessions.finish(id, { discards, asks });
      const { changes = [], changeset = null, failure = null } = settled ?? {};
      return { id, changes, changeset, error: failure?.error ?? null };
    },
  };

  async function paused(id: string, isPaused: boolean): Promise<AnswerOf<"sessions.show">> {
    const isDone = await within(id, (session) => session.pause(isPaused));
    if (!isDone) throw new ServiceFault(503, "NOT_SIGNALLED", "the session's container did not answer in time");
    return sessions.find(id);
  }
}

type Order = Given<"sessions.start", "body">;

function startRequest(
  { command, cwd, env, input = false, terminal, timeoutMs }: Order,
  isBackground: boolean,
): CommandStart {
  const tty = terminal === undefined ? {} : { tty: terminal };
  return { command, hasInput: input, isBackground, ...tty, ...present({ cwd, env, timeoutMs }) };
}

function shownCommand(one: StartedCommand): AnswerOf<"sessions.command"> {
  const { id, command, startedAt, isBackground, isTerminal, ending } = one;
  const { status = "running", exitCode = null, signal = null } = ending ?? {};
  return { id, command, startedAt, isBackground, isTerminal, status, exitCode, signal };
}

function lineOf(id: number, event: EventOf<"sessions.exec">): EventLine {
  return { id, json: JSON.stringify(event) };
}

/** After a place in its output. The last line is its end, if that was awaited. */
async function* linesOf(
  command: StartedCommand,
  from: number,
  { follow, signal, takes }: { readonly follow: boolean; readonly signal: AbortSignal; readonly takes: boolean },
): AsyncGenerator<EventLine[]> {
  for await (const piece of command.output.read(from, { follow, signal, takes, idleMs: HEARTBEAT_MS })) {
    if (piece === null) {
      yield [];
      continue;
    }
    const { stream, bytes, end, missingBytes } = piece;
    const at = new Date().toISOString();
    yield [lineOf(end, { type: "printed", at, stream, base64: bytes.toString("base64"), missingBytes })];
  }
  if (signal.aborted || (!follow && command.ending === null)) return;
  const { status, exitCode, signal: by } = await command.ended;
  yield [lineOf(command.output.end + 1, { type: "ended", at: new Date().toISOString(), status, exitCode, signal: by })];
}

async function waited(ending: Promise<unknown>, seconds: number, gone: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, seconds * 1000);
  gone.addEventListener("abort", () => resolve(), { once: true });
  await Promise.race([ending, promise]);
  clearTimeout(timer);
}

async function bytesOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += (piece as Buffer).length;
    if (bytes > MAX_INPUT_BYTES)
      throw new ServiceFault(413, "TOO_LARGE", `one request brings at most ${MAX_INPUT_BYTES} bytes of input`);
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces);
}

export function snapshotHandlers({ sessions, over }: Pick<Served, "sessions" | "over">): Handlers<"snapshots"> {
  const within = <T>(id: string, act: (snapshots: SessionSnapshots) => Promise<T>): Promise<T> =>
    sessions.within(id, async (session) => await act(snapshotsOf(session)));
  return {
    async "snapshots.list"({ params: { session } }) {
      return { snapshots: await sessions.look(session, (one) => snapshotsOf(one).list()) };
    },
    async "snapshots.take"({ params: { session }, body: { name = null } }) {
      refuseStopping(over);
      return await within(session, (snapshots) => snapshots.take(name));
    },
    async "snapshots.remove"({ params: { session, snapshot } }) {
      return await within(session, (snapshots) => snapshots.remove(snapshot));
    },
    async "snapshots.restore"({ params: { session, snapshot } }) {
      refuseStopping(over);
      return await within(session, (snapshots) => snapshots.restore(snapshot));
    },
    async "snapshots.diff"({ params: { session, snapshot }, gone }) {
      const signal = AbortSignal.any([gone, over]);
      const all = await within(session, (snapshots) => snapshots.differences(snapshot, signal));
      return { differences: all.slice(0, MAX_DIFFERENCES), more: all.length > MAX_DIFFERENCES };
    },
  };
}

/** @throws ToolRefusal */
function snapshotsOf({ snapshots }: Session): SessionSnapshots {
  if (snapshots === null) throw new ToolRefusal("SNAPSHOT_REFUSED", "This session takes no snapshots.");
  return snapshots;
}

/** Each has a port of this machine. */
const MAX_SHOWN = 256;
/** What a client asks for that wants the connection itself. */
const PORT_PROTOCOL = "corral-port";

export function portHandlers({ sessions, over }: Pick<Served, "sessions" | "over">): Handlers<"ports"> {
  const shown = new Map<string, Promise<ShownPort>>();
  const closeAll = (): void => {
    for (const port of shown.values())
      port.then(
        (one) => one.close(),
        () => {},
      );
  };
  over.addEventListener("abort", closeAll, { once: true });
  /** The session is in use as long as the connection is there. */
  const connect = (id: string, port: number, signal: AbortSignal): Promise<Duplex> => {
    const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
    const using = sessions.within(id, async ({ ports }) => {
      const connection = await ports.connect(port, signal);
      const closed = once(connection, "close");
      resolve(connection);
      await closed.catch(() => {});
    });
    using.catch(reject);
    return promise;
  };
  const show = async (id: string, port: number): Promise<ShownPort> => {
    if (shown.size >= MAX_SHOWN) throw new ServiceFault(503, "TOO_MANY", `${MAX_SHOWN} ports are shown already`);
    const key = `${id} ${port}`;
    const opening = ShownPort.open(port, (signal) => connect(id, port, signal));
    shown.set(key, opening);
    opening.catch(() => shown.delete(key));
    void sessions.closed(id).then(async () => {
      shown.delete(key);
      (await opening).close();
    });
    return await opening;
  };
  return {
    async "ports.list"({ params: { session: id }, gone }) {
      const all = await sessions.look(id, ({ ports }) => ports.list(gone));
      const listed = all.map(async (one) => {
        const at = await shown.get(`${id} ${one.port}`);
        return { ...one, address: at?.address ?? null };
      });
      return { ports: await Promise.all(listed) };
    },
    async "ports.show"({ params: { session: id, port } }) {
      refuseStopping(over);
      await sessions.within(id, async ({ ports }) => ports.check(port));
      const one = await (shown.get(`${id} ${port}`) ?? show(id, port));
      return { port, url: one.link(), address: one.address, header: one.header };
    },
    async "ports.connect"({ params: { session: id, port }, request, gone }) {
      refuseStopping(over);
      if (request.headers.upgrade?.toLowerCase() !== PORT_PROTOCOL)
        throw new ServiceFault(400, "WRONG_REQUEST", `send \`connection: upgrade\` and \`upgrade: ${PORT_PROTOCOL}\``);
      const connection = await connect(id, port, AbortSignal.any([gone, over]));
      return { pieces: connection, connection };
    },
  };
}
