import { type ChildProcess, spawn, type spawn as startProgram } from "node:child_process";
import { chmod } from "node:fs/promises";
import { type connect as connectTo, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import type { Owner } from "../../state/owner.ts";

/** It takes some 100 ms; a busy machine may need longer. */
const LIMIT_MS = 20_000;

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
