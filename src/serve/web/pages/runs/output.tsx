import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { ApiError, isTemporary } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, roughBytesText } from "../../../../text/amounts.ts";
import { useApp } from "../../app/context.ts";
import { VirtualList } from "../../components/virtual-list.tsx";
import { TerminalLine, Visible } from "../../components/visible.tsx";
import { KeptLines } from "../../text/ansi.ts";

type Run = AnswerOf<"runs.show">;

type Stream = "stdout" | "stderr";

/** Of a long output the end. */
const LAST_LINES = 20_000;
const ROW_PX = 19;
const MAX_ROWS = 24;
const DRAW_MS = 100;
const AGAIN_MS = 2000;

/** What a run prints, while it does. */
export function RunOutput({ run }: { readonly run: Run }) {
  const [stream, setStream] = useState<Stream>("stdout");
  const isRunning = run.status === "running";
  const { lines, error } = useOutput(run.id, stream, isRunning);
  const { bytes, keptBytes } = run[stream];
  return (
    <section class="part" aria-labelledby="output-title">
      <div class="part-head">
        <h2 id="output-title">Output</h2>
        <fieldset class="switch">
          <legend class="unseen">Stream</legend>
          {(["stdout", "stderr"] as const).map((name) => (
            <button key={name} type="button" aria-pressed={name === stream} onClick={() => setStream(name)}>
              {name}
              <span class="quiet"> {roughBytesText(run[name].bytes)}</span>
            </button>
          ))}
        </fieldset>
      </div>
      {error === null ? null : (
        <p class="quiet">
          <Visible text={error.message} />
        </p>
      )}
      {lines.count === 0 ? (
        <p class="quiet terminal-empty">{isRunning ? "It has printed nothing yet." : "It printed nothing."}</p>
      ) : (
        <div class="terminal" style={{ height: `min(60vh, ${Math.min(MAX_ROWS, lines.count) * ROW_PX + 14}px)` }}>
          <VirtualList
            count={lines.count}
            rowPx={ROW_PX}
            row={(index) => <TerminalLine line={lines.at(index)} />}
            label={`What it prints (${stream})`}
            role="log"
            stick
          />
        </div>
      )}
      <p class="quiet">
        {lines.dropped > 0 || keptBytes < bytes ? "Only the end is shown. " : ""}
        {counted(lines.count, "line")}
        {lines.dropped > 0 ? `, ${countText(lines.dropped)} before them` : ""}
        {isRunning ? <span aria-live="polite">, still running</span> : null}
      </p>
    </section>
  );
}

/** The lines of a stream as they come. They are kept outside of the state, and drawn at most ten times in a second. */
function useOutput(
  run: string,
  stream: Stream,
  isRunning: boolean,
): { readonly lines: KeptLines; readonly error: ApiError | null } {
  const { client } = useApp();
  const kept = useRef(new KeptLines());
  const [error, setError] = useState<ApiError | null>(null);
  const [, draw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const over = new AbortController();
    let timer: ReturnType<typeof setTimeout> | null = null;
    const drawSoon = (): void => {
      timer ??= setTimeout(() => {
        timer = null;
        draw(0);
      }, DRAW_MS);
    };
    const follow = async (): Promise<void> => {
      const ask = { run, stream, lines: LAST_LINES, follow: isRunning };
      const pieces = await client.download("runs.output", ask, { signal: over.signal });
      // After a connection that broke, all is read anew.
      kept.current = new KeptLines();
      setError(null);
      for await (const piece of pieces) {
        kept.current.push(piece);
        drawSoon();
      }
      drawSoon();
    };
    const keepFollowing = async (): Promise<void> => {
      while (!over.signal.aborted) {
        try {
          return await follow();
        } catch (fault) {
          if (over.signal.aborted) return;
          if (fault instanceof ApiError) setError(fault);
          if (fault instanceof ApiError && !isTemporary(fault)) return;
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        }
      }
    };
    kept.current = new KeptLines();
    draw(0);
    void keepFollowing();
    return () => {
      over.abort();
      if (timer !== null) clearTimeout(timer);
    };
  }, [client, run, stream, isRunning]);
  return { lines: kept.current, error };
}
