import { clipped, visibleParts } from "../text/visible.ts";

/** A text that a worker chose. It is never HTML, nothing in it is invisible, and it cannot turn around what is beside it. */
export function Visible({ text, max = 10_000 }: { readonly text: string; readonly max?: number }) {
  return (
    <bdi>
      {visibleParts(clipped(text, max)).map((part, index) =>
        part.isHidden ? (
          <span key={index} class="hidden-character" title={`the character ${part.text}, which has no mark of its own`}>
            {part.text}
          </span>
        ) : (
          part.text
        ),
      )}
    </bdi>
  );
}
