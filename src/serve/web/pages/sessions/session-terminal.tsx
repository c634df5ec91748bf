import type { Terminal } from "@xterm/headless";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type ServiceClient } from "../../../../client/client.ts";
import { useApp, useStream } from "../../app/resource.ts";
import { ErrorNote } from "../../components/notes.tsx";
import { VirtualList } from "../../components/table.tsx";
import { TerminalLine } from "../../components/visible.tsx";
import { keyText, pastedText, screenRow } from "../../text/ansi.ts";

const ROW_PX = 19;
const ROWS = 30;
const SCROLLBACK = 5000;
const DRAW_MS = 30;
const MEASURED = 40;
const FEWEST_COLUMNS = 20;
const MOST_COLUMNS = 240;

/**
 * A terminal of a session's command. The library only keeps the screen: what is on it is drawn as all texts of workers are, so no sequence of it is
 * more than a text of this page.
 */
export function SessionTerminal({
  session,
  command,
  isLive,
  ended,
}: {
  readonly session: string;
  readonly command: string;
  readonly isLive: boolean;
  readonly ended: () => void;
}) {
  const { client } = useApp();
  const box = useRef<HTMLDivElement>(null);
  const measure = useRef<HTMLSpanElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const [terminal, setTerminal] = useState<Terminal | null>(null);
  const [isFocused, setFocused] = useState(false);
  const typed = useRef<TypedText | null>(null);
  const { error, setError, draw } = useStream(
    async ({ signal, changed }) => {
      const { Terminal } = await import("@xterm/headless");
      const screen = new Terminal({ cols: 100, rows: ROWS, scrollback: SCROLLBACK, allowProposedApi: true });
      signal.addEventListener("abort", () => screen.dispose());
      if (signal.aborted) return;
      setTerminal(screen);
      const begun = Date.now();
      for await (const { event } of client.follow("sessions.output", { session, command }, { signal })) {
        if (event.type === "ended") ended();
        if (event.type !== "printed") continue;
        // What was asked before this view was there was answered then.
        typed.current?.answers(screen, Date.parse(event.at) - begun > ANSWERED_MS);
        await new Promise<void>((resolve) => screen.write(bytesOf(event.base64), resolve));
        changed();
      }
    },
    [client, session, command, ended],
    DRAW_MS,
  );
  typed.current ??= new TypedText(client, { session, command }, setError);
  useEffect(() => {
    const element = box.current;
    if (terminal === null || element === null) return;
    const fitted = (): void => {
      const width = (measure.current?.getBoundingClientRect().width ?? 0) / MEASURED;
      if (width === 0) return;
      const columns = Math.min(MOST_COLUMNS, Math.max(FEWEST_COLUMNS, Math.floor((element.clientWidth - 44) / width)));
      if (columns === terminal.cols) return;
      terminal.resize(columns, ROWS);
      draw();
      if (isLive) client.call("sessions.resize", { session, command, columns, rows: ROWS }).catch(() => {});
    };
    fitted();
    const observer = new ResizeObserver(fitted);
    observer.observe(element);
    return () => observer.disconnect();
  }, [terminal, client, session, command, isLive]);
  useEffect(() => {
    if (isLive) field.current?.focus();
  }, [isLive]);
  const send = (text: string): void => typed.current?.send(text);
  const buffer = terminal?.buffer.active ?? null;
  const cursorRow = buffer === null ? -1 : buffer.baseY + buffer.cursorY;
  return (
    <>
      {error === null ? null : <ErrorNote error={error} />}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents lint/a11y/noStaticElementInteractions: the field inside takes the keys. */}
      <div
        ref={box}
        class={`terminal terminal-screen${isFocused ? " is-focused" : ""}`}
        style={{ height: `${ROWS * ROW_PX + 14}px` }}
        onClick={() => {
          if (getSelection()?.isCollapsed !== false) field.current?.focus();
        }}
      >
        <VirtualList
          count={buffer?.length ?? 0}
          rowPx={ROW_PX}
          row={(index) => (
            <TerminalLine
              line={
                buffer === null ? [] : screenRow(buffer, index, index === cursorRow && isLive ? buffer.cursorX : null)
              }
            />
          )}
          label="The screen of the terminal"
          role="log"
          stick
        />
        <span ref={measure} class="terminal-measure" aria-hidden="true">
          {"m".repeat(MEASURED)}
        </span>
        {isLive ? (
          <textarea
            ref={field}
            class="terminal-field"
            aria-label="Keys for the terminal. Shift and Tab leave it."
            autoComplete="off"
            autoCapitalize="off"
            spellcheck={false}
            onFocus={() => setFocused(true)}
            onBlur={() => setFocused(false)}
            onKeyDown={(event) => {
              if (event.isComposing) return;
              const text = keyText(event, terminal?.modes.applicationCursorKeysMode ?? false);
              if (text === null) return;
              event.preventDefault();
              send(text);
            }}
            onPaste={(event) => {
              event.preventDefault();
              const text = event.clipboardData?.getData("text") ?? "";
              send(pastedText(text, terminal?.modes.bracketedPasteMode ?? false));
            }}
            onInput={(event) => {
              if (event.isComposing) return;
              send(event.currentTarget.value);
              event.currentTarget.value = "";
            }}
            onCompositionEnd={({ currentTarget }) => {
              send(currentTarget.value);
              currentTarget.value = "";
            }}
          />
        ) : null}
      </div>
      {isLive ? <p class="quiet">Shift and Tab leave the terminal. It stays open if you leave this page.</p> : null}
    </>
  );
}

/** The clocks of the service and of the browser differ a little. */
const ANSWERED_MS = -2000;
const MAX_TYPED_CHARS = 256 * 1024;

interface OfCommand {
  readonly session: string;
  readonly command: string;
}

/** What is typed, in its order: one request at a time, with all that has come meanwhile. */
class TypedText {
  readonly #client: ServiceClient;
  readonly #command: OfCommand;
  readonly #failed: (error: ApiError) => void;
  #waiting = "";
  #isSending = false;
  #answers: { dispose(): void } | null = null;

  constructor(client: ServiceClient, command: OfCommand, failed: (error: ApiError) => void) {
    this.#client = client;
    this.#command = command;
    this.#failed = failed;
  }

  send(text: string): void {
    this.#waiting = (this.#waiting + text).slice(0, MAX_TYPED_CHARS);
    if (!this.#isSending) void this.#sendAll();
  }

  /** A program may ask the terminal, for example where its cursor is. */
  answers(screen: Terminal, isWanted: boolean): void {
    if (isWanted) this.#answers ??= screen.onData((text) => this.send(text));
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    try {
      while (this.#waiting !== "") {
        const bytes = new TextEncoder().encode(this.#waiting);
        this.#waiting = "";
        await this.#client.upload("sessions.input", this.#command, bytes);
      }
    } catch (fault) {
      this.#waiting = "";
      if (fault instanceof ApiError) this.#failed(fault);
    } finally {
      this.#isSending = false;
    }
  }
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
