import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { countText, roughBytesText } from "../../../../text/amounts.ts";
import { useApp, useMay } from "../../app/resource.ts";
import { Button, SaveButton } from "../../components/dialog.tsx";
import { CutNote } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Name, Visible } from "../../components/visible.tsx";

type Session = AnswerOf<"sessions.show">;

interface Entry {
  readonly path: string;
  readonly type: string;
  readonly size: number | null;
}

const MAX_ENTRIES = 500;

/** The files of a session: what the file tools of its worker show. Each is saved, and none is ever shown here. */
export function SessionFiles({
  session,
  path,
  place,
}: {
  readonly session: Session;
  readonly path: string;
  /** The address of this page with a directory. */
  readonly place: (path: string) => string;
}) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const [listing, setListing] = useState<{ readonly entries: readonly Entry[]; readonly why: string } | null>(null);
  const [turn, again] = useState(0);
  const canList = may && session.tools.includes("list_files");
  useEffect(() => {
    if (!canList) return;
    const over = new AbortController();
    const look = async (): Promise<void> => {
      const given = { session: session.id, tool: "list_files", input: { path, limit: MAX_ENTRIES } };
      const answer = await client.call("sessions.use", given, { signal: over.signal });
      const entries = answer.ok ? ((answer.data.entries ?? []) as readonly Entry[]) : [];
      setListing({ entries, why: answer.ok ? String(answer.data.hint ?? "") : answer.message });
    };
    look().catch((fault: unknown) => {
      if (!over.signal.aborted)
        setListing({ entries: [], why: fault instanceof ApiError ? fault.message : String(fault) });
    });
    return () => over.abort();
  }, [client, session.id, canList, path, turn]);
  if (!canList) return null;
  const send = async (files: readonly File[]): Promise<void> => {
    for (const file of files) {
      const target = `${path.replace(/\/$/, "")}/${file.name}`;
      try {
        await client.upload("sessions.upload", { session: session.id, path: target }, file);
        notify(`${target} is there`);
      } catch (fault) {
        notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
      }
    }
    again(turn + 1);
  };
  const above = path.replace(/\/[^/]*\/?$/, "") || "/";
  return (
    <section class="part" aria-labelledby="session-files-title">
      <div class="part-head">
        <h2 id="session-files-title">Files</h2>
        <span class="actions">
          <Button kind="quiet" act={() => again(turn + 1)}>
            Look again
          </Button>
          {path === "/" ? null : (
            <label class="button">
              <span>Send files here</span>
              <input
                class="unseen"
                type="file"
                multiple
                onChange={({ currentTarget }) => {
                  void send([...(currentTarget.files ?? [])]);
                  currentTarget.value = "";
                }}
              />
            </label>
          )}
        </span>
      </div>
      <p class="session-place">
        <code>
          <Visible text={path} max={400} />
        </code>
        {path === "/" ? null : (
          <>
            {" "}
            <a href={place(above)}>up</a>
          </>
        )}
      </p>
      {listing === null || listing.why === "" ? null : (
        <p class="quiet" role="status">
          <Visible text={listing.why} max={1000} />
        </p>
      )}
      {listing === null || listing.entries.length === 0 ? (
        <p class="quiet">{listing === null ? "" : "There are no files here."}</p>
      ) : (
        <Table
          label="Files"
          rows={listing.entries}
          keyOf={(one) => one.path}
          columns={[
            { title: "Name", kind: "text", cell: (one) => <EntryName entry={one} place={place} /> },
            {
              title: "Size",
              kind: "number",
              cell: ({ size, type }) => (type !== "file" || size === null ? "" : roughBytesText(size)),
            },
            {
              title: "Save",
              kind: "number",
              cell: (one) =>
                one.type === "file" || one.type === "directory" ? <Save session={session} entry={one} /> : "",
            },
          ]}
        />
      )}
      <CutNote isCut={listing !== null && listing.entries.length >= MAX_ENTRIES}>
        {`Only the first ${countText(MAX_ENTRIES)} are shown.`}
      </CutNote>
    </section>
  );
}

function EntryName({
  entry: { path, type },
  place,
}: {
  readonly entry: Entry;
  readonly place: (to: string) => string;
}) {
  const name = nameOf(path);
  if (type === "directory")
    return (
      <a href={place(path)}>
        <Name text={name} />/
      </a>
    );
  return (
    <>
      <Name text={name} />
      {type === "file" ? null : <span class="quiet"> {type}</span>}
    </>
  );
}

function Save({ session, entry: { path, type } }: { readonly session: Session; readonly entry: Entry }) {
  const { client } = useApp();
  const name = type === "directory" ? `${nameOf(path)}.tar` : nameOf(path);
  return (
    <SaveButton
      load={() => client.download("sessions.download", { session: session.id, path })}
      name={name}
      label={`Save ${name}`}
    >
      Save
    </SaveButton>
  );
}

function nameOf(path: string): string {
  return path.split("/").at(-1) ?? path;
}
