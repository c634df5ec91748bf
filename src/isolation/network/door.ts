import { chmod } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import type { Owner } from "../../state/owner.ts";

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
