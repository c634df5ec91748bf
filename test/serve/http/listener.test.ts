import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterEach, expect, it } from "vitest";
import type { Refusals } from "../../../src/serve/http/fault.ts";
import { ListenError, type Listener, listen } from "../../../src/serve/http/listener.ts";

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

async function listening(host: string, port: number): Promise<Listener> {
  const listener = await listen({ kind: "tcp", host, port }, (_, response) => response.end(), {} as Refusals);
  open.push(() => listener.close(0));
  return listener;
}

/** Another program that would share its port: the port, or the code of the error. */
async function other(host: string, port: number): Promise<number | string> {
  const server = createServer().listen({ host, port, reusePort: true });
  open.push(() => new Promise((resolve) => server.close(resolve)));
  const error = await once(server, "listening").then(
    () => null,
    (thrown: NodeJS.ErrnoException) => String(thrown.code),
  );
  return error ?? (server.address() as AddressInfo).port;
}

it.each(["127.0.0.1", "::1"])(
  "a port at %s that a service or another program has is refused, also if that would share it",
  async (host) => {
    const { address } = await listening(host, 0);
    const port = address.kind === "tcp" ? address.port : 0;
    await expect(listening(host, port)).rejects.toThrow(ListenError);
    const taken = await other(host, 0);
    await expect(listening(host, Number(taken))).rejects.toThrow("EADDRINUSE");
  },
);
