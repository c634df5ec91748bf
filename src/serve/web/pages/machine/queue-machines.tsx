import type { MachineList, QueueMachine } from "../../api/shapes.ts";
import { useResource } from "../../app/resource.ts";
import { CodeBlock } from "../../components/code-block.tsx";
import { MachineTable } from "../../components/machine-table.tsx";
import { CutNote, EmptyState, ErrorNote } from "../../components/notes.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { countText, plural } from "../../text/amounts.ts";

const EVERY_MS = 3000;

/** The machines that take part in the queues of the projects. Nothing if there is no queue. */
export function QueueMachines() {
  const { data, error, reload } = useResource<MachineList>("/v1/machines", { everyMs: EVERY_MS });
  if (data === null && error !== null) return <ErrorNote error={error} retry={reload} />;
  if (data === null || !data.hasQueue) return null;
  const { machines } = data;
  const slots = sum(machines, ({ slots }) => slots);
  // What a machine has claimed ahead takes no slot yet.
  const running = sum(machines, (one) => Math.min(one.running, one.slots));
  return (
    <section class="queue-machines" aria-labelledby="queue-machines">
      <h2 id="queue-machines">Machines of the queue</h2>
      {machines.length === 0 ? (
        <EmptyState title="No machine takes part.">
          <p>On each machine, in its copy of the project:</p>
          <CodeBlock text="corral work" />
        </EmptyState>
      ) : (
        <>
          <p class="quiet" role="status">
            {plural(machines.length, "machine")}: {countText(running)} of {plural(slots, "slot")} in use.
          </p>
          <MachineTable machines={machines} note={about} />
        </>
      )}
      <CutNote isCut={data.more}>{`These are the first ${machines.length} machines.`}</CutNote>
    </section>
  );
}

function sum(machines: readonly QueueMachine[], of: (machine: QueueMachine) => number): number {
  return machines.reduce((all, machine) => all + of(machine), 0);
}

/** Fleets that it runs items of, or takes none of. */
function about({ fleets }: QueueMachine) {
  return fleets.length === 0 ? (
    ""
  ) : (
    <ul class="machine-fleets">
      {fleets.map(({ fleet, running, why }) => (
        <li key={fleet}>
          {why === null ? `${countText(running)} of ` : "none of "}
          <a href={hrefTo(["fleets", fleet])}>
            <code>{fleet}</code>
          </a>
          {why === null ? null : (
            <>
              : <Visible text={why} max={500} />
            </>
          )}
        </li>
      ))}
    </ul>
  );
}
