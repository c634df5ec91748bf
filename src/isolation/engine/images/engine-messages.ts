import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { z } from "zod";

/** One message of the Engine while it pulls, builds or imports. */
const EngineMessage = z.object({
  stream: z.string().optional(),
  status: z.string().optional(),
  error: z.string().optional(),
});
export type EngineMessage = z.infer<typeof EngineMessage>;

/** Reads the Engine's messages one by one. An unknown line is skipped: newer Engines send other kinds too. */
export async function* readMessages(stream: NodeJS.ReadableStream): AsyncGenerator<EngineMessage> {
  // A broken connection must end with its error; readline alone would treat it as the end.
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => {});
  stream.once("error", failed.reject);
  const lines = createInterface({ input: stream })[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([lines.next(), failed.promise]);
      if (next.done) return;
      const message = EngineMessage.safeParse(parseLine(next.value));
      if (message.success) yield message.data;
    }
  } finally {
    if (stream instanceof Readable) stream.destroy();
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
