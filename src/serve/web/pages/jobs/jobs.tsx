import { useState } from "preact/hooks";
import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, durationText } from "../../../../text/amounts.ts";
import { hrefTo, type PageProps, useApp, useMay, useNow, useResource } from "../../app/resource.ts";
import { Button, Confirm, SaveButton, SelectField } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, StatusBadge, Visible } from "../../components/visible.tsx";

type Jobs = AnswerOf<"ci.show">;
type Step = Jobs["steps"][number];

const EVERY_MS = 1500;
const SHORT_ID = 12;
const RESULTS = ["junit.xml", "ci.json", "corral.sarif", "code-quality.json"];

/** Jobs of the base's `ci.yaml` on the files of a stranger's commit. */
export function JobsPage({ parts: [id] }: PageProps) {
  if (id !== undefined) return <JobsView key={id} id={id} />;
  return (
    <>
      <h1>Jobs</h1>
      <NewJobs />
      <AllJobs />
    </>
  );
}

function NewJobs() {
  const { client } = useApp();
  const may = useMay("run");
  const mayChooseBase = useMay("admin");
  const projects = useResource("projects.list", {}).data?.projects ?? [];
  const [chosen, setChosen] = useState("");
  const [head, setHead] = useState("");
  const [base, setBase] = useState("");
  const [jobs, setJobs] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  if (!may) return <p class="quiet">This token may see jobs, and start none.</p>;
  const start = async (): Promise<void> => {
    const project = chosen || projects[0]?.name;
    const names = jobs.split(/[\s,]+/).filter((name) => name !== "");
    try {
      const { ci } = await client.call("ci.start", {
        ...(project === undefined ? {} : { project }),
        ...(head === "" ? {} : { head }),
        ...(base === "" ? {} : { base }),
        ...(names.length === 0 ? {} : { jobs: names }),
      });
      location.hash = hrefTo(["jobs", ci]);
    } catch (fault) {
      if (!(fault instanceof ApiError)) throw fault;
      setError(fault);
    }
  };
  return (
    <section class="new-jobs" aria-label="New jobs">
      <div class="filters">
        {projects.length < 2 ? null : (
          <SelectField name="Project" value={chosen} options={projects.map(({ name }) => name)} choose={setChosen} />
        )}
        <Field name="Commit to test" value={head} set={setHead} />
        {mayChooseBase ? <Field name="Commit with the rules" value={base} set={setBase} /> : null}
        <Field name="Jobs" value={jobs} set={setJobs} hint="all" />
      </div>
      {error === null ? null : <ErrorNote error={error} />}
      <div class="actions">
        <Button kind="primary" act={start}>
          Run jobs
        </Button>
        <span class="quiet">
          Commits are those that the project’s repository has. Only the <code>ci.yaml</code> of the rules is obeyed.
        </span>
      </div>
    </section>
  );
}

function Field({
  name,
  value,
  set,
  hint = "HEAD",
}: {
  readonly name: string;
  readonly value: string;
  readonly set: (value: string) => void;
  readonly hint?: string;
}) {
  return (
    <label>
      {name}
      <input
        type="text"
        size={16}
        spellcheck={false}
        placeholder={hint}
        value={value}
        onInput={({ currentTarget }) => set(currentTarget.value.trim())}
      />
    </label>
  );
}

function AllJobs() {
  const now = useNow();
  const { data, error, reload } = useResource("ci.list", {}, { everyMs: EVERY_MS });
  if (data === null) return error === null ? <Loading what="jobs" /> : <ErrorNote error={error} retry={reload} />;
  if (data.ci.length === 0) return <EmptyState title="No jobs were run yet." />;
  return (
    <Table
      label="Jobs"
      rows={data.ci}
      keyOf={({ id }) => id}
      linkOf={({ id }) => hrefTo(["jobs", id])}
      columns={[
        { title: "Commit", cell: ({ head }) => <Commit id={head} /> },
        { title: "State", cell: ({ state }) => <StatusBadge status={state} /> },
        { title: "Project", isExtra: true, cell: ({ project }) => <Visible text={project} max={80} /> },
        { title: "Rules", isExtra: true, cell: ({ base }) => <Commit id={base} /> },
        { title: "Began", kind: "number", cell: ({ startedAt }) => <Ago at={startedAt} now={now} /> },
      ]}
    />
  );
}

