import type { RefObject } from "preact";
import { useShortcuts } from "../app/context.ts";

/** `j` and `k` move the focus between what is marked with `data-row` below an element; Enter is the browser's own. */
export function useRowKeys(container: RefObject<HTMLElement | null>, label: string): void {
  const move = (by: number): void => {
    const rows = [...(container.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [])];
    const at = rows.indexOf(document.activeElement as HTMLElement);
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  useShortcuts(label, [
    { keys: "j", does: "Go to the next row", act: () => move(1) },
    { keys: "k", does: "Go to the row before", act: () => move(-1) },
  ]);
}
