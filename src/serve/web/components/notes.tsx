import type { ComponentChildren } from "preact";
import type { ApiError } from "../../../client/client.ts";
import { counted } from "../../../text/amounts.ts";
import { Visible } from "./visible.tsx";

/** In place of a list that is empty: why, and what to do first. */
export function EmptyState({ title, children }: { readonly title: string; readonly children?: ComponentChildren }) {
  return (
    <div class="empty-state">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** What the service said instead of an answer. */
export function ErrorNote({ error, retry }: { readonly error: ApiError; readonly retry?: () => void }) {
  return (
    <div class="error-note" role="alert">
      <p>
        <Visible text={error.message} max={4000} />
      </p>
      <ul>
        {error.violations.slice(0, 50).map(({ message }) => (
          <li key={message}>
            <Visible text={message} max={1000} />
          </li>
        ))}
        <MoreItems count={error.violations.length - 50} what="mistake" />
      </ul>
      <p class="quiet">
        <code>{error.code}</code>
        {retry === undefined ? null : (
          <button type="button" class="button button-quiet" onClick={retry}>
            Try again
          </button>
        )}
      </p>
    </div>
  );
}

/** Below a list that the service has cut. `what`: which part of it is shown, and how to see the rest. */
export function CutNote({ isCut, children }: { readonly isCut: boolean | undefined; readonly children: string }) {
  return isCut ? <p class="quiet cut-note">{children}</p> : null;
}

/** The last item of a list that the page has cut: how many have no place in it. */
export function MoreItems({
  count,
  what,
  chip = "",
}: {
  readonly count: number;
  readonly what: string;
  readonly chip?: string;
}) {
  return count <= 0 ? null : <li class={`quiet ${chip}`}>and {counted(count, `more ${what}`)}, not shown</li>;
}

/** Shown only if an answer takes long enough to be noticed (its style says when). */
export function Loading({ what }: { readonly what: string }) {
  return (
    <p class="loading" role="status">
      Loading {what}…
    </p>
  );
}

export interface Toast {
  readonly id: number;
  readonly text: string;
  readonly tone: "good" | "bad";
}

/** Short notes at the edge. Screen readers say them. */
export function Toasts({ toasts }: { readonly toasts: readonly Toast[] }) {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ id, text, tone }) => (
        <p key={id} class={`toast toast-${tone}`}>
          <Visible text={text} max={600} />
        </p>
      ))}
    </div>
  );
}
