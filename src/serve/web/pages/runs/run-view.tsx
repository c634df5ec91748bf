import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { ApiError, isTemporary } from "../../../../client/client.ts";
import type { AnswerOf, EventOf } from "../../../../operations/contract/table.ts";
import { counted, countText, durationText, roughBytesText, words } from "../../../../text/amounts.ts";
import { hrefTo, useApp, useMay, useNow, useResource, useShortcuts, useStream } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { ErrorNote, Loading, MoreItems } from "../../components/notes.tsx";
import { VirtualList } from "../../components/table.tsx";
import { Ago, CodeBlock, StatusBadge, TerminalLine, Visible } from "../../components/visible.tsx";
import { KeptLines } from "../../text/ansi.ts";
import { CallTreeView } from "./call-tree.tsx";

type Run = AnswerOf<"runs.show">;
type RunResult = AnswerOf<"runs.result">;

/** The output has a place of its own. */
const MAX_EVENTS = 500;
const MAX_FIELD_CHARS = 400;

interface Shown {
  readonly id: string;
  readonly at: string;
  readonly type: string;
  readonly worker: string;
  readonly about: string;
}

/** The events of a run that the service has started, while it runs. Opened on demand: it may be long. */
function Events({ id }: { readonly id: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="part events" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Events</summary>
      {isOpen ? <EventList id={id} /> : null}
    </details>
  );
}

