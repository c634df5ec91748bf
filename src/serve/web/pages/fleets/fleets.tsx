import { useState } from "preact/hooks";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, durationText, words } from "../../../../text/amounts.ts";
import { hrefTo, type PageProps, parsePageAddress, useApp, useMay, useNow, useResource } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { MachineTable, Table } from "../../components/table.tsx";
import { Ago, CodeBlock, FleetBadge, StatusBadge, toneOf, Visible } from "../../components/visible.tsx";
import { ItemDialog, ItemList } from "./item-list.tsx";
import type { Filter } from "./items.ts";

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
            { title: "State", cell: ({ state, counts: { failed } }) => <FleetBadge state={state} failed={failed} /> },
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

function Done({ counts: { done, failed, total } }: Pick<Fleet, "counts">) {
  return (
    <span class="fleet-done">
      <progress
        class={failed > 0 ? "with-failures" : undefined}
        max={Math.max(1, total)}
        value={done}
        aria-label="Done"
      />
      <span>
        {countText(done)} of {countText(total)}
      </span>
    </span>
  );
}

type ShownFleet = AnswerOf<"fleets.show">;
type FailureGroup = AnswerOf<"fleets.show">["failures"][number];
type FleetMachine = AnswerOf<"fleets.show">["machines"][number];

interface Share {
  readonly status: string;
  readonly count: number;
  readonly tone: string;
}

