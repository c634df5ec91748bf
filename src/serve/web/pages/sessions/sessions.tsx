import { useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import { hrefTo, type PageProps, useApp, useMay, useNow, useResource } from "../../app/resource.ts";
import { Button, SelectField } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, StatusBadge, Visible } from "../../components/visible.tsx";
import { SessionView } from "./session-view.tsx";

const EVERY_MS = 2000;

/** The sandboxes that stay open: commands, a terminal, files. */
export function SessionsPage({ parts: [id], query }: PageProps) {
  if (id !== undefined) return <SessionView key={id} id={id} query={query} />;
  return (
    <>
      <h1>Sessions</h1>
      <NewSession asked={query.worker} />
      <SessionList />
    </>
  );
}

function SessionList() {
  const now = useNow();
  const { data, error, reload } = useResource("sessions.list", {}, { everyMs: EVERY_MS });
  if (data === null) return error === null ? <Loading what="sessions" /> : <ErrorNote error={error} retry={reload} />;
  if (data.sessions.length === 0)
    return (
      <EmptyState title="No session is open.">
        <p>A session is the sandbox of a worker that stays: a person or an agent runs commands in it for hours.</p>
      </EmptyState>
    );
  return (
    <Table
      label="Sessions"
      rows={data.sessions}
      keyOf={({ id }) => id}
      linkOf={({ id }) => hrefTo(["sessions", id])}
      columns={[
        { title: "Worker", kind: "main", cell: ({ worker }) => <Visible text={worker} max={80} /> },
        { title: "Name", cell: ({ name }) => (name === null ? "" : <Visible text={name} max={64} />) },
        { title: "State", cell: ({ isPaused }) => <StatusBadge status={isPaused ? "paused" : "running"} /> },
        { title: "Project", isExtra: true, cell: ({ project }) => <Visible text={project} max={60} /> },
        { title: "Opened", kind: "number", cell: ({ openedAt }) => <Ago at={openedAt} now={now} /> },
        { title: "Session", isExtra: true, cell: ({ id }) => <code>{id}</code> },
      ]}
    />
  );
}

/** Opens a session of a worker, for those who may, and goes to it. */
function NewSession({ asked }: { readonly asked: string | undefined }) {
  const { client } = useApp();
  const may = useMay("run");
  const projects = useResource("projects.list", {}).data?.projects ?? [];
  const [chosen, setProject] = useState<string | null>(null);
  const project = chosen ?? projects[0]?.name ?? null;
  const workers = useResource("workers.list", project === null ? null : { project }).data?.workers ?? [];
  const [named, setWorker] = useState<string | undefined>(asked);
  const worker = workers.find(({ name }) => name === named)?.name ?? workers[0]?.name;
  const [error, setError] = useState<ApiError | null>(null);
  if (!may || project === null || worker === undefined) return null;
  const open = async (): Promise<void> => {
    setError(null);
    try {
      const { id } = await client.call("sessions.open", { project, worker });
      location.hash = hrefTo(["sessions", id]);
    } catch (fault) {
      setError(fault as ApiError);
    }
  };
  return (
    <section aria-label="New session">
      <div class="filters">
        {projects.length < 2 ? null : (
          <SelectField name="Project" value={project} options={projects.map(({ name }) => name)} choose={setProject} />
        )}
        <SelectField name="Worker" value={worker} options={workers.map(({ name }) => name)} choose={setWorker} />
        <Button kind="primary" act={open}>
          Open a session
        </Button>
      </div>
      {error === null ? null : <ErrorNote error={error} />}
    </section>
  );
}
