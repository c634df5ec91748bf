import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { countText } from "../../../../text/amounts.ts";
import type { PageProps } from "../../app/context.ts";
import { useNow, useResource } from "../../app/resource.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, CodeBlock, Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { FleetPage } from "./fleet.tsx";

type Fleet = AnswerOf<"fleets.list">["fleets"][number];

const EVERY_MS = 3000;

/** The list of fleets, or one of them. */
export function FleetsPage({ parts: [id], query }: PageProps) {
  return id === undefined ? <FleetList /> : <FleetPage key={id} id={id} query={query} />;
}

function FleetList() {
  const now = useNow();
  const { data, error, reload } = useResource("fleets.list", { limit: 200 }, { everyMs: EVERY_MS });
  if (data === null) return error === null ? <Loading what="fleets" /> : <ErrorNote error={error} retry={reload} />;
  return (
    <>
      <h1>Fleets</h1>
      {data.fleets.length === 0 ? (
        <EmptyState title="No fleet has run yet.">
          <p>A fleet runs one worker over many items, each in a sandbox of its own:</p>
          <CodeBlock text="corral map WORKER --over 'inbox/*.pdf' --attach '{path}'" />
          <p class="quiet">Fleets of the command line and of this service appear here when they begin.</p>
        </EmptyState>
      ) : (
        <Table
          label="Fleets"
          rows={data.fleets}
          keyOf={({ id }) => id}
          linkOf={({ id }) => hrefTo(["fleets", id])}
          columns={[
            { title: "Worker", kind: "main", cell: ({ spec }) => <Visible text={spec.worker} max={80} /> },
            { title: "State", cell: ({ state }) => <StatusBadge status={state} /> },
            { title: "Done", cell: ({ counts }) => <Done counts={counts} /> },
            {
              title: "Failed",
              kind: "number",
              cell: ({ counts: { failed } }) =>
                failed === 0 ? "" : <span class="fleet-failed">{countText(failed)} failed</span>,
            },
            { title: "Project", isExtra: true, cell: ({ project }) => <Visible text={project} max={40} /> },
            { title: "Began", kind: "number", cell: ({ createdAt }) => <Ago at={createdAt} now={now} /> },
            { title: "Fleet", isExtra: true, cell: ({ id }) => <code>{id}</code> },
          ]}
        />
      )}
      <CutNote isCut={data.more}>
        {`There are older fleets: these are the newest ${data.fleets.length}. \`corral fleet rm\` removes old ones.`}
      </CutNote>
    </>
  );
}

function Done({ counts: { done, total } }: Pick<Fleet, "counts">) {
  return (
    <span class="fleet-done">
      <progress max={Math.max(1, total)} value={done} aria-label="Done" />
      <span>
        {countText(done)} of {countText(total)}
      </span>
    </span>
  );
}
