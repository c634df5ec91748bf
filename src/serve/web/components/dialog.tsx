import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../../../client/client.ts";
import { type Shortcuts, useApp } from "../app/resource.ts";

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

/** A choice among texts, or among values with their texts. */
export function SelectField<Value extends string>({
  name,
  value,
  options,
  choose,
}: {
  readonly name: string;
  readonly value: Value;
  readonly options: readonly (Value | readonly [value: Value, text: string])[];
  readonly choose: (value: Value) => void;
}) {
  const listed = options.map((one) => (typeof one === "string" ? ([one, one] as const) : one));
  return (
    <label>
      {name}
      <select value={value} onChange={({ currentTarget }) => choose(currentTarget.value as Value)}>
        {listed.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </label>
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

/** All that the keyboard does here and now. */
export function KeyboardHelp({ shortcuts, close }: { readonly shortcuts: Shortcuts; readonly close: () => void }) {
  return (
    <Dialog title="Keyboard" close={close}>
      <div class="key-groups">
        {shortcuts.groups.map(({ title, list }) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl class="keys">
              {list.map(({ keys, does }) => (
                <div key={keys}>
                  <dt>
                    {keys.split(" ").map((key) => (
                      <kbd key={key}>{key}</kbd>
                    ))}
                  </dt>
                  <dd>{does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}

const REVOKE_MS = 60_000;

/**
 * Saves a file. Its bytes are a stranger's: they are given to the browser as a file to save, of no type that it shows, and never as a place to go
 * to, so that nothing in them acts as this page.
 */
export function SaveButton({
  load,
  name,
  label,
  children,
}: {
  readonly load: () => Promise<AsyncIterable<Uint8Array>>;
  readonly name: string;
  readonly label?: string;
  readonly children: ComponentChildren;
}) {
  const { notify } = useApp();
  const save = async (): Promise<void> => {
    try {
      const parts: Uint8Array<ArrayBuffer>[] = [];
      for await (const piece of await load()) parts.push(new Uint8Array(piece));
      const place = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
      const link = document.createElement("a");
      link.href = place;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(place), REVOKE_MS);
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return (
    <Button act={save} {...(label === undefined ? {} : { label })}>
      {children}
    </Button>
  );
}
