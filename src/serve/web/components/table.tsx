import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { AnswerOf } from "../../../operations/contract/table.ts";
import { countText } from "../../../text/amounts.ts";
import { useRowKeys } from "./virtual-list.tsx";
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
  return (
    <Table
      label="Machines"
      rows={machines}
      keyOf={({ id }) => id}
      columns={[
        {
          title: "Machine",
          cell: ({ name }) => (
            <strong class="machine-name">
              <Visible text={name} max={60} />
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
