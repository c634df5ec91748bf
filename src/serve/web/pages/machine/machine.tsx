import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText } from "../../../../text/amounts.ts";
import { hrefTo, useResource } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { MachineTable } from "../../components/table.tsx";
import { Badge, CodeBlock, type Tone, Visible } from "../../components/visible.tsx";

type QueueMachine = AnswerOf<"host.machines">["machines"][number];
type Finding = AnswerOf<"host.machine">["findings"][number];

const EVERY_MS = 3000;

/** The machines that take part in the queues of the projects. Nothing if there is no queue. */
function QueueMachines() {
  const { data, error, reload } = useResource("host.machines", {}, { everyMs: EVERY_MS });
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
            {counted(machines.length, "machine")}: {countText(running)} of {counted(slots, "slot")} in use.
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

const TONES: Readonly<Record<Finding["state"], Tone>> = { ok: "good", warning: "warn", missing: "bad" };

/** The machine of the service, and those of the queues, which do not wait for its examination. */
export function MachinePage() {
  return (
    <>
      <Examination />
      <QueueMachines />
    </>
  );
}

/** What `corral doctor` finds. */
function Examination() {
  const { data, error, reload } = useResource("host.machine", {});
  if (data === null)
    return error === null ? <Loading what="the machine" /> : <ErrorNote error={error} retry={reload} />;
  return (
    <>
      <div class="page-head">
        <h1>
          Machine {data.ok ? <Badge tone="good">can run workers</Badge> : <Badge tone="bad">cannot run workers</Badge>}
        </h1>
        <Button act={reload}>Examine again</Button>
      </div>
      <dl class="findings">
        {sorted(data.findings).map(({ what, state, detail }) => (
          <div key={`${what} ${detail}`} class="finding">
            <dt>{what}</dt>
            <dd>
              <Badge tone={TONES[state]}>{state}</Badge>
              <span>
                <Visible text={detail} max={2000} />
              </span>
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}

const ORDER = ["missing", "warning", "ok"];

/** What keeps workers from running comes first. */
function sorted(findings: readonly Finding[]): Finding[] {
  return findings.toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
}
