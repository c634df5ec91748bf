import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { countText, durationText, roughBytesText, words } from "../../../../text/amounts.ts";
import { present } from "../../../../text/present.ts";
import { printable } from "../../../../text/visible.ts";
import { hrefTo, useNow, useResource } from "../../app/resource.ts";
import { Dialog } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { useRowKeys, VirtualList } from "../../components/table.tsx";
import { Ago, CodeBlock, StatusBadge, Visible } from "../../components/visible.tsx";
import { type Filter, useItems } from "./items.ts";

type ShownFleet = AnswerOf<"fleets.show">;
type FleetItem = AnswerOf<"fleets.items">["items"][number];

const ROW_PX = 34;
/** The pause in typing after which the address of the page changes. */
const SETTLED_MS = 400;

/** The items of a fleet that fit a filter, in the order of the manifest. */
export function ItemList({
  fleet,
  filter,
  change,
  isLive,
  placeOf,
  now,
}: {
  readonly fleet: ShownFleet;
  readonly filter: Filter;
  readonly change: (filter: Partial<Filter>) => void;
  readonly isLive: boolean;
  readonly placeOf: (key: string) => string;
  readonly now: number;
}) {
  const [search, setSearch] = useState(filter.search);
  useEffect(() => setSearch(filter.search), [filter.search]);
  useEffect(() => {
    if (search === filter.search) return;
    const timer = setTimeout(() => change({ search, alike: filter.alike }), SETTLED_MS);
    return () => clearTimeout(timer);
  });
  const asked = { ...filter, search, show: filter.show === "all" ? "" : filter.show };
  const items = useItems(fleet.id, asked, { total: fleet.counts.total, isLive });
  const box = useRef<HTMLElement>(null);
  useRowKeys(box, "Items");
  const isFiltered = asked.search !== "" || asked.show !== "" || asked.alike !== "";
  const known = asked.search === "" ? knownCount(fleet, asked) : null;
  return (
    <section ref={box} aria-labelledby="items">
      <div class="page-head">
        <h2 id="items">Items</h2>
        <div class="filters">
          <select
            aria-label="Show"
            value={filter.alike === "" ? filter.show : "alike"}
            onChange={({ currentTarget }) => change({ show: currentTarget.value })}
          >
            {filter.alike === "" ? null : <option value="alike">one cause</option>}
            {choicesOf(fleet, filter).map((value) => (
              <option key={value} value={value}>
                {words(value)}
              </option>
            ))}
          </select>
          <input
            type="search"
            data-search
            aria-label="Search items by key"
            placeholder="Search by key"
            maxLength={500}
            value={search}
            onInput={({ currentTarget }) => setSearch(currentTarget.value)}
          />
        </div>
      </div>
      <p class="quiet fleet-found" role="status">
        {items.isWhole === null
          ? "…"
          : `${countText(known ?? items.count)}${items.isWhole || known !== null ? "" : " or more"} ${isFiltered ? "found" : "items"}`}
      </p>
      {items.error === null ? null : <ErrorNote error={items.error} />}
      {items.isWhole === true && items.count === 0 ? (
        <EmptyState title={isFiltered ? "No item fits." : "The fleet has no items."}>
          {isFiltered ? (
            <p>
              <button type="button" class="button" onClick={() => change({ show: "all", search: "", alike: "" })}>
                Show all items
              </button>
            </p>
          ) : null}
        </EmptyState>
      ) : (
        <div class="fleet-items">
          <VirtualList
            count={items.count}
            rowPx={ROW_PX}
            label="Items"
            onRange={items.see}
            row={(index) => (
              <Row item={items.at(index)} placeOf={placeOf} now={now} isShared={fleet.spec.machines != null} />
            )}
          />
        </div>
      )}
    </section>
  );
}

function Row({
  item,
  placeOf,
  now,
  isShared,
}: {
  readonly item: FleetItem | undefined;
  readonly placeOf: (key: string) => string;
  readonly now: number;
  /** Other machines may run items. */
  readonly isShared: boolean;
}) {
  if (item === undefined) return <span class="fleet-item quiet">…</span>;
  const { key, state, status, attempt, endedAt, durationMs, machine } = item;
  return (
    <a class={isShared ? "fleet-item fleet-item-shared" : "fleet-item"} data-row href={placeOf(key)}>
      <span class="fleet-item-key">
        <Visible text={key} max={300} />
      </span>
      <StatusBadge status={state === "done" ? (status ?? "done") : state} />
      {isShared ? (
        <span class="fleet-item-extra fleet-item-machine">
          {machine === null ? "" : <Visible text={machine} max={60} />}
        </span>
      ) : null}
      <span class="fleet-item-extra">{attempt > 1 ? `attempt ${attempt}` : ""}</span>
      <span class="fleet-item-extra">{durationMs === null ? "" : durationText(durationMs)}</span>
      <span class="fleet-item-extra">{endedAt === null ? "" : <Ago at={endedAt} now={now} />}</span>
    </a>
  );
}

function choicesOf({ summary, counts }: ShownFleet, { show }: Filter): string[] {
  const statuses = summary.map(({ status }) => status);
  const some = [
    counts.failed > 0 ? "failures" : "",
    counts.running > 0 ? "running" : "",
    counts.queued > 0 ? "queued" : "",
  ];
  return [...new Set(["all", ...some, ...statuses, show])].filter((choice) => choice !== "");
}

/** How many items fit, if the fleet itself says so. */
function knownCount({ counts, summary, failures }: ShownFleet, { show, alike }: Filter): number | null {
  if (alike !== "") return failures.find(({ example }) => example === alike)?.count ?? null;
  if (show === "") return counts.total;
  if (show === "failures") return counts.failed;
  if (show === "running" || show === "queued") return counts[show];
  return summary.reduce((sum, { status, count }) => sum + (status === show ? count : 0), 0);
}

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
