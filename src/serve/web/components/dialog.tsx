import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

/** A modal dialog: the browser keeps the focus in it, and gives it back. Escape closes it. */
export function Dialog({
  title,
  close,
  children,
  actions,
}: {
  readonly title: string;
  readonly close: () => void;
  readonly children: ComponentChildren;
  readonly actions?: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={id} onClose={close} onCancel={close}>
      <h2 id={id}>{title}</h2>
      {children}
      <div class="dialog-actions">
        {actions}
        <button type="button" class="button button-plain" onClick={close}>
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
