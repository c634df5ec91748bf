import { createServer } from "node:net";
import { pipeline } from "node:stream";
import { connectToPort } from "../../client/node.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { printableLine } from "../../text/visible.ts";
import { portOf, UsageError } from "../terminal/arguments.ts";
import { EXIT, printList, printResult, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { using } from "./held.ts";

type Port = AnswerOf<"ports.list">["ports"][number];

export async function portsVerb(
  name: string,
  { json, link }: { readonly json?: boolean; readonly link?: string },
  terminal: Terminal,
): Promise<number> {
  return await using(name, terminal, async ({ client, session }) => {
    if (link !== undefined) {
      const shown = await client.call("ports.show", { session, port: portOf(link) });
      printResult(terminal, json, shown, () => shown.url);
      return 0;
    }
    const { ports } = await client.call("ports.list", { session });
    printList<Port>(terminal, json, ports, {
      head: ["PORT", "NAME", "LISTENS", "CAN BE SEEN", "ADDRESS"],
      rowOf: ({ port, name: of, isListening, isAllowed, address }) => [
        String(port),
        printableLine(of ?? "-", 80),
        isListening ? "yes" : "no",
        isAllowed ? "yes" : "no: the worker does not declare it",
        address ?? "-",
      ],
      none: "The worker declares no ports, and nothing listens.",
    });
    return 0;
  });
}

/** Connections of programs of this machine at once; the session has fewer, and refuses more. */
const MAX_CONNECTIONS = 64;

/** Listens at 127.0.0.1, and passes each connection to the session, until it is stopped or the session has ended. */
export async function forwardVerb(name: string, ports: string, terminal: Terminal): Promise<number> {
  const [local, inside] = ports.includes(":") ? ports.split(":", 2) : ["0", ports];
  const port = portOf(inside ?? "");
  const at = local === "0" ? 0 : portOf(local ?? "");
  using stop = stoppable(terminal, () => {});
  return await using(name, terminal, async ({ name: of, address, token, client, session }) => {
    const { ports: known } = await client.call("ports.list", { session });
    if (!known.some((one) => one.port === port && one.isAllowed))
      throw new UsageError(
        `the worker does not declare port ${port}; add it to its \`ports\`, or start the session with --port ${port}`,
      );
    const said = new Set<string>();
    const server = createServer({ allowHalfOpen: false, noDelay: true }, (socket) => {
      socket.on("error", () => {});
      connectToPort(address, token, { session, port }, stop.signal).then(
        (connection) => {
          pipeline(socket, connection, () => {});
          pipeline(connection, socket, () => {});
        },
        (error: Error) => {
          socket.destroy();
          // A browser asks again and again.
          if (!said.has(error.message) && !stop.signal.aborted)
            say(terminal, `corral: ${printableLine(error.message, 500)}`);
          said.add(error.message);
        },
      );
    });
    server.maxConnections = MAX_CONNECTIONS;
    const ended = Promise.withResolvers<number>();
    server.once("error", (error) =>
      ended.reject(new UsageError(`127.0.0.1:${at} cannot be listened on: ${error.message}`)),
    );
    server.listen({ host: "127.0.0.1", port: at }, () => {
      const taken = server.address();
      terminal.stdout.write(`127.0.0.1:${typeof taken === "object" ? taken?.port : ""} -> ${of}:${port}\n`);
    });
    const over = (): void => ended.resolve(EXIT.cancelled);
    stop.signal.addEventListener("abort", over, { once: true });
    if (stop.signal.aborted) over();
    try {
      return await ended.promise;
    } finally {
      server.close();
    }
  });
}