function EventList({ id }: { readonly id: string }) {
  const { client } = useApp();
  const kept = useRef<Shown[]>([]);
  const [note, setNote] = useState("Connecting…");
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const dropped = useRef(0);
  useEffect(() => {
    const over = new AbortController();
    kept.current = [];
    const follow = async (): Promise<void> => {
      const onConnected = (isConnected: boolean): void =>
        setNote(isConnected ? "" : "The connection broke; it continues soon.");
      const how = { signal: over.signal, retries: Number.POSITIVE_INFINITY, onConnected };
      for await (const { id: at, event } of client.follow("runs.events", { run: id }, how)) {
        if (event.type === "output") continue;
        kept.current.push(shownEvent(at, event));
        if (kept.current.length > MAX_EVENTS) {
          kept.current.shift();
          dropped.current += 1;
        }
        draw(0);
      }
    };
    follow()
      .then(() => setNote(""))
      .catch((error: unknown) => {
        if (!over.signal.aborted && error instanceof ApiError) setNote(error.message);
      });
    return () => over.abort();
  }, [client, id]);
  return (
    <>
      {note === "" ? null : (
        <p class="quiet" role="status">
          <Visible text={note} />
        </p>
      )}
      {dropped.current > 0 ? <p class="quiet">{counted(dropped.current, "earlier event")} not shown</p> : null}
      <ol class="event-list">
        {kept.current.map(({ id: key, at, type, worker, about }) => (
          <li key={key}>
            <time dateTime={at} class="quiet">
              {at.slice(11, 23)}
            </time>
            <span class="event-type">{words(type)}</span>
            <span>
              <Visible text={worker} max={60} />
            </span>
            <span class="quiet">
              <Visible text={about} max={MAX_FIELD_CHARS} />
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}

const NOT_SHOWN = new Set(["type", "at", "run", "parent", "worker"]);

function shownEvent(id: string, event: EventOf<"runs.events">): Shown {
  const { type, ...fields }: { readonly type: string; readonly [name: string]: unknown } = event;
  const about = Object.entries(fields)
    .filter(([name, value]) => !NOT_SHOWN.has(name) && value !== null && value !== undefined)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("  ");
  return { id, type, at: String(fields.at ?? ""), worker: String(fields.worker ?? ""), about };
}

const RUNNING_MS = 1500;
const MAX_CHANGES = 200;
const MAX_JSON_CHARS = 100_000;

export function RunView({ id }: { readonly id: string }) {
  const [isOver, setOver] = useState(false);
  const { data: run, error, reload } = useResource("runs.show", { run: id }, isOver ? {} : { everyMs: RUNNING_MS });
  if (run === null) return error === null ? <Loading what="the run" /> : <ErrorNote error={error} retry={reload} />;
  if (isOver !== (run.status !== "running")) setOver(run.status !== "running");
  return (
    <>
      <Head run={run} reload={reload} />
      {run.error === null ? null : (
        <div class="error-note">
          <Visible text={run.error.message} max={8000} /> <code>{run.error.code}</code>
        </div>
      )}
      <section class="part" aria-labelledby="calls-title">
        <div class="part-head">
          <h2 id="calls-title">{run.calls.length === 0 ? "What it sees" : "Calls, and what each sees"}</h2>
        </div>
        <CallTreeView run={run} />
      </section>
      <RunOutput run={run} />
      {isOver ? <Result run={run} /> : null}
      {run.hasEvents ? <Events id={run.id} /> : null}
    </>
  );
}

function Head({ run, reload }: { readonly run: Run; readonly reload: () => void }) {
  const { client, notify } = useApp();
  const may = useMay("run");
  const now = useNow();
  const [isAsked, setAsked] = useState(false);
  const isRunning = run.status === "running";
  const stop = async (): Promise<void> => {
    setAsked(false);
    await client
      .call("runs.stop", { run: run.id })
      .then(({ status }) => notify(`The run is ${words(status)}.`))
      .catch((fault: ApiError) => notify(fault.message, "bad"));
    reload();
  };
  useShortcuts("This run", [
    ...(isRunning && may ? [{ keys: "s", does: "Stop it", act: () => setAsked(true) }] : []),
    ...(run.changeset?.id
      ? [
          {
            keys: "c",
            does: "Go to its changes",
            act: () => {
              location.hash = hrefTo(["changesets", run.changeset?.id ?? ""]);
            },
          },
        ]
      : []),
  ]);
  const took = run.durationMs ?? (isRunning ? now - Date.parse(run.queuedAt) : null);
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["runs"])}>Runs</a> / <code>{run.id}</code>
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={run.worker} max={80} /> <StatusBadge status={run.status} />
        </h1>
        <div class="actions">
          {run.changeset?.id ? (
            <a class="button" href={hrefTo(["changesets", run.changeset.id])}>
              Its changes
            </a>
          ) : null}
          {isRunning && may ? (
            <Button kind="danger" act={() => setAsked(true)} shortcut="s">
              Stop
            </Button>
          ) : null}
        </div>
      </div>
      <dl class="facts">
        <Fact name="Project" text={run.project} />
        <Fact name="Image" text={run.image ?? run.model} />
        <Fact name="Policy" text={run.policy} />
        <Fact name="Exit" text={run.exitCode === null ? run.signal : String(run.exitCode)} />
        <Fact name={isRunning ? "Runs for" : "Took"} text={took === null ? null : durationText(Math.max(0, took))} />
        <Fact name="CPU" text={run.usage?.cpuMs == null ? null : durationText(run.usage.cpuMs)} />
        <Fact
          name="Memory"
          text={run.usage?.memoryBytesPeak == null ? null : roughBytesText(run.usage.memoryBytesPeak)}
        />
        <Fact name="Input" text={run.input === null ? null : roughBytesText(run.input.bytes)} />
        <Fact name="Arguments" text={run.arguments.length === 0 ? null : run.arguments.join(" ")} />
        <div>
          <dt>Began</dt>
          <dd>
            <Ago at={run.queuedAt} now={now} />
          </dd>
        </div>
      </dl>
      {isAsked ? (
        <Confirm title="Stop this run?" deed="Stop it" act={() => void stop()} close={() => setAsked(false)}>
          <p>It ends as cancelled. What it wrote in staged directories waits as a changeset.</p>
        </Confirm>
      ) : null}
    </>
  );
}

function Fact({ name, text }: { readonly name: string; readonly text: string | null }) {
  if (text === null || text === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <Visible text={text} max={300} />
      </dd>
    </div>
  );
}

/** What it answered and changed. The service has that of the runs that it has started. */
function Result({ run }: { readonly run: Run }) {
  const { data } = useResource("runs.result", run.hasEvents ? { run: run.id } : null);
  const output = data?.output;
  const isValue = output !== null && output !== undefined && typeof output !== "string";
  const json = useMemo(() => (isValue ? JSON.stringify(output, null, 2) : ""), [output]);
  return (
    <>
      {isValue ? (
        <section class="part" aria-labelledby="result-title">
          <div class="part-head">
            <h2 id="result-title">Result</h2>
          </div>
          <CodeBlock text={json.slice(0, MAX_JSON_CHARS)} />
          {json.length > MAX_JSON_CHARS ? (
            <p class="quiet">and {counted(json.length - MAX_JSON_CHARS, "more character")}, neither shown nor copied</p>
          ) : null}
        </section>
      ) : null}
      <Files run={run} changes={data?.changes ?? []} />
    </>
  );
}

function Files({ run, changes }: { readonly run: Run; readonly changes: RunResult["changes"] }) {
  if (run.attachments.length === 0 && changes.length === 0) return null;
  return (
    <section class="part" aria-labelledby="files-title">
      <div class="part-head">
        <h2 id="files-title">Files</h2>
      </div>
      <ul class="files">
        {run.attachments.slice(0, MAX_CHANGES).map(({ name, bytes, sha256 }) => (
          <li key={`in ${name}`}>
            <span class="quiet">in</span>
            <code>
              <Visible text={`/attachments/${name}`} max={300} />
            </code>
            <span class="quiet" title={sha256 === null ? undefined : `SHA-256 ${sha256}`}>
              {bytes === null ? "" : roughBytesText(bytes)}
            </span>
          </li>
        ))}
        <MoreItems count={run.attachments.length - MAX_CHANGES} what="attachment" />
        {changes.slice(0, MAX_CHANGES).map(({ path, outcome, reason }) => (
          <li key={`out ${path}`}>
            <StatusBadge status={outcome} />
            <code>
              <Visible text={path} max={300} />
            </code>
            <span class="quiet">{reason ? <Visible text={reason} max={300} /> : null}</span>
          </li>
        ))}
        <MoreItems count={changes.length - MAX_CHANGES} what="change" />
      </ul>
    </section>
  );
}

type Stream = "stdout" | "stderr";

/** Of a long output the end. */
const LAST_LINES = 20_000;
const ROW_PX = 19;
const MAX_ROWS = 24;
const AGAIN_MS = 2000;

/** What a run prints, while it does. */
function RunOutput({ run }: { readonly run: Run }) {
  const [stream, setStream] = useState<Stream>("stdout");
  const isRunning = run.status === "running";
  const { lines, error } = useOutput(run.id, stream, isRunning);
  const { bytes, keptBytes } = run[stream];
  return (
    <section class="part" aria-labelledby="output-title">
      <div class="part-head">
        <h2 id="output-title">Output</h2>
        <fieldset class="switch">
          <legend class="unseen">Stream</legend>
          {(["stdout", "stderr"] as const).map((name) => (
            <button key={name} type="button" aria-pressed={name === stream} onClick={() => setStream(name)}>
              {name}
              <span class="quiet"> {roughBytesText(run[name].bytes)}</span>
            </button>
          ))}
        </fieldset>
      </div>
      {error === null ? null : (
        <p class="quiet">
          <Visible text={error.message} />
        </p>
      )}
      {lines.count === 0 ? (
        <p class="quiet terminal-empty">{isRunning ? "It has printed nothing yet." : "It printed nothing."}</p>
      ) : (
        <div class="terminal" style={{ height: `min(60vh, ${Math.min(MAX_ROWS, lines.count) * ROW_PX + 14}px)` }}>
          <VirtualList
            count={lines.count}
            rowPx={ROW_PX}
            row={(index) => <TerminalLine line={lines.at(index)} />}
            label={`What it prints (${stream})`}
            role="log"
            stick
          />
        </div>
      )}
      <p class="quiet">
        {lines.dropped > 0 || keptBytes < bytes ? "Only the end is shown. " : ""}
        {counted(lines.count, "line")}
        {lines.dropped > 0 ? `, ${countText(lines.dropped)} before them` : ""}
        {isRunning ? <span aria-live="polite">, still running</span> : null}
      </p>
    </section>
  );
}

/** The lines of a stream as they come. They are kept outside of the state, and drawn at most ten times in a second. */
function useOutput(
  run: string,
  stream: Stream,
  isRunning: boolean,
): { readonly lines: KeptLines; readonly error: ApiError | null } {
  const { client } = useApp();
  const kept = useRef(new KeptLines());
  const { error, setError, draw } = useStream(
    async ({ signal, changed }) => {
      const follow = async (): Promise<void> => {
        const ask = { run, stream, lines: LAST_LINES, follow: isRunning };
        const pieces = await client.download("runs.output", ask, { signal });
        // After a connection that broke, all is read anew.
        kept.current = new KeptLines();
        setError(null);
        for await (const piece of pieces) {
          kept.current.push(piece);
          changed();
        }
        changed();
      };
      kept.current = new KeptLines();
      draw();
      while (!signal.aborted) {
        try {
          return await follow();
        } catch (fault) {
          if (signal.aborted || (fault instanceof ApiError && !isTemporary(fault))) throw fault;
          if (fault instanceof ApiError) setError(fault);
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        }
      }
    },
    [client, run, stream, isRunning],
  );
  return { lines: kept.current, error };
}
