/** A key, or two of them one after the other (`g r`), and what it does: a verb first. */
export interface Shortcut {
  readonly keys: string;
  readonly does: string;
  readonly act: () => void;
}

const SECOND_KEY_MS = 1500;

/** What the keyboard does at this moment. Later shortcuts take the place of earlier ones. */
export class Shortcuts {
  readonly #groups: { readonly title: string; readonly list: readonly Shortcut[] }[] = [];
  #first = "";
  #firstAt = 0;

  /** Returns what takes them away again. */
  add(title: string, list: readonly Shortcut[]): () => void {
    const group = { title, list };
    this.#groups.push(group);
    return () => {
      const index = this.#groups.indexOf(group);
      if (index >= 0) this.#groups.splice(index, 1);
    };
  }

  get groups(): readonly { readonly title: string; readonly list: readonly Shortcut[] }[] {
    return this.#groups;
  }

  /** True if the key did something. */
  press(key: string, now: number): boolean {
    const isSecond = this.#first !== "" && now - this.#firstAt < SECOND_KEY_MS;
    const typed = isSecond ? `${this.#first} ${key}` : key;
    this.#first = "";
    const all = this.#groups.flatMap(({ list }) => list);
    const found =
      all.findLast(({ keys }) => keys === typed) ?? (isSecond ? undefined : all.findLast(({ keys }) => keys === key));
    if (found !== undefined) {
      found.act();
      return true;
    }
    if (all.some(({ keys }) => keys.startsWith(`${key} `))) {
      this.#first = key;
      this.#firstAt = now;
    }
    return false;
  }
}

/** Keys for a field, a menu of the browser or a dialog are not for the page. */
export function isForPage(event: Pick<KeyboardEvent, "ctrlKey" | "metaKey" | "altKey" | "target">): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.target;
  if (!(target instanceof Element)) return true;
  return target.closest("input, textarea, select, [contenteditable], dialog[open]") === null;
}
