import { once } from "node:events";
import { createInterface } from "node:readline";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { type Around, type Command, startWithin } from "../cli/within-process.ts";

/** A client's side of a server that runs in this process, over the same streams as one in a process of its own. */
export class WithinTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly #start: () => Command;
  #server: Command | null = null;

  constructor(args: readonly string[], around: Around, said: (text: string) => void) {
    this.#start = () => {
      const server = startWithin(args, around);
      server.stderr.setEncoding("utf8").on("data", said);
      createInterface({ input: server.stdout }).on("line", (line) => {
        try {
          this.onmessage?.(JSON.parse(line) as JSONRPCMessage);
        } catch (error) {
          this.onerror?.(error as Error);
        }
      });
      void server.ended.then(() => this.onclose?.());
      return server;
    };
  }

  async start(): Promise<void> {
    this.#server = this.#start();
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const { stdin } = this.#server ?? {};
    if (stdin?.write(`${JSON.stringify(message)}\n`) === false) await once(stdin, "drain");
  }

  async close(): Promise<void> {
    this.#server?.stdin.end();
    await this.#server?.ended;
  }
}
