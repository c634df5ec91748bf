import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { durationText, words } from "../../../../text/amounts.ts";
import { hrefTo, type PageProps, useNow, useResource } from "../../app/resource.ts";
import { SelectField } from "../../components/dialog.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, StatusBadge, Visible } from "../../components/visible.tsx";
import { RunView } from "./run-view.tsx";

type Run = AnswerOf<"runs.show">;

const EVERY_MS = 3000;
const LIMITS = ["50", "200", "500"];
const LARGEST = 500;
const STATUSES = `
  running succeeded failed refused denied cancelled timed_out signaled oom_killed output_limit disk_limit lost
  interrupted closed
`
  .trim()
  .split(/\s+/);

/** The history, with filters that are in the address, so that a list can be kept as a bookmark. */
function RunList({ query }: { readonly query: Readonly<Record<string, string>> }) {
  const now = useNow();
  const { worker = "", status = "", project = "", limit = "50" } = query;
  const set = { worker: worker || undefined, status: status || undefined, project: project || undefined };
  const { data, error, reload } = useResource("runs.list", { ...set, limit, calls: false }, { everyMs: EVERY_MS });
  const projects = useResource("projects.list", {}).data?.projects ?? [];
  const filter = (field: string, value: string): void => {
    location.hash = hrefTo(["runs"], { ...query, [field]: value });
  };
  const isFiltered = worker !== "" || status !== "" || project !== "";
  return (
    <>
      <div class="page-head">
        <h1>Runs</h1>
        <div class="filters">
          <label>
            Worker
            <input
              data-search
              type="search"
              value={worker}
              size={14}
              onChange={(event) => filter("worker", event.currentTarget.value.trim())}
            />
          </label>
          <SelectField
            name="Status"
            value={status}
            options={[["", "all"], ...STATUSES.map((name) => [name, words(name)] as const)]}
            choose={(chosen) => filter("status", chosen)}
          />
          {projects.length < 2 ? null : (
            <SelectField
              name="Project"
              value={project}
              options={[["", "all"], ...projects.map(({ name }) => name)]}
              choose={(chosen) => filter("project", chosen)}
            />
          )}
          <SelectField name="Show" value={limit} options={LIMITS} choose={(chosen) => filter("limit", chosen)} />
        </div>
      </div>
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {data === null && error === null ? <Loading what="runs" /> : null}
      {data === null ? null : data.runs.length === 0 ? (
        <EmptyState title={isFiltered ? "No run fits these filters." : "Nothing has run yet."}>
          {isFiltered ? <a href={hrefTo(["runs"])}>Show all runs</a> : <a href={hrefTo([])}>See how to begin</a>}
        </EmptyState>
      ) : (
        <Table
          label="Runs"
          rows={data.runs}
          keyOf={({ id }) => id}
          linkOf={({ id }) => hrefTo(["runs", id])}
          columns={[
            { title: "Worker", kind: "main", cell: (run) => <Visible text={run.worker} max={80} /> },
            { title: "Status", cell: (run) => <StatusBadge status={run.status} /> },
            ...(projects.length < 2
              ? []
              : [{ title: "Project", isExtra: true, cell: (run: Run) => <Visible text={run.project} max={60} /> }]),
            {
              title: "Calls",
              kind: "number",
              isExtra: true,
              cell: (run) => run.callCount || "",
            },
            {
              title: "Took",
              kind: "number",
              cell: (run) => (run.durationMs === null ? "" : durationText(run.durationMs)),
            },
            { title: "Began", kind: "number", cell: (run) => <Ago at={run.queuedAt} now={now} /> },
            { title: "Run", isExtra: true, cell: (run) => <code>{run.id}</code> },
          ]}
        />
      )}
      <CutNote isCut={data?.more}>
        {Number(limit) < LARGEST
          ? `There are older runs: these are the newest ${data?.runs.length}. “Show” lists more.`
          : `There are older runs: these are the newest ${data?.runs.length}. The filters find them.`}
      </CutNote>
      {data !== null && data.unreadable > 0 ? <p class="quiet">{data.unreadable} records could not be read.</p> : null}
    </>
  );
}

export function RunsPage({ parts: [id], query }: PageProps) {
  return id === undefined ? <RunList query={query} /> : <RunView key={id} id={id} />;
}
