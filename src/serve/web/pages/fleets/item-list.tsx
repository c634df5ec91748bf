import { useEffect, useRef, useState } from "preact/hooks";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { countText, durationText, words } from "../../../../text/amounts.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { EmptyState, ErrorNote } from "../../components/notes.tsx";
import { useRowKeys, VirtualList } from "../../components/virtual-list.tsx";
import { Ago, Visible } from "../../components/visible.tsx";
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
