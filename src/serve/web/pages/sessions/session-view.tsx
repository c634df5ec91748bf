import { useState } from "preact/hooks";
import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted } from "../../../../text/amounts.ts";
import { hrefTo, useApp, useMay, useNow, useResource, useShortcuts } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { CutNote, EmptyState, ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, Badge, StatusBadge, Visible } from "../../components/visible.tsx";
import { SessionCommands } from "./session-commands.tsx";
import { SessionFiles } from "./session-files.tsx";

type Session = AnswerOf<"sessions.show">;
type Settled = AnswerOf<"sessions.close">;
type Port = AnswerOf<"ports.list">["ports"][number];
type Snapshot = AnswerOf<"snapshots.list">["snapshots"][number];

const EVERY_MS = 2000;
const PORTS_EVERY_MS = 4000;
const MAX_CHANGES = 200;
const MAX_PORTS = 100;
const OF_THIS_MACHINE = ["127.0.0.1", "localhost", "[::1]"];
const MAX_SNAPSHOTS = 100;

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
  const { id, name, worker, project, isPaused, openedAt } = session;
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
          <Visible text={name === null || name === worker ? worker : `${name} (${worker})`} max={145} />{" "}
          <StatusBadge status={isPaused ? "paused" : "running"} />
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

/** What can be connected to in a session, and what else listens. */
function ShownPorts({ session }: { readonly session: Session }) {
  const ask = session.isPaused ? null : { session: session.id };
  const { data, error, reload } = useResource("ports.list", ask, { everyMs: PORTS_EVERY_MS });
  const ports = data?.ports.slice(0, MAX_PORTS) ?? [];
  if (error === null && ports.length === 0) return null;
  const isHere = OF_THIS_MACHINE.includes(location.hostname);
  return (
    <section class="part" aria-labelledby="session-ports-title">
      <div class="part-head">
        <h2 id="session-ports-title">Ports</h2>
      </div>
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {isHere ? null : (
        <p class="quiet">
          Links open on the machine of the service. On this one, use <code>corral session forward</code>.
        </p>
      )}
      {ports.length === 0 ? null : (
        <Table
          label="Ports"
          rows={ports}
          keyOf={({ port }) => String(port)}
          columns={[
            { title: "Port", kind: "number", cell: ({ port }) => port },
            { title: "Name", kind: "text", cell: ({ name }) => <Visible text={name ?? ""} max={80} /> },
            {
              title: "State",
              cell: ({ isListening }) =>
                isListening ? <Badge tone="good">listens</Badge> : <Badge>nothing listens</Badge>,
            },
            {
              title: "Open",
              kind: "number",
              cell: (port) => <OpenPort session={session.id} of={port} isHere={isHere} />,
            },
          ]}
        />
      )}
    </section>
  );
}

/** A link works once, so it is asked for when it is followed. The tab that it opens has another origin, and no way back to this page. */
function OpenPort({
  session,
  of: { port, isAllowed, isListening },
  isHere,
}: {
  readonly session: string;
  readonly of: Port;
  readonly isHere: boolean;
}) {
  const { client, notify } = useApp();
  const may = useMay("run");
  if (!isAllowed) return <span class="quiet">not declared</span>;
  if (!may || !isHere || !isListening) return null;
  const open = async (): Promise<void> => {
    try {
      const { url } = await client.call("ports.show", { session, port });
      window.open(url, "_blank", "noopener,noreferrer");
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return <Button act={open}>Open in a new tab</Button>;
}

/** The snapshots of a session's worker: to take one, to go back to one, and to begin another session from one. */
function ShownSnapshots({ session }: { readonly session: Session }) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const now = useNow();
  const [name, setName] = useState("");
  const [restoring, setRestoring] = useState<Snapshot | null>(null);
  const { data, error, reload } = useResource("snapshots.list", { session: session.id });
  // It takes none.
  if (error !== null || data === null) return null;
  if (!may && data.snapshots.length === 0) return null;
  /** Says why, where it is refused. */
  const done = async (act: () => Promise<string>): Promise<void> => {
    try {
      notify(await act());
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
    reload();
  };
  const take = (): Promise<void> =>
    done(async () => {
      const taken = await client.call("snapshots.take", { session: session.id, name: name.trim() || null });
      setName("");
      return `Snapshot ${taken.name ?? taken.id} is taken.`;
    });
  const restore = ({ id }: Snapshot): Promise<void> =>
    done(async () => {
      await client.call("snapshots.restore", { session: session.id, snapshot: id });
      return "The session shows what the snapshot has.";
    });
  const fork = ({ id: from }: Snapshot): Promise<void> =>
    done(async () => {
      const { project, worker } = session;
      const { id } = await client.call("sessions.open", { project, worker, from });
      location.hash = hrefTo(["sessions", id]);
      return "This session began from the snapshot.";
    });
  const newest = data.snapshots.toReversed().slice(0, MAX_SNAPSHOTS);
  return (
    <section class="part" aria-labelledby="session-snapshots-title">
      <div class="part-head">
        <h2 id="session-snapshots-title">Snapshots</h2>
      </div>
      {may ? (
        <form
          class="command-line"
          onSubmit={(event) => {
            event.preventDefault();
            void take();
          }}
        >
          <label>
            <span class="unseen">Name of a snapshot</span>
            <input
              value={name}
              spellcheck={false}
              autoComplete="off"
              autoCapitalize="off"
              maxLength={64}
              placeholder="a name, if it is to stay when the session has ended"
              disabled={session.isPaused}
              onInput={({ currentTarget }) => setName(currentTarget.value)}
            />
          </label>
          <Button disabled={session.isPaused} act={take}>
            Take a snapshot
          </Button>
        </form>
      ) : null}
      {may ? <p class="quiet">It has what was written in staged directories. What runs in the session ends.</p> : null}
      {newest.length === 0 ? null : (
        <Table
          label="Snapshots"
          rows={newest}
          keyOf={({ id }) => id}
          columns={[
            { title: "Snapshot", kind: "text", cell: ({ name, id }) => <Visible text={name ?? id} max={80} /> },
            {
              title: "Of session",
              isExtra: true,
              cell: ({ session: of }) => (of === session.id ? "this" : <code>{of}</code>),
            },
            { title: "Taken", kind: "number", cell: ({ createdAt }) => <Ago at={createdAt} now={now} /> },
            {
              title: "Restore",
              cell: (one) =>
                may ? (
                  <Button disabled={session.isPaused} act={() => setRestoring(one)}>
                    Restore
                  </Button>
                ) : (
                  ""
                ),
            },
            { title: "Fork", cell: (one) => (may ? <Button act={() => fork(one)}>Fork</Button> : "") },
          ]}
        />
      )}
      <CutNote isCut={data.snapshots.length > MAX_SNAPSHOTS}>{`Only the newest ${MAX_SNAPSHOTS} are shown.`}</CutNote>
      {restoring === null ? null : (
        <Confirm
          title="Go back to this snapshot?"
          deed="Restore it"
          close={() => setRestoring(null)}
          act={() => {
            setRestoring(null);
            void restore(restoring);
          }}
        >
          <p>What was written since, and is in no snapshot, is lost. What runs in the session ends.</p>
        </Confirm>
      )}
    </section>
  );
}
