import type { Machine as Examined, Finding } from "../../api/shapes.ts";
import { useResource } from "../../app/resource.ts";
import { Badge, type Tone } from "../../components/badge.tsx";
import { Button } from "../../components/button.tsx";
import { ErrorNote, Loading } from "../../components/notes.tsx";
import { Visible } from "../../components/visible.tsx";
import { QueueMachines } from "./queue-machines.tsx";

const TONES: Readonly<Record<Finding["state"], Tone>> = { ok: "good", warning: "warn", missing: "bad" };

/** The machine of the service, and those of the queues, which do not wait for its examination. */
export function Machine() {
  return (
    <>
      <Examination />
      <QueueMachines />
    </>
  );
}

/** What `corral doctor` finds. */
function Examination() {
  const { data, error, reload } = useResource<Examined>("/v1/machine");
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
