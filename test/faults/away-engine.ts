import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect as connectTo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ENGINE = "/var/run/docker.sock";

/** The Engine behind a socket that can be taken away, as by an Engine that is restarted. */
export interface AwayEngine extends AsyncDisposable {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Every connection breaks, and there is no socket. */
  go(): Promise<void>;
  comeBack(): Promise<void>;
}

/** `isAway`: it is away at the beginning. */
export async function openAwayEngine({ isAway = false } = {}): Promise<AwayEngine> {
  const dir = await mkdtemp(join(tmpdir(), "ae-"));
  const path = join(dir, "s");
  const open = new Set<Socket>();
  let server: Server | null = null;
  const comeBack = async (): Promise<void> => {
    server = createServer({ allowHalfOpen: true }, (client) => {
      const engine = connectTo({ path: ENGINE, allowHalfOpen: true });
      for (const [one, other] of [
        [client, engine],
        [engine, client],
      ] as const) {
        open.add(one);
        one
          .on("error", () => {})
          .on("close", () => {
            open.delete(one);
            other.destroy();
          });
        one.pipe(other);
      }
    }).listen(path);
    await once(server, "listening");
  };
  const go = async (): Promise<void> => {
    if (server === null) return;
    const closed = once(server, "close");
    server.close();
    for (const socket of open) socket.destroy();
    await closed;
    server = null;
  };
  if (!isAway) await comeBack();
  return {
    env: { ...process.env, DOCKER_HOST: `unix://${path}` },
    go,
    comeBack,
    async [Symbol.asyncDispose]() {
      await go();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
