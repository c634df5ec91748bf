import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { AnswerOf } from "../../../operations/contract/table.ts";
import { countText } from "../../../text/amounts.ts";
import { toldApart } from "../../../text/visible.ts";
import { useShortcuts } from "../app/resource.ts";
import { Visible } from "./visible.tsx";

type QueueMachine = AnswerOf<"host.machines">["machines"][number];

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  /** `number`: to the right. `main`: takes what is left, and is cut; `text`: is broken into lines. Absent: as wide as its text. */
  readonly kind?: "number" | "main" | "text";
  /** Left out where the window is narrow. */
  readonly isExtra?: boolean;
}

/** Rows with a link each. `j` and `k` move between them, Enter opens one. In a narrow window each row becomes a block. */
export function Table<T>({
  label,
  columns,
  rows,
  keyOf,
  linkOf,
}: {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  /** The place of a row, and the text of its link, which is its first cell. Absent: rows lead nowhere. */
  readonly linkOf?: (row: T) => string;
}) {
  const body = useRef<HTMLTableSectionElement>(null);
  useRowKeys(body, label);
  return (
    <table class="table" aria-label={label}>
      <thead>
        <tr>
          {columns.map(({ title, kind, isExtra }) => (
            <th key={title} scope="col" class={classOf(kind, isExtra)}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody ref={body}>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map(({ title, kind, isExtra, cell }, index) => (
              <td key={title} class={classOf(kind, isExtra)} data-title={title}>
                {index === 0 && linkOf !== undefined ? (
                  <a class="row-link" data-row href={linkOf(row)}>
                    {cell(row)}
                  </a>
                ) : (
                  cell(row)
                )}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function classOf(kind: Column<unknown>["kind"], isExtra = false): string {
  return [kind === undefined ? "" : `cell-${kind}`, isExtra ? "cell-extra" : ""]
    .filter((name) => name !== "")
    .join(" ");
}

type Shown = Pick<QueueMachine, "id" | "name" | "slots" | "running" | "recentRate" | "labels" | "version">;

/** Machines with what each runs, and how many items it delivered in the last minute. What they say of themselves is data. */
export function MachineTable<M extends Shown>({
  machines,
  note,
}: {
  readonly machines: readonly M[];
  /** More about one: sentences, or links. */
  readonly note: (machine: M) => ComponentChildren;
}) {
  const nameOf = toldApart(machines);
  return (
    <Table
      label="Machines"
      rows={machines}
      keyOf={({ id }) => id}
      columns={[
        {
          title: "Machine",
          cell: ({ id }) => (
            <strong class="machine-name">
              <Visible text={nameOf(id)} max={67} />
            </strong>
          ),
        },
        {
          title: "Runs",
          kind: "number",
          // What it has claimed ahead waits there.
          cell: ({ running, slots }) =>
            `${countText(Math.min(running, slots))} of ${countText(slots)}${running > slots ? ` +${countText(running - slots)}` : ""}`,
        },
        {
          title: "Per minute",
          kind: "number",
          cell: ({ recentRate }) => `${countText(Math.round((recentRate ?? 0) * 60))}/min`,
        },
        { title: "Labels", isExtra: true, cell: ({ labels }) => <Visible text={labels.join(", ")} max={100} /> },
        { title: "About", kind: "text", cell: note },
        { title: "Corral", isExtra: true, cell: ({ version }) => <Visible text={version} max={20} /> },
      ]}
    />
  );
}

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
