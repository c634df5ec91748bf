import type { ProjectList, Worker, WorkerList } from "../../api/shapes.ts";
import type { PageProps } from "../../app/page-props.ts";
import { useResource } from "../../app/resource.ts";
import { CodeBlock } from "../../components/code-block.tsx";
import { EmptyState, ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { WorkerPage } from "./worker.tsx";

/** The workers of each project, or what one of them would get. */
export function Workers({ parts: [project, worker] }: PageProps) {
  if (project !== undefined && worker !== undefined)
    return <WorkerPage key={`${project}/${worker}`} project={project} worker={worker} />;
  return <Projects />;
}

function Projects() {
  const { data, error, reload } = useResource<ProjectList>("/v1/projects");
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
  const path = `/v1/projects/${encodeURIComponent(project)}/workers`;
  const { data, error, reload } = useResource<WorkerList>(path);
  return (
    <section>
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
