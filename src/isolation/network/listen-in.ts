import { type ChildProcess, spawn } from "node:child_process";
import { createServer, type Server, type Socket } from "node:net";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import type { NetworkPlace } from "../../sandbox/network/places.ts";
import type { Accept } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import { type InsideAnswer, listenInside } from "./listen-inside.ts";

/** It takes some 40 ms; a busy machine may need longer. */
const LIMIT_MS = 20_000;
/** What the program prints if it fails is shown up to here. */
const MAX_SHOWN_CHARS = 300;

/** Sockets that listen, and whose connections nothing takes yet. Disposing closes them. */
export type OpenPlaces =
  | (AsyncDisposable & { readonly ok: true; accept(accept: Accept): void })
  | { readonly ok: false; readonly reason: string };

/**
 * Listens at `places` in a network namespace that is another one than this process's. A short program enters it, makes the
 * sockets and hands them over; it has ended when this settles, so no connection can be accepted by it any more
 * (docs/architecture.md, fact: listening-from-outside). Needs root. Rejects with `EngineTrouble`.
 */
export async function openPlaces(namespace: number, places: readonly NetworkPlace[]): Promise<OpenPlaces> {
  const open: { readonly place: NetworkPlace; server: Server }[] = [];
  const { promise: refused, resolve: refuse } = Promise.withResolvers<string>();
  const child = start(namespace);
  child.on("message", ({ place: index, failure }: InsideAnswer, handle) => {
    const place = places[index];
    if (place === undefined) return;
    if (failure !== undefined) refuse(`${place.address}:${place.port} cannot be opened (${failure})`);
    if (handle === undefined) return;
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
  // Its end says so if it cannot take the message.
  child.send(
    places.map(({ address, port }) => ({ address, port })),
    () => {},
  );
  const trouble = await troubleOf(child);
  const reason = await Promise.race([refused, null]);
  if (trouble === null && reason === null && open.length === places.length)
    return { ok: true, accept, [Symbol.asyncDispose]: close };
  await close();
  if (reason !== null) return { ok: false, reason };
  throw new EngineTrouble(`Corral could not listen in the cell's network: ${trouble ?? "an address is missing"}`);
}

function start(namespace: number): ChildProcess {
  // In such a script the modules of Node are variables.
  const program = ["--input-type=commonjs", "--eval", `(${listenInside})(net)`];
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
