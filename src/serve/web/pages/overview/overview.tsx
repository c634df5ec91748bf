import type { ComponentChildren } from "preact";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, durationText } from "../../../../text/amounts.ts";
import { hrefTo, useApp, useNow, useResource } from "../../app/resource.ts";
import { EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, CodeBlock, StatusBadge, Visible } from "../../components/visible.tsx";

type Fleet = AnswerOf<"fleets.list">["fleets"][number];
type Run = AnswerOf<"runs.show">;

const EVERY_MS = 3000;
const RECENT = 12;

/** Current runs, open decisions, and recent runs. */
export function Overview() {
  const { caller } = useApp();
  const now = useNow();
  const running = useResource("runs.list", { status: "running", limit: 100, calls: false }, { everyMs: EVERY_MS });
  const recent = useResource("runs.list", { limit: RECENT, calls: false }, { everyMs: EVERY_MS });
  const approvals = useResource("approvals.list", {}, { everyMs: EVERY_MS });
  const changesets = useResource("changesets.list", {}, { everyMs: EVERY_MS });
  const fleets = useResource("fleets.list", {}, { everyMs: EVERY_MS });
  if (recent.data === null)
    return recent.error === null ? <Loading what="runs" /> : <ErrorNote error={recent.error} retry={recent.reload} />;
  const isNew = recent.data.runs.length === 0 && (fleets.data?.fleets.length ?? 0) === 0;
  const active = fleets.data?.fleets.filter(({ state }) => state === "running") ?? [];
  return (
    <>
      <h1>Overview</h1>
      <ul class="figures" aria-label="Now">
        <Figure
          to={hrefTo(["runs"], { status: "running" })}
          count={running.data?.runs.length}
          isCut={running.data?.more}
          name="running"
        />
        <Figure
          to={hrefTo(["inbox"])}
          count={approvals.data?.approvals.length}
          isCut={approvals.data?.next !== null}
          name="to decide"
          isUrgent
        />
        <Figure
          to={hrefTo(["changesets"])}
          count={changesets.data?.changesets.length}
          isCut={changesets.data?.more}
          name="to apply"
          isUrgent
        />
        <Figure
          to={hrefTo(["fleets"])}
          count={active.length}
          name={active.length === 1 ? "active fleet" : "active fleets"}
        />
      </ul>
      {isNew ? (
        <FirstSteps />
      ) : (
        <>
          {active.length > 0 ? <ActiveFleets fleets={active} /> : null}
          <Part title="Recent runs" more={hrefTo(["runs"])}>
            <RecentRuns runs={recent.data.runs} now={now} />
          </Part>
        </>
      )}
      <p class="quiet foot">
        Corral {caller.version}, as <Visible text={caller.name} /> ({caller.roles.join(", ")}). <MachineState />
      </p>
    </>
  );
}

/** What keeps workers from running is said here too; the rest has a page of its own. */
function MachineState() {
  const { data } = useResource("host.machine", {});
  if (data === null) return null;
  const warnings = data.findings.filter(({ state }) => state === "warning").length;
  return (
    <a href={hrefTo(["machine"])}>
      {data.ok ? "This machine can run workers" : "This machine cannot run workers"}
      {warnings === 0 ? "" : `, ${counted(warnings, "warning")}`}
    </a>
  );
}

function Figure({
  to,
  count,
  isCut = false,
  name,
  isUrgent = false,
}: {
  readonly to: string;
  readonly count: number | undefined;
  /** There are more, which the list does not have. */
  readonly isCut?: boolean | undefined;
  readonly name: string;
  readonly isUrgent?: boolean;
}) {
  return (
    <li>
      <a class={isUrgent && (count ?? 0) > 0 ? "figure figure-urgent" : "figure"} href={to}>
        <strong>{count === undefined ? "…" : countText(count, isCut)}</strong> {name}
      </a>
    </li>
  );
}

function Part({
  title,
  more,
  children,
}: {
  readonly title: string;
  readonly more: string;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="part">
      <div class="part-head">
        <h2>{title}</h2>
        <a href={more}>
          All<span class="unseen"> of {title}</span>
        </a>
      </div>
      {children}
    </section>
  );
}

function RecentRuns({ runs, now }: { readonly runs: readonly Run[]; readonly now: number }) {
  return (
    <Table
      label="Recent runs"
      rows={runs}
      keyOf={({ id }) => id}
      linkOf={({ id }) => hrefTo(["runs", id])}
      columns={[
        { title: "Worker", kind: "main", cell: ({ worker }) => <Visible text={worker} max={80} /> },
        { title: "Status", cell: ({ status }) => <StatusBadge status={status} /> },
        {
          title: "Calls",
          kind: "number",
          isExtra: true,
          cell: ({ callCount }) => callCount || "",
        },
        {
          title: "Took",
          kind: "number",
          cell: ({ durationMs }) => (durationMs === null ? "" : durationText(durationMs)),
        },
        { title: "Began", kind: "number", cell: ({ queuedAt }) => <Ago at={queuedAt} now={now} /> },
        { title: "Run", isExtra: true, cell: ({ id }) => <code>{id}</code> },
      ]}
    />
  );
}

function ActiveFleets({ fleets }: { readonly fleets: readonly Fleet[] }) {
  return (
    <Part title="Active fleets" more={hrefTo(["fleets"])}>
      <ul class="bars">
        {fleets.map(({ id, spec: { worker }, counts: { total, done, failed } }) => (
          <li key={id}>
            <a href={hrefTo(["fleets", id])}>
              <Visible text={worker} max={80} />
            </a>
            <progress
              class={failed > 0 ? "with-failures" : undefined}
              max={Math.max(1, total)}
              value={done}
              aria-label={`${countText(done)} of ${counted(total, "item")}`}
            />
            <span class="quiet">
              {countText(done)} of {countText(total)}
            </span>
          </li>
        ))}
      </ul>
    </Part>
  );
}

/** With a worker that is really there, so that the command can be copied as it is. */
function FirstSteps() {
  const projects = useResource("projects.list", {});
  const project = projects.data?.projects[0]?.name;
  const { data } = useResource("workers.list", project === undefined ? null : { project });
  const worker = data?.workers[0]?.name;
  return (
    <EmptyState title="Nothing has run yet.">
      {worker === undefined ? (
        <>
          <p>A worker is a file that says what to run, and what it may see. Write a project with some, and serve it:</p>
          <CodeBlock text={"corral init documents my-project\ncorral serve -C my-project"} />
        </>
      ) : (
        <>
          <p>
            Project <Visible text={project ?? ""} max={80} /> has {counted(data?.workers.length ?? 0, "worker")}. See
            what one would get, then run it, in the folder of the project:
          </p>
          <CodeBlock text={`corral explain ${worker}\ncorral run ${worker}`} />
          <a href={hrefTo(["workers", project ?? "", worker])}>Or go to its page</a>
        </>
      )}
      <p class="quiet">Runs of the command line and of this service appear here when they begin.</p>
    </EmptyState>
  );
}
