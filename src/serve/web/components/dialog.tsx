import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

/** A modal dialog: the browser keeps the focus in it, and gives it back. Escape closes it. `isRisky`: Enter does too, as it opens. */
export function Dialog({
  title,
  close,
  children,
  actions,
  isRisky = false,
}: {
  readonly title: string;
  readonly close: () => void;
  readonly children: ComponentChildren;
  readonly actions?: ComponentChildren;
  readonly isRisky?: boolean;
}) {
  const safe = useRef<HTMLButtonElement>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // The browser reports the end of a dialog later: one that was taken away must not close what came in its place.
  const isGone = useRef(false);
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    // The browser takes the first button, and a person may press Enter for what was asked before.
    if (isRisky) safe.current?.focus();
    return () => {
      isGone.current = true;
      element?.close();
    };
  }, []);
  const ended = (): void => {
    if (!isGone.current) close();
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={id} onClose={ended}>
      <h2 id={id}>{title}</h2>
      {children}
      <div class="dialog-actions">
        {actions}
        <button ref={safe} type="button" class="button button-plain" onClick={close}>
          Close
        </button>
      </div>
    </dialog>
  );
}

/** Asks before something that cannot be taken back. */
export function Confirm({
  title,
  children,
  deed,
  act,
  close,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
  /** A verb, for the button. */
  readonly deed: string;
  readonly act: () => void;
  readonly close: () => void;
}) {
  return (
    <Dialog
      title={title}
      close={close}
      isRisky
      actions={
        <button type="button" class="button button-danger" onClick={act}>
          {deed}
        </button>
      }
    >
      {children}
    </Dialog>
  );
}
