import { type ChildProcess, spawn, type spawn as startProgram } from "node:child_process";
import type { readlinkSync as readLink } from "node:fs";
import { chmod, type FileHandle, open, readFile, stat } from "node:fs/promises";
import {
  type connect as connectTo,
  createServer,
  type createServer as makeServer,
  type Server,
  type Socket,
} from "node:net";
import { join } from "node:path";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { nullFor } from "../../platform/errno.ts";
import { within } from "../../platform/within.ts";
import type { NetworkPlace } from "../../sandbox/network/rule.ts";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import type { Owner } from "../../state/owner.ts";
import type { Accept, Listening } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";

/** Opens places in the network of one container; null if that cannot be entered. */
export type Enter = (places: readonly NetworkPlace[]) => Promise<OpenPlaces | null>;

/** Listens in the network of one container, from outside. */
export class CellNetwork implements AsyncDisposable {
  readonly #enter: Enter;
  /** What was opened ahead, until it is used. */
  #ahead: { readonly places: readonly NetworkPlace[]; readonly entering: Promise<OpenPlaces | null> } | null = null;

  constructor(enter: Enter) {
    this.#enter = enter;
  }

  /** Opens places while the cell still reports what it is: that takes about as long. They are used only if the report has this namespace. */
  openAhead(places: readonly NetworkPlace[]): void {
    const entering = this.#enter(places);
    // It is reported to what uses it.
    entering.catch(() => {});
    this.#ahead = { places, entering };
  }

