import type { FleetMachine, ShownFleet } from "../../api/shapes.ts";
import { CodeBlock } from "../../components/code-block.tsx";
import { MachineTable } from "../../components/machine-table.tsx";
import { EmptyState } from "../../components/notes.tsx";
import { Visible } from "../../components/visible.tsx";
import { countText, plural } from "../../text/amounts.ts";

/** The machines that may run items of a fleet while it is not over: what each runs, and why it takes none. */
export function Machines({ fleet: { machines, counts, spec } }: { readonly fleet: ShownFleet }) {
  const elsewhere = machines.reduce((sum, { running }) => sum + running, 0);
  const needs = spec.machines?.needs ?? [];
  const busy = machines.filter(({ running }) => running > 0).length;
  return (
    <section aria-labelledby="machines">
      <h2 id="machines">Machines</h2>
      {machines.length === 0 ? (
        <EmptyState title="No machine takes part in the queue.">
          <p>On each machine, in its copy of the project:</p>
          <CodeBlock text={["corral work", ...needs.map((label) => `--label ${label}`)].join(" ")} />
        </EmptyState>
      ) : (
        <>
          <p class="quiet machines-sum" role="status">
            {plural(elsewhere, "item")} on {countText(busy)} of {plural(machines.length, "machine")}
            {counts.running > elsewhere
              ? `, ${countText(counts.running - elsewhere)} at the process that owns the fleet`
              : ""}
            {needs.length === 0 ? null : (
              <>
                . They need <Visible text={needs.join(", ")} max={200} />
              </>
            )}
            .
          </p>
          <MachineTable machines={machines} note={about} />
        </>
      )}
    </section>
  );
}

function about({ why, running, runningInAll }: FleetMachine) {
  if (why !== null)
    return (
      <>
        Takes none: <Visible text={why} max={500} />
      </>
    );
  return runningInAll > running ? `runs ${plural(runningInAll - running, "item")} of other fleets` : "";
}
