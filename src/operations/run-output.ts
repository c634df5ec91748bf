import { setTimeout as sleep } from "node:timers/promises";
import { keptPieces, type StreamName } from "../history/kept-stream.ts";
import { readRun } from "../history/run-record.ts";
import { lockOwner } from "../state/owner.ts";
import type { ProjectPlace } from "./audit.ts";
import { foundRun } from "./runs.ts";

export interface OutputOptions {
  readonly streams: readonly StreamName[];
  /** Only the last lines of each stream; absent: all that is kept. */
  readonly lines?: number;
  /** Until the run has ended. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

/** A part of what a run printed, as it printed it. */
export interface OutputPiece {
  readonly stream: StreamName;
  readonly bytes: Buffer;
  /** How many bytes before it are not kept. */
  readonly missingBytes: number;
}

const LOOK_MS = 200;
const LINE_BREAK = 0x0a;

/**
 * What a run printed, one stream after the other. Of a long stream the first 512 KiB and at least the last 512 KiB are kept.
 *
 * @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID, before the first piece
 */
export async function runOutput(
  place: ProjectPlace,
  asked: string,
  { streams, lines, follow = false, signal }: OutputOptions,
): Promise<AsyncGenerator<OutputPiece, void, undefined>> {
  const { dir } = await foundRun(place, asked);
  return (async function* () {
    const { isDead } = lockOwner();
    const at: Record<StreamName, number> = { stdout: 0, stderr: 0 };
    for (let only = lines; ; only = undefined) {
      // Looked at before the pieces are read: what was written before the end is not missed.
      const isOver = (await readRun(dir, isDead))?.status !== "running";
      for (const stream of streams) {
        const pieces = only === undefined ? piecesFrom(dir, stream, at[stream]) : lastLines(dir, stream, only);
        for await (const { end, ...piece } of pieces) {
          at[stream] = end;
          yield piece;
        }
      }
      if (!follow || isOver || signal?.aborted) return;
      await sleep(LOOK_MS);
    }
  })();
}

type Placed = OutputPiece & {
  /** Of the piece in the stream. */
  readonly end: number;
};

async function* piecesFrom(dir: string, stream: StreamName, from: number): AsyncGenerator<Placed, void, undefined> {
  let at = from;
  for await (const { offset, bytes } of keptPieces(dir, stream, from)) {
    const end = offset + bytes.length;
    yield { stream, bytes, missingBytes: offset - at, end };
    at = end;
  }
}

/** Everything that is kept fits in memory. */
async function* lastLines(dir: string, stream: StreamName, lines: number): AsyncGenerator<Placed, void, undefined> {
  const pieces = await Array.fromAsync(piecesFrom(dir, stream, 0));
  const chosen: Placed[] = [];
  let left = lines;
  for (const piece of pieces.toReversed()) {
    const { bytes } = piece;
    // A line break at the very end begins no line.
    let at = bytes.length - (chosen.length === 0 && bytes.at(-1) === LINE_BREAK ? 1 : 0);
    for (; left > 0 && at >= 0; left -= at < 0 ? 0 : 1) at = at === 0 ? -1 : bytes.lastIndexOf(LINE_BREAK, at - 1);
    chosen.unshift(at < 0 ? piece : { ...piece, bytes: bytes.subarray(at + 1), missingBytes: 0 });
    if (at >= 0) break;
  }
  yield* chosen;
}
