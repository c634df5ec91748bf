import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { ApiError } from "../../api/client.ts";
import { followEvents } from "../../api/event-stream.ts";
import { useApp } from "../../app/context.ts";
import { Visible } from "../../components/visible.tsx";
import { plural, words } from "../../text/amounts.ts";

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
export function Events({ id }: { readonly id: string }) {
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
    const see = (events: readonly { readonly id: string; readonly type: string; readonly data: string }[]): void => {
      for (const event of events) if (event.type !== "output") kept.current.push(shownEvent(event));
      const many = kept.current.length - MAX_EVENTS;
      if (many > 0) {
        kept.current.splice(0, many);
        dropped.current += many;
      }
      draw(0);
    };
    const onConnected = (isConnected: boolean): void =>
      setNote(isConnected ? "" : "The connection broke; it continues soon.");
    followEvents(client, `/v1/runs/${id}/events`, { signal: over.signal, see, onConnected })
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
      {dropped.current > 0 ? <p class="quiet">{plural(dropped.current, "earlier event")} not shown</p> : null}
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

function shownEvent({ id, type, data }: { readonly id: string; readonly type: string; readonly data: string }): Shown {
  let fields: Readonly<Record<string, unknown>> = {};
  try {
    fields = JSON.parse(data) as Readonly<Record<string, unknown>>;
  } catch {
    // A line that is no JSON has no fields.
  }
  const about = Object.entries(fields)
    .filter(([name, value]) => !NOT_SHOWN.has(name) && value !== null && value !== undefined)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("  ");
  return { id, type, at: String(fields.at ?? ""), worker: String(fields.worker ?? ""), about };
}
