import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useRowKeys } from "./row-keys.ts";

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
