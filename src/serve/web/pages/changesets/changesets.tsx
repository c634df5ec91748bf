import type { ChangesetList as Listed } from "../../api/shapes.ts";
import type { PageProps } from "../../app/page-props.ts";
import { useNow, useResource } from "../../app/resource.ts";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { countText, words } from "../../text/amounts.ts";
import { ChangesetView } from "./changeset-view.tsx";

const EVERY_MS = 3000;

function ChangesetList() {
  const now = useNow();
  const { data, error, reload } = useResource<Listed>("/v1/changesets", { everyMs: EVERY_MS });
  return (
    <>
      <h1>Changesets</h1>
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {data === null && error === null ? <Loading what="changesets" /> : null}
      {data === null ? null : data.changesets.length === 0 ? (
        <EmptyState title="No changes wait to be applied.">
          <p>
            What a worker writes in a directory with <code>stage: true</code> waits here if its run failed, or if the
            project asks before it applies. Until then the directory is as it was.
          </p>
        </EmptyState>
      ) : (
        <Table
          label="Changesets"
          rows={data.changesets}
          keyOf={({ id }) => id}
          linkOf={({ id }) => hrefTo(["changesets", id])}
          columns={[
            { title: "Worker", kind: "main", cell: ({ worker }) => <Visible text={worker} max={80} /> },
            { title: "Changes", cell: ({ counts, applying }) => (applying ? "being applied" : countsText(counts)) },
            { title: "Project", isExtra: true, cell: ({ project }) => <Visible text={project} max={60} /> },
            { title: "Made", kind: "number", cell: ({ createdAt }) => <Ago at={createdAt} now={now} /> },
            { title: "Changeset", isExtra: true, cell: ({ id }) => <code>{id}</code> },
          ]}
        />
      )}
      <CutNote isCut={data?.more}>
        {`More changesets wait: these are the oldest ${data?.changesets.length}. Those that are decided make room for the next.`}
      </CutNote>
    </>
  );
}

function countsText(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([outcome, count]) => `${countText(count)} ${words(outcome)}`)
    .join(", ");
}

export function Changesets({ parts: [id] }: PageProps) {
  return id === undefined ? <ChangesetList /> : <ChangesetView key={id} id={id} />;
}
