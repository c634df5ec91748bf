import { useState } from "preact/hooks";
import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { useApp, useMay, useNow, useResource } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { CutNote } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";

type Session = AnswerOf<"sessions.show">;
type Snapshot = AnswerOf<"snapshots.list">["snapshots"][number];

const MAX_SHOWN = 100;

/** The snapshots of a session's worker: to take one, to go back to one, and to begin another session from one. */
export function ShownSnapshots({ session }: { readonly session: Session }) {
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
  const newest = data.snapshots.toReversed().slice(0, MAX_SHOWN);
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
      <CutNote isCut={data.snapshots.length > MAX_SHOWN}>{`Only the newest ${MAX_SHOWN} are shown.`}</CutNote>
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
