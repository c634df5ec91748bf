import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useShortcuts } from "../app/context.ts";

const MORE_ROWS = 20;
/** Browsers stop counting pixels at about 33 million. */
const MAX_HEIGHT_PX = 15_000_000;

/**
 * Many rows of one height, of which only those in sight are drawn. `stick`: stays at the end while the end is in sight, as a terminal does.
 * `onRange` is called with the rows in sight, for lists that are fetched in pages.
 */
export function VirtualList({
  count,
  rowPx,
  row,
  label,
  stick = false,
  role = "list",
  onRange,
}: {
  readonly count: number;
  readonly rowPx: number;
  readonly row: (index: number) => ComponentChildren;
  readonly label: string;
  readonly stick?: boolean;
  readonly role?: "list" | "log";
  readonly onRange?: (from: number, to: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [view, setView] = useState({ top: 0, height: 600 });
  const shown = Math.min(count, Math.floor(MAX_HEIGHT_PX / rowPx));
  const look = (): void => {
    const element = box.current;
    if (element === null) return;
    isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowPx * 2;
    setView((before) =>
      before.top === element.scrollTop && before.height === element.clientHeight
        ? before
        : { top: element.scrollTop, height: element.clientHeight },
    );
  };
  useLayoutEffect(() => {
    const element = box.current;
    if (element !== null && stick && isAtEnd.current) element.scrollTop = element.scrollHeight;
    look();
  }, [count, stick]);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const from = Math.max(0, Math.floor(view.top / rowPx) - MORE_ROWS);
  const to = Math.min(shown, Math.ceil((view.top + view.height) / rowPx) + MORE_ROWS);
  useEffect(() => onRange?.(from, to), [from, to, onRange]);
  const rows = Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
  return (
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: it is a list or a log, and both take a label.
    <div ref={box} class="virtual-list" role={role} aria-label={label} tabIndex={0} onScroll={look}>
      <div class="virtual-space" style={{ height: `${shown * rowPx}px` }} role="presentation">
        <div class="virtual-rows" style={{ transform: `translateY(${from * rowPx}px)` }} role="presentation">
          {rows.map((index) => (
            <div
              key={index}
              class="virtual-row"
              style={{ height: `${rowPx}px` }}
              {...(role === "list" ? { role: "listitem", "aria-setsize": count, "aria-posinset": index + 1 } : {})}
            >
              {row(index)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

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
