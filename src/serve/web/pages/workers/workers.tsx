import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { hrefTo, type PageProps, useApp, useMay, useResource } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { CodeBlock, Visible } from "../../components/visible.tsx";
import { ExplainedCell } from "./explained-cell.tsx";

type Worker = AnswerOf<"workers.list">["workers"][number];

/** The workers of each project, or what one of them would get. */
export function Workers({ parts: [project, worker] }: PageProps) {
  if (project !== undefined && worker !== undefined)
    return <WorkerPage key={`${project}/${worker}`} project={project} worker={worker} />;
  return <Projects />;
}

function Projects() {
  const { data, error, reload } = useResource("projects.list", {});
  if (data === null) return error === null ? <Loading what="projects" /> : <ErrorNote error={error} retry={reload} />;
  return (
    <>
      <h1>Workers</h1>
      {data.projects.map(({ name }) => (
        <ProjectWorkers key={name} project={name} isOnly={data.projects.length === 1} />
      ))}
    </>
  );
}

function ProjectWorkers({ project, isOnly }: { readonly project: string; readonly isOnly: boolean }) {
  const { data, error, reload } = useResource("workers.list", { project });
  return (
    <section class="worker-section">
      {isOnly ? null : (
        <h2 class="worker-project">
          <Visible text={project} max={80} />
        </h2>
      )}
      {data === null ? (
        error === null ? (
          <Loading what="workers" />
        ) : (
          <ErrorNote error={error} retry={reload} />
        )
      ) : (
        <>
          <Problems problems={data.problems} />
          {data.workers.length === 0 ? <NoWorker /> : <WorkerTable project={project} workers={data.workers} />}
        </>
      )}
    </section>
  );
}

function WorkerTable({ project, workers }: { readonly project: string; readonly workers: readonly Worker[] }) {
  return (
    <Table
      label={`Workers of ${project}`}
      rows={workers}
      keyOf={({ name }) => name}
      linkOf={({ name }) => hrefTo(["workers", project, name])}
      columns={[
        { title: "Worker", cell: ({ name }) => <Visible text={name} max={80} /> },
        { title: "What it does", kind: "text", cell: ({ description }) => <Visible text={description} max={300} /> },
        {
          title: "Image or model",
          isExtra: true,
          cell: ({ image, model }) => (
            <code>
              <Visible text={model ?? image} max={60} />
            </code>
          ),
        },
        { title: "May call", cell: ({ calls }) => (calls.length === 0 ? "" : <Calls calls={calls} />) },
        { title: "Policy", isExtra: true, cell: ({ policy }) => policy ?? "" },
      ]}
    />
  );
}

function Calls({ calls }: { readonly calls: readonly string[] }) {
  return (
    <span class="quiet">
      calls <Visible text={calls.join(", ")} max={100} />
    </span>
  );
}

function Problems({ problems }: { readonly problems: readonly string[] }) {
  if (problems.length === 0) return null;
  return (
    <div class="error-note worker-problems">
      <p>Files of this project have mistakes; what they declare cannot run:</p>
      <ul>
        {problems.slice(0, 50).map((problem) => (
          <li key={problem}>
            <Visible text={problem} max={500} />
          </li>
        ))}
        <MoreItems count={problems.length - 50} what="mistake" />
      </ul>
    </div>
  );
}

function NoWorker() {
  return (
    <EmptyState title="This project has no worker yet.">
      <p>
        A worker is a file in <code>workers/</code> that says what to run, what it needs, and what it may call:
      </p>
      <CodeBlock text={'---\nimage: corral/base\ncommand: ["wc", "-w"]\n---\nCounts words.'} />
    </EmptyState>
  );
}

/** What a worker would get if it ran now, and what each worker below it would. Nothing runs for this. */
function WorkerPage({ project, worker }: { readonly project: string; readonly worker: string }) {
  const { data, error, reload } = useResource("workers.explain", { project, worker });
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["workers"])}>Workers</a> / <Visible text={project} max={80} />
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={worker} max={80} />
        </h1>
        <span class="actions">
          <a href={hrefTo(["runs"], { worker })}>Its runs</a>
          <a href={hrefTo(["sessions"], { worker })}>Open a session</a>
        </span>
      </div>
      <StartRun project={project} worker={worker} />
      <p class="quiet">
        What it would get if it ran now. Each worker below gets no more than the one that calls it; what was taken away
        is struck through.
      </p>
      {data === null ? (
        error === null ? (
          <Loading what="what it would get" />
        ) : (
          <ErrorNote error={error} retry={reload} />
        )
      ) : (
        <>
          <ol class="cells">
            <ExplainedCell run={data.tree} />
          </ol>
          <ul class="cell-notes quiet">
            {data.notes.map((note) => (
              <li key={note}>
                <Visible text={note} max={500} />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** Starts a worker with an input and files, for those who may, and goes to its run. */
function StartRun({ project, worker }: { readonly project: string; readonly worker: string }) {
  const { client } = useApp();
  const may = useMay("run");
  const [text, setText] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const files = useRef<HTMLInputElement>(null);
  if (!may) return null;
  const input = inputOf(text);
  const start = async (): Promise<void> => {
    const request = { project, worker, ...(input.ok && input.value !== undefined ? { input: input.value } : {}) };
    const chosen = [...(files.current?.files ?? [])].map((content) => ({ name: content.name, content }));
    try {
      const { run } = await client.call("runs.start", request, { files: chosen });
      location.hash = hrefTo(["runs", run]);
    } catch (fault) {
      setError(fault as ApiError);
    }
  };
  return (
    <details class="start-run">
      <summary>Run it</summary>
      <label>
        Input, as JSON or as text
        <textarea
          rows={3}
          spellcheck={false}
          value={text}
          aria-invalid={!input.ok}
          aria-describedby="input-fault"
          onInput={({ currentTarget }) => setText(currentTarget.value)}
        />
      </label>
      <p id="input-fault" class="input-fault" role="status">
        {input.ok ? "" : input.fault}
      </p>
      <label>
        <span>
          Files, which it sees below <code>/attachments</code>
        </span>
        <input ref={files} type="file" multiple />
      </label>
      {error === null ? null : <ErrorNote error={error} />}
      <div class="actions">
        <Button kind="primary" disabled={!input.ok} act={start}>
          Run
        </Button>
      </div>
    </details>
  );
}

/** What a user typed as an input. `value` undefined: nothing. */
export type TypedInput =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly fault: string };

/** JSON, or else text; but what begins as JSON must be JSON. */
export function inputOf(text: string): TypedInput {
  const typed = text.trim();
  if (typed === "") return { ok: true, value: undefined };
  try {
    return { ok: true, value: JSON.parse(typed) };
  } catch (error) {
    if (!/^["[{]/.test(typed)) return { ok: true, value: text };
    return { ok: false, fault: `This begins as JSON, but is none: ${(error as Error).message}` };
  }
}
