import type { ComponentChildren } from "preact";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { durationText, roughBytesText } from "../../../../text/amounts.ts";
import { present } from "../../../../text/present.ts";
import { printable } from "../../../../text/visible.ts";
import { useNow, useResource } from "../../app/resource.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { ErrorNote, Loading } from "../../components/notes.tsx";
import { Ago, CodeBlock, Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";

type Fleet = AnswerOf<"fleets.list">["fleets"][number];
type ShownItem = AnswerOf<"fleets.item">;

const EVERY_MS = 3000;

/** One item: how it ended, what it was given, and what it printed. */
export function ItemDialog({
  fleet,
  itemKey,
  close,
}: {
  readonly fleet: Pick<Fleet, "id" | "project">;
  readonly itemKey: string;
  readonly close: () => void;
}) {
  const ask = { fleet: fleet.id, key: itemKey };
  const { data, error, reload } = useResource("fleets.item", ask, { everyMs: EVERY_MS });
  return (
    <Dialog title={printable(itemKey)} close={close}>
      <div class="item-details">
        {data !== null ? (
          <Details item={data} project={fleet.project} />
        ) : error === null ? (
          <Loading what="the item" />
        ) : (
          <ErrorNote error={error} retry={reload} />
        )}
      </div>
    </Dialog>
  );
}

function Details({
  item: { state, result, request, streams, attempts, machine },
  project,
}: {
  readonly item: ShownItem;
  readonly project: string;
}) {
  const now = useNow();
  const { input, attachments, fields = {} } = request;
  const given = { ...(Object.keys(fields).length > 0 ? { fields } : {}), ...present({ input }) };
  return (
    <>
      <p class="item-line">
        <StatusBadge status={state === "done" ? (result?.status ?? "done") : state} />
        {state === "running" && machine !== null ? (
          <span>
            on <Visible text={machine} max={60} />
          </span>
        ) : null}
        {result === null ? null : <ResultLine result={result} project={project} />}
        {result === null ? null : <Ago at={result.endedAt} now={now} />}
      </p>
      {result?.error == null ? null : (
        <p class="item-error">
          <code>{result.error.code}</code> <Visible text={result.error.message} max={4000} />
        </p>
      )}
      <Part title="Standard error">{streams.stderr === "" ? null : <CodeBlock text={streams.stderr} />}</Part>
      <Part title="Standard output">{streams.stdout === "" ? null : <CodeBlock text={streams.stdout} />}</Part>
      {typeof result?.output === "string" || result?.output == null ? null : (
        <Part title="Output">
          <CodeBlock text={JSON.stringify(result.output, null, 2)} />
        </Part>
      )}
      <Part title="Attachments">{attachments.length === 0 ? null : <CodeBlock text={attachments.join("\n")} />}</Part>
      <Part title="Given">
        {Object.keys(given).length === 0 ? null : <CodeBlock text={JSON.stringify(given, null, 2)} />}
      </Part>
      <Part title="Earlier attempts">
        {attempts.length === 0 ? null : (
          <ul class="item-attempts">
            {attempts.map((attempt) => (
              <li key={attempt.attempt} class="item-line">
                <StatusBadge status={attempt.status} />
                <ResultLine result={attempt} project={project} />
                <Ago at={attempt.endedAt} now={now} />
              </li>
            ))}
          </ul>
        )}
      </Part>
    </>
  );
}

/** Runs of items are not in the history of runs, but in the audit trail. */
function ResultLine({
  result,
  project,
}: {
  readonly project: string;
  readonly result: ShownItem["attempts"][number] & { readonly memoryBytesPeak?: number | null };
}) {
  const { attempt, exitCode, durationMs, memoryBytesPeak = null, run, machine } = result;
  return (
    <>
      <span>attempt {attempt}</span>
      {machine === undefined ? null : (
        <span>
          on <Visible text={machine} max={60} />
        </span>
      )}
      {exitCode === null ? null : <span>exit code {exitCode}</span>}
      <span>{durationText(durationMs)}</span>
      {memoryBytesPeak === null ? null : <span>{roughBytesText(memoryBytesPeak)} of memory</span>}
      {run === null ? null : (
        <a href={hrefTo(["audit"], { project, run })} title="Its records in the audit trail">
          run <code>{run}</code>
        </a>
      )}
    </>
  );
}

/** Nothing without contents. */
function Part({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return children === null ? null : (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}
