import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** A button that does something once: while it does, it cannot be pressed again. `shortcut`: its key, for those who see it. */
export function Button({
  children,
  act,
  kind = "plain",
  shortcut,
  disabled = false,
  label,
}: {
  readonly children: ComponentChildren;
  readonly act: () => unknown;
  readonly kind?: "plain" | "primary" | "danger" | "quiet";
  readonly shortcut?: string;
  readonly disabled?: boolean;
  readonly label?: string;
}) {
  const [isBusy, setBusy] = useState(false);
  const press = async (): Promise<void> => {
    setBusy(true);
    try {
      await act();
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type="button"
      class={`button button-${kind}`}
      disabled={disabled || isBusy}
      aria-busy={isBusy}
      aria-label={label}
      aria-keyshortcuts={shortcut}
      onClick={() => void press()}
    >
      {children}
      {shortcut === undefined ? null : <kbd>{shortcut}</kbd>}
    </button>
  );
}
