import type { Shortcuts } from "../keyboard/shortcuts.ts";
import { Dialog } from "./dialog.tsx";

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
