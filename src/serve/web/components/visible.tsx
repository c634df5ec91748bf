import { useState } from "preact/hooks";
import { agoText, words } from "../../../text/amounts.ts";
import { clipped, printable, visibleName, visibleParts } from "../../../text/visible.ts";
import type { AnsiLine, AnsiLook } from "../text/ansi.ts";

const SHOWN_MS = 1500;

/** Commands or other text to copy. What is copied is what is shown: a hidden character by its code, so that no terminal obeys it. */
export function CodeBlock({ text, label = "Copy" }: { readonly text: string; readonly label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async (): Promise<void> => {
    const isCopied = await navigator.clipboard.writeText(printable(text, "\n\t", "kept")).then(
      () => true,
      () => false,
    );
    setSaid(isCopied ? "Copied" : "Not copied");
    setTimeout(() => setSaid(""), SHOWN_MS);
  };
  return (
    <div class="code-block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>
        <code>
          <Visible text={text} />
        </code>
      </pre>
      <button type="button" class="button button-quiet" onClick={() => void copy()}>
        <span aria-live="polite">{said === "" ? label : said}</span>
      </button>
    </div>
  );
}

/**
 * A text that a worker chose. It is never HTML, nothing in it is invisible, and it is drawn in the order of its characters, whatever way they
 * run: it can turn around neither itself nor what is beside it.
 */
export function Visible({ text, max = Number.POSITIVE_INFINITY }: { readonly text: string; readonly max?: number }) {
  return (
    <bdo dir="ltr">
      {visibleParts(clipped(text, max)).map((part, index) =>
        part.isHidden ? (
          <span key={index} class="hidden-character" title="what has no mark of its own, by its code">
            {part.text}
          </span>
        ) : (
          part.text
        ),
      )}
    </bdo>
  );
}

/** A path: whole, and in quotes if it could be taken for another one. */
export function Name({ text }: { readonly text: string }) {
  return <Visible text={visibleName(text, "kept")} />;
}

/** An age; its title has the time itself. */
export function Ago({ at, now }: { readonly at: string; readonly now: number }) {
  return (
    <time dateTime={at} title={at}>
      {agoText(at, now)}
    </time>
  );
}

/** One line of a terminal, in the colours of the page. */
export function TerminalLine({ line }: { readonly line: AnsiLine }) {
  return (
    <div class="terminal-line">
      {line.map(({ text, look }, index) => (
        <span key={index} class={classOf(look)}>
          <Visible text={text} max={5000} />
        </span>
      ))}
    </div>
  );
}

function classOf({
  color,
  ground,
  isBold,
  isDim,
  isItalic,
  isUnderlined,
  isInverse,
  isCursor,
}: AnsiLook): string | undefined {
  const names = [
    color === null ? "" : `ink-${color}`,
    ground === null ? "" : `ground-${ground}`,
    isBold ? "is-bold" : "",
    isDim ? "is-dim" : "",
    isItalic ? "is-italic" : "",
    isUnderlined ? "is-underlined" : "",
    isInverse ? "is-inverse" : "",
    isCursor ? "is-cursor" : "",
  ].filter((name) => name !== "");
  return names.length === 0 ? undefined : names.join(" ");
}

export type Tone = "good" | "bad" | "warn" | "busy" | "plain";

const TONES: Readonly<Record<string, Tone>> = {
  succeeded: "good",
  done: "good",
  approved: "good",
  applied: "good",
  ok: "good",
  running: "busy",
  waiting: "busy",
  queued: "busy",
  cancelled: "warn",
  refused: "warn",
  denied: "warn",
  held: "warn",
  paused: "warn",
  pending: "warn",
  withdrawn: "warn",
  interrupted: "warn",
  skipped: "warn",
  stopped: "warn",
  closed: "plain",
};

const MARKS: Readonly<Record<Tone, string>> = { good: "✓", bad: "✗", warn: "■", busy: "●", plain: "·" };

/** How something ended, or that it still runs, by word, mark and colour: each is enough alone. */
export function StatusBadge({ status }: { readonly status: string }) {
  return <Badge tone={toneOf(status)}>{words(status)}</Badge>;
}

/** Of a fleet: it is done also if items failed, and then it did not end well. */
export function FleetBadge({ state, failed }: { readonly state: string; readonly failed: number }) {
  if ((state !== "done" && state !== "pending") || failed === 0) return <StatusBadge status={state} />;
  return <Badge tone="bad">{`${state}, with failures`}</Badge>;
}

/** What is not known ended badly. */
export function toneOf(status: string): Tone {
  return TONES[status] ?? "bad";
}

export function Badge({ tone = "plain", children }: { readonly tone?: Tone; readonly children: string }) {
  return (
    <span class={`badge badge-${tone}`}>
      <span class="badge-mark" aria-hidden="true">
        {MARKS[tone]}
      </span>
      {children}
    </span>
  );
}
