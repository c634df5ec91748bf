import { Visible } from "./visible.tsx";

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
