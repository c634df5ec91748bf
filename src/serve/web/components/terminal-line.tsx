import type { Line, Look } from "../text/ansi.ts";
import { Visible } from "./visible.tsx";

/** One line of a terminal, in the colours of the page. */
export function TerminalLine({ line }: { readonly line: Line }) {
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

function classOf({ color, ground, isBold, isDim, isItalic, isUnderlined }: Look): string | undefined {
  const names = [
    color === null ? "" : `ink-${color}`,
    ground === null ? "" : `ground-${ground}`,
    isBold ? "is-bold" : "",
    isDim ? "is-dim" : "",
    isItalic ? "is-italic" : "",
    isUnderlined ? "is-underlined" : "",
  ].filter((name) => name !== "");
  return names.length === 0 ? undefined : names.join(" ");
}
