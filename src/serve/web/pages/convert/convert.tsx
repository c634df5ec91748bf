import { useState } from "preact/hooks";
import { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, durationText } from "../../../../text/amounts.ts";
import { hrefTo, type PageProps, useApp, useMay, useNow, useResource } from "../../app/resource.ts";
import { Button, Confirm, SaveButton, SelectField } from "../../components/dialog.tsx";
import { EmptyState, ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { Table } from "../../components/table.tsx";
import { Ago, Badge, FleetBadge, type Tone, Visible } from "../../components/visible.tsx";

type Conversion = AnswerOf<"conversions.show">;
type ConvertedFile = Conversion["files"][number];

const EVERY_MS = 1500;
const MAX_LINKS = 20;

const TARGETS: Readonly<Record<Conversion["to"], string>> = {
  text: "text: what can be read in it",
  pdf: "pdf: what was active in it may still be",
  "safe-pdf": "safe-pdf: nothing but the pixels of its pages",
  png: "png: a picture of each page",
  parts: "parts: what is inside of it or attached to it",
  facts: "facts: what it is and has, as JSON",
};
const OCR = [
  ["", "no language"],
  ["eng", "English"],
] as const;

/** Files of strangers become texts, PDF, pictures, parts or facts. */
export function ConvertPage({ parts: [id] }: PageProps) {
  if (id !== undefined) return <ConversionView key={id} id={id} />;
  return (
    <>
      <h1>Convert</h1>
      <NewConversion />
      <Conversions />
    </>
  );
}

function NewConversion() {
  const { client } = useApp();
  const may = useMay("run");
  const [files, setFiles] = useState<readonly File[]>([]);
  const [to, setTo] = useState<Conversion["to"]>("text");
  const [ocr, setOcr] = useState("");
  const [password, setPassword] = useState("");
  const [isOver, setOver] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  if (!may) return <p class="quiet">This token may read what was converted, and convert nothing.</p>;
  const start = async (): Promise<void> => {
    const more = { ...(ocr === "" ? {} : { ocr }), ...(password === "" ? {} : { passwords: [password] }) };
    try {
      const sent = files.map((content) => ({ name: content.name, content }));
      const { conversion } = await client.call("conversions.start", { to, ...more }, { files: sent });
      location.hash = hrefTo(["convert", conversion]);
    } catch (fault) {
      if (!(fault instanceof ApiError)) throw fault;
      setError(fault);
    }
  };
  return (
    <section class="new-conversion" aria-label="New conversion">
      {/* biome-ignore lint/a11y/noStaticElementInteractions: what is dropped can be chosen with the field inside too. */}
      <div
        class={`drop${isOver ? " drop-over" : ""}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          setFiles([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <label>
          <span>Drop files here, or choose them</span>
          <input type="file" multiple onChange={({ currentTarget }) => setFiles([...(currentTarget.files ?? [])])} />
        </label>
        {files.length === 0 ? null : (
          <ul class="chosen">
            {files.slice(0, MAX_LINKS).map(({ name }) => (
              <li key={name}>
                <Visible text={name} max={200} />
              </li>
            ))}
            <MoreItems count={files.length - MAX_LINKS} what="file" />
          </ul>
        )}
      </div>
      <div class="filters">
        <SelectField
          name="Make"
          value={to}
          options={Object.entries(TARGETS) as [Conversion["to"], string][]}
          choose={setTo}
        />
        <SelectField name="Read pictures in" value={ocr} options={OCR} choose={setOcr} />
        <label>
          Password
          <input
            type="password"
            autoComplete="off"
            size={14}
            value={password}
            onInput={({ currentTarget }) => setPassword(currentTarget.value)}
          />
        </label>
      </div>
      {error === null ? null : <ErrorNote error={error} />}
      <div class="actions">
        <Button kind="primary" disabled={files.length === 0} act={start}>
          Convert
        </Button>
        <span class="quiet">
          Each file has a container of its own, without a network. Nothing is kept for longer than a day.
        </span>
      </div>
    </section>
  );
}

function Conversions() {
  const now = useNow();
  const { data, error, reload } = useResource("conversions.list", {}, { everyMs: EVERY_MS });
  if (data === null)
    return error === null ? <Loading what="conversions" /> : <ErrorNote error={error} retry={reload} />;
  if (data.conversions.length === 0) return <EmptyState title="Nothing was converted yet." />;
  return (
    <Table
      label="Conversions"
      rows={data.conversions}
      keyOf={({ id }) => id}
      linkOf={({ id }) => hrefTo(["convert", id])}
      columns={[
        { title: "Files", cell: ({ counts, to }) => `${counted(counts.total, "file")} to ${to}` },
        { title: "State", cell: (one) => <FleetBadge state={one.state} failed={unconverted(one)} /> },
        { title: "Done", kind: "number", cell: ({ counts }) => named(counts.done, "done") },
        { title: "Not possible", kind: "number", cell: ({ counts }) => named(counts.notPossible, "not possible") },
        { title: "Refused", kind: "number", isExtra: true, cell: ({ counts }) => named(counts.refused, "refused") },
        { title: "Began", kind: "number", cell: ({ startedAt }) => <Ago at={startedAt} now={now} /> },
      ]}
    />
  );
}

/** A narrow window has no heads of columns. */
function named(count: number, word: string): string {
  return count === 0 ? "" : `${countText(count)} ${word}`;
}

function ConversionView({ id }: { readonly id: string }) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const [isEnded, setEnded] = useState(false);
  const [isAsked, setAsked] = useState(false);
  const { data, error, reload } = useResource(
    "conversions.show",
    { conversion: id },
    isEnded ? {} : { everyMs: EVERY_MS },
  );
  if (data === null) {
    if (error === null) return <Loading what="the conversion" />;
    if (error.code !== "UNKNOWN_CONVERSION") return <ErrorNote error={error} retry={reload} />;
    return (
      <EmptyState title="This conversion is not there any more.">
        <a href={hrefTo(["convert"])}>Convert other files</a>
      </EmptyState>
    );
  }
  const { to, state, counts, files, why } = data;
  if (state !== "running" && !isEnded) setEnded(true);
  const remove = async (): Promise<void> => {
    setAsked(false);
    try {
      await client.call("conversions.remove", { conversion: id });
      location.hash = hrefTo(["convert"]);
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["convert"])}>Convert</a> / <code>{id}</code>
      </nav>
      <div class="page-head">
        <h1>
          {counted(counts.total, "file")} to {to}
        </h1>
        <FleetBadge state={state} failed={unconverted(data)} />
      </div>
      <p class="quiet" role="status">
        {countText(counts.done)} done, {countText(counts.notPossible)} not possible, {countText(counts.refused)} refused
        {why === null ? null : (
          <>
            : <Visible text={why} max={500} />
          </>
        )}
      </p>
      <div class="actions">
        <SaveButton load={() => client.download("conversions.files", { conversion: id })} name={`${id}.tar`}>
          Save all
        </SaveButton>
        {may ? (
          <Button kind="danger" act={async () => setAsked(true)}>
            {state === "running" ? "Stop and remove" : "Remove"}
          </Button>
        ) : null}
      </div>
      <Table
        label="Files"
        rows={files}
        keyOf={({ folder }) => folder}
        columns={[
          { title: "File", kind: "text", cell: ({ file }) => <Visible text={file} max={200} /> },
          { title: "Verdict", cell: (file) => <Verdict file={file} /> },
          { title: "Type", isExtra: true, cell: ({ type }) => <Visible text={type ?? ""} max={60} /> },
          { title: "Result", kind: "text", cell: (file) => <Result conversion={id} file={file} /> },
          {
            title: "Took",
            kind: "number",
            isExtra: true,
            cell: ({ verdict, durationMs }) => (verdict === null ? "" : durationText(durationMs)),
          },
        ]}
      />
      {isAsked ? (
        <Confirm title="Remove this conversion?" deed="Remove" act={() => void remove()} close={() => setAsked(false)}>
          <p>Its files and results are removed from the service.</p>
        </Confirm>
      ) : null}
    </>
  );
}

const TONES: Readonly<Record<NonNullable<ConvertedFile["verdict"]>, Tone>> = {
  done: "good",
  "not possible": "warn",
  refused: "bad",
};

function Verdict({ file: { verdict, reason } }: { readonly file: ConvertedFile }) {
  if (verdict === null) return <Badge tone="busy">waiting</Badge>;
  return <Badge tone={TONES[verdict]}>{reason === null ? verdict : `${verdict}: ${reason}`}</Badge>;
}

function unconverted({ counts }: Pick<Conversion, "counts">): number {
  return counts.notPossible + counts.refused;
}

/** What the packaged workers advise is an option of the command line; the form of this page has a field in its place. */
function onPage(words: string): string {
  return words
    .replace("--password-file FILE", "convert it again, with the field “Password”")
    .replace("--ocr LANGUAGE, such as eng, reads it", "convert it again, and choose a language in “Read pictures in”");
}

function Result({ conversion, file }: { readonly conversion: string; readonly file: ConvertedFile }) {
  const { client } = useApp();
  const { folder, files, words, notes } = file;
  return (
    <ul class="result-files">
      {words === null ? null : (
        <li>
          <Visible text={onPage(words)} max={300} />
        </li>
      )}
      {files.slice(0, MAX_LINKS).map((name) => (
        <li key={name}>
          <SaveButton
            load={() => client.download("conversions.file", { conversion, path: `${folder}/${name}` })}
            name={name.split("/").at(-1) ?? name}
          >
            <Visible text={name} max={120} />
          </SaveButton>
        </li>
      ))}
      <MoreItems count={files.length - MAX_LINKS} what="file" />
      {notes.map((note) => (
        <li key={note} class="quiet">
          <Visible text={note} max={300} />
        </li>
      ))}
    </ul>
  );
}
