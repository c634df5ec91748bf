import { useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted } from "../../../../text/amounts.ts";
import { useApp, useMay, useNow, useResource, useShortcuts } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { Ago, StatusBadge, Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { SessionCommands } from "./session-commands.tsx";
import { SessionFiles } from "./session-files.tsx";
import { ShownPorts } from "./shown-ports.tsx";
import { ShownSnapshots } from "./shown-snapshots.tsx";

type Session = AnswerOf<"sessions.show">;
type Settled = AnswerOf<"sessions.close">;

const EVERY_MS = 2000;
const MAX_CHANGES = 200;

export function SessionView({ id, query }: { readonly id: string; readonly query: Readonly<Record<string, string>> }) {
  const { client, notify } = useApp();
  const [settled, setSettled] = useState<Settled | null>(null);
  const [isEnding, setEnding] = useState(false);
  const [worker, setWorker] = useState("");
  const ask = settled === null && !isEnding ? { session: id } : null;
  const { data, error, reload } = useResource("sessions.show", ask, { everyMs: EVERY_MS });
  if (settled !== null) return <Ended settled={settled} worker={worker} />;
  if (isEnding) return <p role="status">It ends; its changes are looked at…</p>;
  if (error?.code === "UNKNOWN_SESSION")
    return (
      <EmptyState title="This session has ended.">
        <a href={hrefTo(["sessions"])}>Show the open sessions</a>
      </EmptyState>
    );
  if (data === null)
    return error === null ? <Loading what="the session" /> : <ErrorNote error={error} retry={reload} />;
  if (worker !== data.worker) setWorker(data.worker);
  const place = (change: Readonly<Record<string, string>>): string => hrefTo(["sessions", id], { ...query, ...change });
  const stop = (): void => {
    setEnding(true);
    client
      .call("sessions.close", { session: id })
      .then(setSettled)
      .catch((fault: ApiError) => notify(fault.message, "bad"))
      .finally(() => setEnding(false));
  };
  return (
    <>
      <Head session={data} reload={reload} stop={stop} />
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      <SessionCommands session={data} shown={query.command} place={(command) => place({ command })} />
      <ShownPorts session={data} />
      <SessionFiles session={data} path={query.path ?? "/"} place={(path) => place({ path })} />
      <ShownSnapshots session={data} />
    </>
  );
}

function Head({
  session,
  reload,
  stop,
}: {
  readonly session: Session;
  readonly reload: () => void;
  readonly stop: () => void;
}) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const now = useNow();
  const [isAsked, setAsked] = useState(false);
  const { id, worker, project, isPaused, openedAt } = session;
  const pause = async (): Promise<void> => {
    await client
      .call(isPaused ? "sessions.resume" : "sessions.pause", { session: id })
      .catch((fault: ApiError) => notify(fault.message, "bad"));
    reload();
  };
  useShortcuts(
    "This session",
    may
      ? [
          { keys: "p", does: isPaused ? "Resume it" : "Pause it", act: () => void pause() },
          { keys: "s", does: "Stop it", act: () => setAsked(true) },
        ]
      : [],
  );
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["sessions"])}>Sessions</a> / <code>{id}</code>
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={worker} max={80} /> <StatusBadge status={isPaused ? "paused" : "running"} />
        </h1>
        {may ? (
          <div class="actions">
            <Button act={pause} shortcut="p">
              {isPaused ? "Resume" : "Pause"}
            </Button>
            <Button kind="danger" act={() => setAsked(true)} shortcut="s">
              Stop
            </Button>
          </div>
        ) : null}
      </div>
      <p class="quiet">
        <Visible text={project} max={60} />, opened <Ago at={openedAt} now={now} />
      </p>
      {isAsked ? (
        <Confirm title="Stop this session?" deed="Stop it" act={stop} close={() => setAsked(false)}>
          <p>All its commands end. Changes are applied where the project agrees; others wait as a changeset.</p>
        </Confirm>
      ) : null}
    </>
  );
}

/** What became of its changes. */
function Ended({
  settled: { changes, changeset, error },
  worker,
}: {
  readonly settled: Settled;
  readonly worker: string;
}) {
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["sessions"])}>Sessions</a>
      </nav>
      <h1>
        The session of <Visible text={worker} max={80} /> has ended
      </h1>
      {error === null ? null : (
        <div class="error-note" role="alert">
          <Visible text={error.message} max={4000} /> <code>{error.code}</code>
        </div>
      )}
      <p role="status">{changes.length === 0 ? "It changed no file." : `${counted(changes.length, "change")}:`}</p>
      <ul class="files">
        {changes.slice(0, MAX_CHANGES).map(({ path, outcome, reason }) => (
          <li key={path}>
            <StatusBadge status={outcome} />
            <code>
              <Visible text={path} max={300} />
            </code>
            <span class="quiet">{reason === null ? null : <Visible text={reason} max={300} />}</span>
          </li>
        ))}
        <MoreItems count={changes.length - MAX_CHANGES} what="change" />
      </ul>
      {changeset?.id ? (
        <a class="button" href={hrefTo(["changesets", changeset.id])}>
          Its changes
        </a>
      ) : null}
    </>
  );
}
