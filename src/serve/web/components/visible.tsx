import { clipped, visibleName, visibleParts } from "../../../text/visible.ts";

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
