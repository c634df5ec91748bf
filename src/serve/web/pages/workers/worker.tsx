import type { Explanation } from "../../api/shapes.ts";
import { useResource } from "../../app/resource.ts";
import { ErrorNote, Loading } from "../../components/notes.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { ExplainedCell } from "./explained-cell.tsx";
import { StartRun } from "./start-run.tsx";

/** What a worker would get if it ran now, and what each worker below it would. Nothing runs for this. */
export function WorkerPage({ project, worker }: { readonly project: string; readonly worker: string }) {
  const path = `/v1/projects/${encodeURIComponent(project)}/workers/${encodeURIComponent(worker)}`;
  const { data, error, reload } = useResource<Explanation>(path);
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["workers"])}>Workers</a> / <Visible text={project} max={80} />
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={worker} max={80} />
        </h1>
        <a href={hrefTo(["runs"], { worker })}>Its runs</a>
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