function Commit({ id }: { readonly id: string | null }) {
  return <code title={id ?? "not found"}>{id?.slice(0, SHORT_ID) ?? "-"}</code>;
}

function JobsView({ id }: { readonly id: string }) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const [isEnded, setEnded] = useState(false);
  const [isAsked, setAsked] = useState(false);
  const { data, error, reload } = useResource("ci.show", { ci: id }, isEnded ? {} : { everyMs: EVERY_MS });
  if (data === null) {
    if (error === null) return <Loading what="the jobs" />;
    if (error.code !== "UNKNOWN_CI") return <ErrorNote error={error} retry={reload} />;
    return (
      <EmptyState title="These jobs are not there any more.">
        <a href={hrefTo(["jobs"])}>Other jobs</a>
      </EmptyState>
    );
  }
  const { state, base, head, isChanged, why, steps } = data;
  const isRunning = state === "running";
  if (!isRunning && !isEnded) setEnded(true);
  const remove = async (): Promise<void> => {
    setAsked(false);
    try {
      await client.call("ci.stop", { ci: id });
      location.hash = hrefTo(["jobs"]);
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["jobs"])}>Jobs</a> / <code>{id}</code>
      </nav>
      <div class="page-head">
        <h1>
          Jobs on <Commit id={head} />
        </h1>
        <StatusBadge status={state} />
      </div>
      <p class="quiet" role="status">
        {base === head ? "By its own rules" : "By the rules of "}
        {base === head ? null : <Commit id={base} />}
        {isChanged ? ". It changes ci.yaml, and the change is not obeyed" : null}
        {why === null ? null : (
          <>
            . <Visible text={why} max={1000} />
          </>
        )}
      </p>
      <div class="actions">
        {isRunning || steps.length === 0
          ? null
          : RESULTS.map((path) => (
              <SaveButton key={path} load={() => client.download("ci.file", { ci: id, path })} name={path}>
                {path}
              </SaveButton>
            ))}
        {may ? (
          <Button kind="danger" act={async () => setAsked(true)}>
            {isRunning ? "Stop and remove" : "Remove"}
          </Button>
        ) : null}
      </div>
      {steps.length === 0 ? null : (
        <Table
          label="Steps"
          rows={steps}
          keyOf={({ name }) => name}
          columns={[
            { title: "Step", kind: "text", cell: (step) => <StepName step={step} /> },
            { title: "Status", cell: ({ status }) => <StatusBadge status={statusOf(status, isRunning)} /> },
            { title: "Tests", cell: testsText },
            { title: "After", isExtra: true, cell: ({ needs }) => <Visible text={needs.join(", ")} max={200} /> },
            {
              title: "Took",
              kind: "number",
              cell: ({ durationMs }) => (durationMs === null ? "" : durationText(durationMs)),
            },
          ]}
        />
      )}
      {isAsked ? (
        <Confirm title="Remove these jobs?" deed="Remove" act={() => void remove()} close={() => setAsked(false)}>
          <p>{isRunning ? "Its steps are cancelled. " : ""}Results are removed; the runs of the steps stay.</p>
        </Confirm>
      ) : null}
    </>
  );
}

/** What it printed is on the page of its run. */
function StepName({ step: { title, run } }: { readonly step: Step }) {
  if (run === null) return <Visible text={title} max={200} />;
  return (
    <a href={hrefTo(["runs", run])}>
      <Visible text={title} max={200} />
    </a>
  );
}

function statusOf(status: string | null, isRunning: boolean): string {
  if (status !== null) return status === "kept" ? "done" : status;
  return isRunning ? "waiting" : "cancelled";
}

/** As its reports say. */
function testsText({ failedTests }: Step): string {
  if (failedTests === null) return "";
  return failedTests === 0 ? "none failed" : `${counted(failedTests, "test")} failed`;
}
