import type { ComponentChildren } from "preact";
import type { QueueMachine } from "../api/shapes.ts";
import { countText } from "../text/amounts.ts";
import { Table } from "./table.tsx";
import { Visible } from "./visible.tsx";

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
