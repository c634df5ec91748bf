import { type ChildProcess, spawn } from "node:child_process";
import { createServer, type Server, type Socket } from "node:net";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { within } from "../../platform/within.ts";
import type { NetworkPlace } from "../../sandbox/network/rule.ts";
import type { Accept } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import { type InsideAnswer, type InsidePlace, listenInside } from "./listen-inside.ts";

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
 * (docs/architecture.md, fact: listening-from-outside). Needs root. Rejects with `EngineTrouble`.
 */
export async function openPlaces(namespace: number, places: readonly NetworkPlace[]): Promise<OpenPlaces> {
  return await takePlaces(start(namespace, listeningProgram(places)), places);
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

function start(namespace: number, text: string): ChildProcess {
  const program = ["--input-type=commonjs", "--eval", text];
  return spawn("nsenter", ["--net=/proc/self/fd/3", "--", process.execPath, ...program], {
    stdio: ["ignore", "ignore", "pipe", namespace, "ipc"],
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
