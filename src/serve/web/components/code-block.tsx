import { useState } from "preact/hooks";
import { printable } from "../../../text/visible.ts";
import { Visible } from "./visible.tsx";

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
