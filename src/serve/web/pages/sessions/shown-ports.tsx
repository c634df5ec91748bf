import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { useApp, useMay, useResource } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { ErrorNote } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Badge, Visible } from "../../components/visible.tsx";

type Session = AnswerOf<"sessions.show">;
type Port = AnswerOf<"ports.list">["ports"][number];

const EVERY_MS = 4000;
const MAX_PORTS = 100;
const OF_THIS_MACHINE = ["127.0.0.1", "localhost", "[::1]"];

/** What can be connected to in a session, and what else listens. */
export function ShownPorts({ session }: { readonly session: Session }) {
  const ask = session.isPaused ? null : { session: session.id };
  const { data, error, reload } = useResource("ports.list", ask, { everyMs: EVERY_MS });
  const ports = data?.ports.slice(0, MAX_PORTS) ?? [];
  if (error === null && ports.length === 0) return null;
  const isHere = OF_THIS_MACHINE.includes(location.hostname);
  return (
    <section class="part" aria-labelledby="session-ports-title">
      <div class="part-head">
        <h2 id="session-ports-title">Ports</h2>
      </div>
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {isHere ? null : (
        <p class="quiet">
          Links open on the machine of the service. On this one, use <code>corral session forward</code>.
        </p>
      )}
      {ports.length === 0 ? null : (
        <Table
          label="Ports"
          rows={ports}
          keyOf={({ port }) => String(port)}
          columns={[
            { title: "Port", kind: "number", cell: ({ port }) => port },
            { title: "Name", kind: "text", cell: ({ name }) => <Visible text={name ?? ""} max={80} /> },
            {
              title: "State",
              cell: ({ isListening }) =>
                isListening ? <Badge tone="good">listens</Badge> : <Badge>nothing listens</Badge>,
            },
            {
              title: "Open",
              kind: "number",
              cell: (port) => <OpenPort session={session.id} of={port} isHere={isHere} />,
            },
          ]}
        />
      )}
    </section>
  );
}

/** A link works once, so it is asked for when it is followed. The tab that it opens has another origin, and no way back to this page. */
function OpenPort({
  session,
  of: { port, isAllowed, isListening },
  isHere,
}: {
  readonly session: string;
  readonly of: Port;
  readonly isHere: boolean;
}) {
  const { client, notify } = useApp();
  const may = useMay("run");
  if (!isAllowed) return <span class="quiet">not declared</span>;
  if (!may || !isHere || !isListening) return null;
  const open = async (): Promise<void> => {
    try {
      const { url } = await client.call("ports.show", { session, port });
      window.open(url, "_blank", "noopener,noreferrer");
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return <Button act={open}>Open in a new tab</Button>;
}
