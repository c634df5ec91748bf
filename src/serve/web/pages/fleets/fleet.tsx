import { useState } from "preact/hooks";
import type { ShownFleet } from "../../api/shapes.ts";
import { useApp, useMay } from "../../app/context.ts";
import { useNow, useResource } from "../../app/resource.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { Button } from "../../components/button.tsx";
import { Confirm } from "../../components/dialog.tsx";
import { ErrorNote, Loading } from "../../components/notes.tsx";
import { Ago } from "../../components/time.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { countText, plural } from "../../text/amounts.ts";
import { Failures } from "./failures.tsx";
import { ItemDialog } from "./item-dialog.tsx";
import { ItemList } from "./item-list.tsx";
import type { Filter } from "./items.ts";
import { Machines } from "./machines.tsx";
import { Progress } from "./progress.tsx";

const EVERY_MS = 2000;
const LIVE = new Set(["loading", "running"]);

/** One fleet: how far it is, what failed and why, its items, and what can be done with it. */
export function FleetPage({ id, query }: { readonly id: string; readonly query: Readonly<Record<string, string>> }) {
  const now = useNow();
  const [isLive, setLive] = useState(true);
  const path = `/v1/fleets/${encodeURIComponent(id)}`;
  const { data: fleet, error, reload } = useResource<ShownFleet>(path, { everyMs: isLive ? EVERY_MS : 5 * EVERY_MS });
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
          <Visible text={spec.worker} max={80} /> <StatusBadge status={fleet.state} />
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
            location.hash = placeOfItem(undefined);
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
      await client.post(`/v1/fleets/${encodeURIComponent(id)}/${what}`);
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
        <Button act={() => send("retry", `${plural(counts.failed, "item")} will run again.`)}>
          {`Retry ${plural(counts.failed, "failed item")}`}
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
