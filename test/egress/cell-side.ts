import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type Egress, type EgressRequest, openEgress } from "../../src/egress/egress.ts";
import type { DeniedTraffic } from "../../src/sandbox/network/judge.ts";
import type { NetworkPlace, NetworkRule } from "../../src/sandbox/network/rule.ts";

/** Rules of tests may dial servers of the test. */
export const LOOPBACK: Pick<NetworkRule, "addresses"> = { addresses: ["127.0.0.0/8", "::1/128"] };

/** An egress with places that listen on this machine's loopback, as they would in a cell. */
export interface CellSide extends AsyncDisposable {
  readonly egress: Egress;
  /** Names that were looked up. */
  readonly lookups: string[];
  /** Denied traffic, as it was reported at once. */
  readonly denied: DeniedTraffic[];
  /** The port on 127.0.0.1 of a place. */
  port(host: string | null, port?: number): Promise<number>;
  connect(host: string | null, port?: number): Promise<Socket>;
}

export function cellSide(request: Pick<EgressRequest, "network"> & Partial<EgressRequest>): CellSide {
  const [lookups, denied]: [string[], DeniedTraffic[]] = [[], []];
  const egress = openEgress({
    resolve: async (host) => {
      lookups.push(host);
      return ["127.0.0.1"];
    },
    secretOf: async (name) => {
      throw new Error(`no secret ${name}`);
    },
    onDenied: (traffic) => denied.push(traffic),
    ...request,
  });
  const servers = new Map<string, Promise<Server>>();
  const listening = async (place: NetworkPlace): Promise<Server> => {
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) =>
      egress.accept(place, socket),
    );
    await once(server.listen(0, "127.0.0.1"), "listening");
    return server;
  };
  const port = async (host: string | null, inside = 443): Promise<number> => {
    const key = `${host}:${inside}`;
    const server = servers.get(key) ?? listening({ address: "127.88.1.1", port: inside, host });
    servers.set(key, server);
    return ((await server).address() as AddressInfo).port;
  };
  return {
    egress,
    lookups,
    denied,
    port,
    connect: async (host, inside) => {
      const socket = connect({ port: await port(host, inside), host: "127.0.0.1", allowHalfOpen: true });
      socket.on("error", () => {});
      await once(socket, "connect");
      return socket;
    },
    async [Symbol.asyncDispose]() {
      await egress[Symbol.asyncDispose]();
      await Promise.all([...servers.values()].map(async (server) => (await server).close()));
    },
  };
}