  /** `reported`: the number of the namespace, as the cell's gate has it. Nothing is accepted in any other. */
  async listen(reported: string, places: readonly NetworkPlace[], accept: Accept): Promise<Listening> {
    const ahead = this.#ahead?.places === places ? this.#ahead.entering : null;
    if (ahead !== null) this.#ahead = null;
    const open = await (ahead ?? this.#enter(places));
    if (open === null || (open.ok && open.namespace !== reported)) {
      await closed(open);
      return { ok: false, reason: "the network of the cell is not one that this machine's kernel shows" };
    }
    if (open.ok) open.accept(accept);
    return open;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const unused = this.#ahead?.entering;
    this.#ahead = null;
    await closed((await unused?.catch(() => null)) ?? null);
  }
}

/** Enters the network of a process as root. `pid`: as this machine sees it. */
export async function enterFromOutside(pid: number, places: readonly NetworkPlace[]): Promise<OpenPlaces | null> {
  await using namespace = await openNetworkNamespace(pid).catch(nullFor("ENOENT", "ESRCH"));
  return namespace === null ? null : await openPlaces(namespace.descriptor, places);
}

/**
 * The same as an ordinary user, of a process in a user namespace that a process of this user's own has made, which is its parent. What enters as
 * root of the parent's has every right over the network of the child's (user_namespaces(7)).
 */
export async function enterAsOwner(pid: number, places: readonly NetworkPlace[]): Promise<OpenPlaces | null> {
  await using namespace = await openNetworkNamespace(pid).catch(nullFor("ENOENT", "ESRCH"));
  if (namespace === null) return null;
  const status = await readFile(`/proc/${pid}/status`, "latin1").catch(nullFor("ENOENT", "ESRCH"));
  const [, parent] = /^PPid:\t(\d+)$/m.exec(status ?? "") ?? [];
  await using users = await open(`/proc/${parent}/ns/user`, "r").catch(nullFor("ENOENT", "ESRCH"));
  return users === null ? null : await openPlaces(namespace.descriptor, places, users.fd);
}

async function closed(open: OpenPlaces | null): Promise<void> {
  if (open?.ok) await open[Symbol.asyncDispose]();
}

/** A network namespace that is held open. The kernel gives its number to no other one meanwhile. */
export interface NetworkNamespace extends AsyncDisposable {
  readonly descriptor: number;
}

/** That of a process; null if it is this process's own. Rejects if there is no such process. */
async function openNetworkNamespace(pid: number): Promise<NetworkNamespace | null> {
  const held: FileHandle = await open(`/proc/${pid}/ns/net`, "r");
  try {
    const [{ ino }, own] = await Promise.all([
      held.stat({ bigint: true }),
      stat("/proc/self/ns/net", { bigint: true }),
    ]);
    if (ino !== own.ino) return { descriptor: held.fd, [Symbol.asyncDispose]: () => held[Symbol.asyncDispose]() };
    await held.close();
    return null;
  } catch (error) {
    await held.close();
    throw error;
  }
}

/** It takes some 40 ms; a busy machine may need longer. */
const LIMIT_MS = 20_000;
/** What the program prints if it fails is shown up to here. */
const MAX_SHOWN_CHARS = 300;

/** Sockets that listen, and whose connections nothing takes yet. Disposing closes them. `namespace`: the kernel's number of theirs. */
export type OpenPlaces =
  | (AsyncDisposable & { readonly ok: true; readonly namespace: string; accept(accept: Accept): void })
  | { readonly ok: false; readonly reason: string };

/**
 * Listens at `places` in a network namespace that is another one than this process's. A short program enters it, makes the
 * sockets and hands them over; it has ended when this settles, so no connection can be accepted by it any more
 * (docs/facts.md, fact: listening-from-outside). Needs root, or a namespace of `users` in which this user is root. Rejects with `EngineTrouble`.
 */
export async function openPlaces(
  namespace: number,
  places: readonly NetworkPlace[],
  users: number | null = null,
): Promise<OpenPlaces> {
  return await takePlaces(start(namespace, users, listeningProgram(places)), places);
}

/** A program of Node as text. It hands its sockets over on the channel with which it is started. */
export function listeningProgram(places: readonly NetworkPlace[]): string {
  const wanted: InsidePlace[] = places.map(({ address, port }) => ({ address, port }));
  // In such a script the modules of Node are variables.
  return `(${listenInside})(net, fs, ${JSON.stringify(wanted)})`;
}

/** Takes what that program hands over on the channel of `child`, until `child` has ended and the channel is closed. */
export async function takePlaces(child: ChildProcess, places: readonly NetworkPlace[]): Promise<OpenPlaces> {
  const open: { readonly place: NetworkPlace; server: Server }[] = [];
  const namespaces = new Set<string>();
  const { promise: refused, resolve: refuse } = Promise.withResolvers<string>();
  const { promise: handedOver, resolve: end } = Promise.withResolvers<true>();
  child.once("disconnect", () => end(true));
  child.on("message", ({ place: index, namespace, failure }: InsideAnswer, handle) => {
    const place = places[index];
    if (place === undefined) return;
    if (failure !== undefined) refuse(`${place.address}:${place.port} cannot be opened (${failure})`);
    if (handle === undefined) return;
    namespaces.add(namespace);
    // Too early: the client may try again.
    open.push({ place, server: (handle as Server).on("connection", (socket: Socket) => socket.destroy()) });
  });
  // Not waited for: it would be for connections, which a host can keep open after the cell is gone.
  const close = async (): Promise<void> => {
    for (const { server } of open) server.close();
  };
  const accept = (take: Accept): void => {
    for (const one of open) {
      // Half open, as a tunnel must be: a client that has sent everything still waits for the answer.
      const options = { allowHalfOpen: true, noDelay: true };
      one.server = createServer(options, (socket) => take(one.place, socket)).listen(one.server);
    }
  };
  const trouble = (await troubleOf(child)) ?? ((await within(handedOver, LIMIT_MS)) ? null : "it is late");
  if (child.connected) child.disconnect();
  const reason = await Promise.race([refused, null]);
  const [namespace = "", ...others] = namespaces;
  if (trouble === null && reason === null && open.length === places.length && others.length === 0)
    return { ok: true, namespace, accept, [Symbol.asyncDispose]: close };
  await close();
  if (reason !== null) return { ok: false, reason };
  throw new EngineTrouble(`Corral could not listen in the cell's network: ${trouble ?? "an address is missing"}`);
}

function start(namespace: number, users: number | null, text: string): ChildProcess {
  const program = ["--input-type=commonjs", "--eval", text];
  const asRoot = users === null ? [] : ["--user=/proc/self/fd/5", "--preserve-credentials"];
  return spawn("nsenter", ["--net=/proc/self/fd/3", ...asRoot, "--", process.execPath, ...program], {
    stdio: ["ignore", "ignore", "pipe", namespace, "ipc", ...(users === null ? [] : [users])],
    env: SYSTEM_ENV,
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
}

/** Null if it ended well; all its messages have arrived then. */
async function troubleOf(child: ChildProcess): Promise<string | null> {
  let printed = "";
  child.stderr?.setEncoding("latin1").on("data", (chunk: string) => {
    printed = (printed + chunk).slice(0, MAX_SHOWN_CHARS);
  });
  return await new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(code === 0 ? null : `${signal ?? code}: ${printed.trim()}`));
  });
}

/** One answer of this program, with the listening socket if there is one. */
export interface InsideAnswer {
  /** The index of the place that was asked for. */
  readonly place: number;
  /** The kernel's number of the network namespace in which the program runs. */
  readonly namespace: string;
  /** Why nothing can listen there, e.g. `EADDRINUSE`; absent: the socket comes with this answer. */
  readonly failure?: string;
}

export interface InsidePlace {
  readonly address: string;
  readonly port: number;
}

/**
 * A separate program, started with its text inside the network namespace of a cell: it makes listening sockets there, hands
 * them to the process that started it, and ends. It must not use anything from outside of this function. A file of its own
 * would be found, read and parsed at each start of a cell.
 */
