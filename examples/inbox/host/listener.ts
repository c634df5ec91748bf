import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";

/** A server on this machine that no worker may reach. */
export interface Listener extends AsyncDisposable {
  readonly port: number;
  /** An address of this machine that is not loopback, if it has one; else 127.0.0.1. */
  readonly address: string;
  visitors(): number;
}

export async function openListener(): Promise<Listener> {
  let visitors = 0;
  const server = createServer((socket) => {
    visitors += 1;
    socket.destroy();
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    address: outerAddress() ?? "127.0.0.1",
    visitors: () => visitors,
    async [Symbol.asyncDispose]() {
      server.close();
      await once(server, "close");
    },
  };
}

function outerAddress(): string | undefined {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.find(({ family, internal }) => family === "IPv4" && !internal)?.address;
}
