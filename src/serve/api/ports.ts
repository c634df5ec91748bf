import { once } from "node:events";
import type { Duplex } from "node:stream";
import { ServiceFault } from "../http/fault.ts";
import type { Handlers } from "../http/router.ts";
import { ShownPort } from "../ports/shown-port.ts";
import { refuseStopping, type Served } from "./owned.ts";

/** Each has a port of this machine. */
const MAX_SHOWN = 256;
/** What a client asks for that wants the connection itself. */
export const PORT_PROTOCOL = "corral-port";

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