/** How many items are in which state, as a bar and in numbers. A number shows its items. */
function Progress({ fleet, show }: { readonly fleet: ShownFleet; readonly show: (status: string) => void }) {
  const { counts, recentRate, leftMs } = fleet;
  const shares = sharesOf(fleet);
  const percent = counts.total === 0 ? 0 : Math.floor((counts.done * 1000) / counts.total) / 10;
  return (
    <section class="fleet-progress" aria-label="Progress">
      <p class="fleet-figures">
        <strong>
          {countText(counts.done)} of {countText(counts.total)}
        </strong>{" "}
        done ({percent}%)
        {recentRate === null ? null : `, ${rateText(recentRate)}`}
        {leftMs === null ? null : `, about ${durationText(Math.max(1000, Math.round(leftMs / 1000) * 1000))} left`}
      </p>
      <div class="fleet-bar" aria-hidden="true">
        {shares.map(({ status, count, tone }) => (
          <span key={status} class={`fleet-share fleet-share-${tone}`} style={{ flexGrow: count }} />
        ))}
      </div>
      <ul class="fleet-legend">
        {shares.map(({ status, count, tone }) => (
          <li key={status}>
            <button type="button" class="fleet-count" onClick={() => show(status)}>
              <span class={`fleet-dot fleet-share-${tone}`} aria-hidden="true" />
              <strong>{countText(count)}</strong> {words(status)}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Successes first, then failures, running items and waiting ones. */
const ORDER = ["good", "plain", "warn", "bad", "busy", "waiting"];
const TONES: Readonly<Record<string, string>> = {
  cached: "good",
  pending: "warn",
  partly_applied: "warn",
  discarded: "plain",
};

function sharesOf({ summary, counts }: ShownFleet): Share[] {
  const ended = new Map<string, number>();
  for (const { status, count } of summary) ended.set(status, (ended.get(status) ?? 0) + count);
  const shares: Share[] = [...ended].map(([status, count]) => ({
    status,
    count,
    tone: TONES[status] ?? toneOf(status),
  }));
  shares.push({ status: "running", count: counts.running, tone: "busy" });
  shares.push({ status: "queued", count: counts.queued, tone: "waiting" });
  return shares
    .filter(({ count }) => count > 0)
    .toSorted((a, b) => ORDER.indexOf(a.tone) - ORDER.indexOf(b.tone) || b.count - a.count);
}

function rateText(perSecond: number): string {
  return perSecond >= 1
    ? `${perSecond.toFixed(perSecond < 10 ? 1 : 0)} per second`
    : `${(perSecond * 60).toFixed(1)} per minute`;
}

const ITEMS_EVERY_MS = 2000;
const LIVE = new Set(["loading", "running"]);

/** One fleet: how far it is, what failed and why, its items, and what can be done with it. */
function FleetPage({ id, query }: { readonly id: string; readonly query: Readonly<Record<string, string>> }) {
  const now = useNow();
  const [isLive, setLive] = useState(true);
  const everyMs = isLive ? ITEMS_EVERY_MS : 5 * ITEMS_EVERY_MS;
  const { data: fleet, error, reload } = useResource("fleets.show", { fleet: id }, { everyMs });
  if (fleet === null) return error === null ? <Loading what="the fleet" /> : <ErrorNote error={error} retry={reload} />;
  if (LIVE.has(fleet.state) !== isLive) setLive(LIVE.has(fleet.state));
  const { counts, spec } = fleet;
  const filter = filterOf(query, counts.failed);
  const show = (next: Partial<Filter>): void => {
    location.replace(hrefTo(["fleets", id], { ...filter, alike: "", ...next }));
  };
  const placeOfItem = (key: string | undefined): string => hrefTo(["fleets", id], { ...filter, key });
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["fleets"])}>Fleets</a> / <code>{fleet.id}</code>
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={spec.worker} max={80} /> <FleetBadge state={fleet.state} failed={counts.failed} />
        </h1>
        <Actions fleet={fleet} reload={reload} />
      </div>
      <p class="quiet">
        Project <Visible text={fleet.project} max={80} />, items from <Visible text={spec.source} max={200} />, began{" "}
        <Ago at={fleet.createdAt} now={now} />
        {fleet.endedAt === null ? "" : ", ended "}
        {fleet.endedAt === null ? null : <Ago at={fleet.endedAt} now={now} />}.
      </p>
      {fleet.why === null ? null : (
        <p>
          <Visible text={fleet.why} max={500} />
        </p>
      )}
      <Progress fleet={fleet} show={(status) => show({ show: status, search: "" })} />
      {spec.machines == null || fleet.endedAt !== null ? null : <Machines fleet={fleet} />}
      {fleet.failures.length === 0 ? null : (
        <Failures
          groups={fleet.failures}
          failed={counts.failed}
          chosen={filter.alike}
          choose={(alike) => show({ alike })}
        />
      )}
      <ItemList fleet={fleet} filter={filter} change={show} isLive={isLive} placeOf={placeOfItem} now={now} />
      {query.key === undefined ? null : (
        <ItemDialog
          fleet={fleet}
          itemKey={query.key}
          close={() => {
            // The browser reports the end of a dialog later: who has gone to another place meanwhile stays there.
            if (parsePageAddress(location.hash).query.key === query.key) location.hash = placeOfItem(undefined);
          }}
        />
      )}
    </>
  );
}

/** Failures come first: while there are some, the rest is one click away. */
function filterOf({ search = "", show, alike = "" }: Readonly<Record<string, string>>, failed: number): Filter {
  const isChosen = show !== undefined || search !== "" || alike !== "";
  return { search, show: show === "all" ? "all" : (show ?? (isChosen || failed === 0 ? "all" : "failures")), alike };
}

function Actions({
  fleet: { id, state, endedAt, counts },
  reload,
}: {
  readonly fleet: ShownFleet;
  readonly reload: () => void;
}) {
  const { client, notify } = useApp();
  const mayRun = useMay("run");
  const [isAsking, setAsking] = useState(false);
  if (!mayRun) return null;
  const send = async (what: "resume" | "retry" | "cancel", said: string): Promise<void> => {
    try {
      await client.call(`fleets.${what}`, { fleet: id });
      notify(said);
    } catch (error) {
      notify((error as Error).message, "bad");
    }
    reload();
  };
  const isStopped = state === "paused" || state === "interrupted";
  const mayRetry = counts.failed > 0 && !LIVE.has(state) && state !== "cancelled";
  return (
    <div class="actions">
      {isStopped ? (
        <Button kind="primary" act={() => send("resume", "The fleet continues.")}>
          Resume
        </Button>
      ) : null}
      {mayRetry ? (
        <Button act={() => send("retry", `${counted(counts.failed, "item")} will run again.`)}>
          {`Retry ${counted(counts.failed, "failed item")}`}
        </Button>
      ) : null}
      {endedAt === null ? (
        <Button kind="danger" act={() => setAsking(true)}>
          Cancel
        </Button>
      ) : null}
      {isAsking ? (
        <Confirm
          title="Cancel this fleet?"
          deed="Cancel the fleet"
          close={() => setAsking(false)}
          act={() => {
            setAsking(false);
            void send("cancel", "The fleet was cancelled.");
          }}
        >
          <p>
            {countText(counts.queued)} waiting items will never run. Those that run now end. This cannot be taken back.
          </p>
        </Confirm>
      ) : null}
    </div>
  );
}

/** Why items failed: those with the same last words are one group, and a group shows its items. */
function Failures({
  groups,
  failed,
  chosen,
  choose,
}: {
  readonly groups: readonly FailureGroup[];
  readonly failed: number;
  /** The key of the example of a group; empty: none is chosen. */
  readonly chosen: string;
  readonly choose: (example: string) => void;
}) {
  const shown = groups.reduce((sum, { count }) => sum + count, 0);
  return (
    <section aria-labelledby="failures">
      <h2 id="failures">{counted(failed, "failure")} by cause</h2>
      <ul class="fleet-causes">
        {groups.map(({ count, status, text, example }) => (
          <li key={example}>
            <button
              type="button"
              class="fleet-cause"
              aria-pressed={chosen === example}
              onClick={() => choose(chosen === example ? "" : example)}
            >
              <strong>{countText(count)}</strong>
              <StatusBadge status={status} />
              <span class="fleet-cause-text">
                <Visible text={text} max={300} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {shown < failed ? <p class="quiet">{countText(failed - shown)} more have other causes.</p> : null}
    </section>
  );
}

/** The machines that may run items of a fleet while it is not over: what each runs, and why it takes none. */
function Machines({ fleet: { machines, counts, spec } }: { readonly fleet: ShownFleet }) {
  const elsewhere = machines.reduce((sum, { running }) => sum + running, 0);
  const needs = spec.machines?.needs ?? [];
  const busy = machines.filter(({ running }) => running > 0).length;
  return (
    <section aria-labelledby="machines">
      <h2 id="machines">Machines</h2>
      {machines.length === 0 ? (
        <EmptyState title="No machine takes part in the queue.">
          <p>On each machine, in its copy of the project:</p>
          <CodeBlock text={["corral work", ...needs.map((label) => `--label ${label}`)].join(" ")} />
        </EmptyState>
      ) : (
        <>
          <p class="quiet machines-sum" role="status">
            {counted(elsewhere, "item")} on {countText(busy)} of {counted(machines.length, "machine")}
            {counts.running > elsewhere
              ? `, ${countText(counts.running - elsewhere)} at the process that owns the fleet`
              : ""}
            {needs.length === 0 ? null : (
              <>
                . They need <Visible text={needs.join(", ")} max={200} />
              </>
            )}
            .
          </p>
          <MachineTable machines={machines} note={about} />
        </>
      )}
    </section>
  );
}

function about({ why, running, runningInAll }: FleetMachine) {
  if (why !== null)
    return (
      <>
        Takes none: <Visible text={why} max={500} />
      </>
    );
  return runningInAll > running ? `runs ${counted(runningInAll - running, "item")} of other fleets` : "";
}