function listenInside(
  { createServer }: { readonly createServer: typeof makeServer },
  { readlinkSync }: { readonly readlinkSync: typeof readLink },
  places: readonly InsidePlace[],
): void {
  const namespace = readlinkSync("/proc/self/ns/net").replace(/\D/g, "");
  const servers: Server[] = [];
  /** Null if it listens. */
  const failureOf = (server: Server, host: string, port: number): Promise<string | null> =>
    new Promise((resolve) => {
      server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
      server.listen({ host, port, exclusive: true }, () => resolve(null));
    });
  const answerAll = async (): Promise<void> => {
    for (const [place, { address, port }] of places.entries()) {
      // Until this program has ended it accepts connections too: it ends those at once, and the client may retry.
      const server = createServer({ pauseOnConnect: true }, (socket) => socket.destroy());
      servers.push(server);
      const failure = await failureOf(server, address, port);
      const answer: InsideAnswer = failure === null ? { place, namespace } : { place, namespace, failure };
      await new Promise((sent) => process.send?.(answer, failure === null ? server : undefined, {}, sent));
      if (failure !== null || !process.connected) return;
    }
  };
  void answerAll().then(() => process.connected && process.disconnect());
  // Also if the other process has ended: open sockets would keep this program.
  process.once("disconnect", () => {
    for (const server of servers) server.close();
  });
}

/**
 * A program of Node, as text, for a container whose network this process cannot enter: it connects to the Unix socket at `path`
 * there, and starts `program` with a channel to the process that {@link giveChannel} starts. Node can hand sockets over on such
 * a channel only. A second program receives it, since Node takes a channel only when it starts.
 */
export function enteringProgram(path: string, program: string): string {
  const receiving = `(${enterInside})(net, child_process, null, ${JSON.stringify(program)})`;
  return `(${enterInside})(net, child_process, ${JSON.stringify(path)}, ${JSON.stringify(receiving)})`;
}

/**
 * Gives the program at the other end of `socket` the channel of a new child process, which then ends: what this process
 * receives from the child is what the program sends.
 */
export function giveChannel(socket: Socket): ChildProcess {
  const program = ["--input-type=commonjs", "--eval", `(${sendChannel})(net)`];
  // Node would use the channel itself that it is started with, so that is another one: descriptor 4, and 3 is the one to give.
  return spawn("env", ["NODE_CHANNEL_FD=4", process.execPath, ...program], {
    stdio: ["ignore", "ignore", "pipe", "ipc", socket],
    env: SYSTEM_ENV,
    timeout: LIMIT_MS,
    killSignal: "SIGKILL",
  });
}

/** A separate program: it must not use anything from outside of this function. */
function sendChannel({ Socket: Channel }: { readonly Socket: typeof Socket }): void {
  const channel = new Channel({ fd: 3, readable: false, writable: false });
  process.send?.({}, channel, {}, () => process.disconnect());
}

/** A separate program, as above, which ends with the one that it starts. `path`: null if it is to receive its socket on its channel. */
function enterInside(
  { connect }: { readonly connect: typeof connectTo },
  { spawn }: { readonly spawn: typeof startProgram },
  path: string | null,
  next: string,
): void {
  const passOn = (socket: Socket): void => {
    spawn(process.execPath, ["--input-type=commonjs", "--eval", next], {
      stdio: ["ignore", "ignore", "ignore", socket],
      env: { NODE_CHANNEL_FD: "3" },
    });
    socket.destroy();
  };
  if (path === null) {
    process.once("message", (_, socket) => {
      process.disconnect();
      passOn(socket as Socket);
    });
    return;
  }
  const socket = connect(path, () => passOn(socket));
}

/** A Unix socket for one connection. */
export interface Door extends AsyncDisposable {
  readonly path: string;
  /** The first one; there is no other. It is not read. Disposing closes it. */
  readonly connection: Promise<Socket>;
}

/**
 * In a directory of its own below `liveDir`, which no other user of the host can enter: who is given the socket alone, as a mount,
 * can connect. If this process dies, the directory is removed as any of its owner.
 */
export async function openDoor(liveDir: string, owner: Owner): Promise<Door> {
  const dir = await makeOwnerDir(liveDir, owner);
  const server = createServer({ pauseOnConnect: true });
  const { promise: connection, resolve } = Promise.withResolvers<Socket>();
  let first: Socket | null = null;
  server.once("connection", (socket: Socket) => {
    // An error is one of the programs at its ends, which have ended then.
    first = socket.on("error", () => {});
    resolve(socket);
    server.close();
  });
  const close = async (): Promise<void> => {
    server.close();
    first?.destroy();
    await removeOwnerDir(dir);
  };
  try {
    const path = join(dir, "s");
    await listen(server, path);
    // Connecting needs write permission, and the user of the container is another one.
    await chmod(path, 0o666);
    return { path, connection, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(path, resolve);
  });
}
