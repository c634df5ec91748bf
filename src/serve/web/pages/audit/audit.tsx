import { useEffect, useState } from "preact/hooks";
import type { AnswerOf, AskOf } from "../../../../operations/contract/table.ts";
import { counted, words } from "../../../../text/amounts.ts";
import { clipped } from "../../../../text/visible.ts";
import { hrefTo, type PageProps, useApp, useNow, useResource } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Ago, Badge, CodeBlock, type Tone, Visible } from "../../components/visible.tsx";

type AuditRecord = AnswerOf<"audit.page">["records"][number];

/** The fields depend on its type. */
type Fields = AuditRecord & { readonly [field: string]: unknown };

/** As `corral audit --type` has them. */
const TYPES = [
  "run_requested",
  "run_started",
  "agent_started",
  "tool_used",
  "run_ended",
  "refused",
  "approval",
  "grant",
  "grant_revoked",
  "changes_applying",
  "changes_applied",
  "changes_discarded",
  "egress",
  "pushed",
  "repaired",
];

const SINCE: Readonly<Record<string, number>> = {
  last_hour: 3_600_000,
  last_day: 86_400_000,
  last_week: 7 * 86_400_000,
};

const OWN = new Set(["seq", "at", "type", "run", "root", "worker", "prev", "hash", "plan"]);
const MAX_CHARS = 240;

/** The fields of a record in one line, those first that say most. */
function summaryOf(record: Fields): string {
  const { status, tool, on, codes, outcome, paths, to, directory, messages } = record;
  const first = [tool, status, outcome, codes, messages, on, paths, directory, to].flatMap(textsIn);
  if (first.length > 0) return clipped(first.join(" · "), MAX_CHARS);
  const rest = Object.entries(record).filter(([field]) => !OWN.has(field));
  const texts = rest.flatMap(([field, value]) => textsIn(value).map((text) => `${field} ${text}`));
  return clipped(texts.join(" · "), MAX_CHARS);
}

function textsIn(value: unknown): string[] {
  if (value === undefined || value === null || value === "") return [];
  if (Array.isArray(value)) return value.length === 0 ? [] : [value.flatMap(textsIn).join(", ")];
  if (typeof value === "object") return Object.values(value).flatMap(textsIn);
  return [String(value)];
}

const TONES: Readonly<Record<string, Tone>> = {
  refused: "bad",
  approval: "warn",
  grant: "warn",
  changes_applied: "good",
  repaired: "bad",
  pushed: "warn",
};

/** One record in a line; all of it when it is opened. */
function RecordRow({ record, now }: { readonly record: AuditRecord; readonly now: number }) {
  const [isOpen, setOpen] = useState(false);
  const { type, at, worker, run, ok } = record;
  const tone = type === "tool_used" && ok === false ? "bad" : (TONES[type] ?? "plain");
  return (
    <li class="record">
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          <span class="record-at quiet">
            <Ago at={at} now={now} />
          </span>
          <Badge tone={tone}>{words(type)}</Badge>
          <span class="record-worker">
            <Visible text={worker ?? ""} max={80} />
          </span>
          <span class="record-text">
            <Visible text={summaryOf(record)} max={240} />
          </span>
        </summary>
        {isOpen ? (
          <div class="record-whole">
            {run === undefined ? null : (
              <p>
                <a href={hrefTo(["runs", run])}>
                  Run <code>{run}</code>
                </a>
              </p>
            )}
            <CodeBlock text={JSON.stringify(record, null, 2)} />
          </div>
        ) : null}
      </details>
    </li>
  );
}

const PAGE = 100;
const EVERY_MS = 5000;
/** More stay in the trail: a narrower filter finds them. */
const MAX_SHOWN = 5000;

/** What was recorded, the newest first. Older records are loaded when they are asked for. */
export function Audit({ query }: PageProps) {
  const projects = useResource("projects.list", {});
  const names = projects.data?.projects.map(({ name }) => name) ?? [];
  const project = query.project ?? names[0];
  const [from, setFrom] = useState(() => sinceOf(query.since));
  useEffect(() => setFrom(sinceOf(query.since)), [query.since]);
  const change = (field: string, value: string): void => {
    location.replace(hrefTo(["audit"], { ...query, [field]: value }));
  };
  if (projects.data === null || project === undefined)
    return projects.error === null ? (
      <Loading what="projects" />
    ) : (
      <ErrorNote error={projects.error} retry={projects.reload} />
    );
  const isRun = /^[0-9a-f]{12}$/.test(query.run ?? "");
  const run = isRun ? query.run : undefined;
  const ask = { limit: PAGE, project, type: query.type || undefined, since: from ?? undefined, run };
  return (
    <>
      <div class="page-head">
        <h1>Audit</h1>
        <div class="filters">
          {names.length < 2 ? null : (
            <Choice label="Project" value={project} choices={names} choose={(value) => change("project", value)} />
          )}
          <Choice
            label="Type"
            value={query.type ?? ""}
            choices={["", ...TYPES]}
            choose={(value) => change("type", value)}
          />
          <Choice
            label="Since"
            value={query.since ?? ""}
            choices={["", ...Object.keys(SINCE)]}
            choose={(value) => change("since", value)}
          />
          <input
            type="search"
            data-search
            aria-label="Records of this run, by its id"
            placeholder="Run, 12 digits"
            maxLength={12}
            value={query.run ?? ""}
            onChange={({ currentTarget }) => change("run", currentTarget.value.trim().toLowerCase())}
          />
        </div>
      </div>
      {query.run && !isRun ? <p class="audit-hint">A run has 12 hexadecimal digits; all records are shown.</p> : null}
      <Records key={JSON.stringify(ask)} ask={ask} />
    </>
  );
}

function Choice({
  label,
  value,
  choices,
  choose,
}: {
  readonly label: string;
  readonly value: string;
  readonly choices: readonly string[];
  readonly choose: (value: string) => void;
}) {
  return (
    <select aria-label={label} value={value} onChange={({ currentTarget }) => choose(currentTarget.value)}>
      {choices.map((choice) => (
        <option key={choice} value={choice}>
          {choice === "" ? `${label}: all` : words(choice)}
        </option>
      ))}
    </select>
  );
}

function Records({ ask }: { readonly ask: AskOf<"audit.page"> }) {
  const { client, notify } = useApp();
  const now = useNow();
  const { data, error, reload } = useResource("audit.page", ask, { everyMs: EVERY_MS });
  const [older, setOlder] = useState<readonly AuditRecord[]>([]);
  // Where the older ones continue; undefined: none were asked for yet.
  const [next, setNext] = useState<number | null | undefined>(undefined);
  if (data === null) return error === null ? <Loading what="records" /> : <ErrorNote error={error} retry={reload} />;
  // New records push others out of the first page. If so many came that the pages no longer meet, the older ones are left out.
  const newestOlder = older[0]?.seq ?? Number.POSITIVE_INFINITY;
  const isMet = data.next === null || data.records.some(({ seq }) => seq <= newestOlder);
  const kept = isMet ? older : [];
  const records = [...data.records.filter(({ seq }) => kept.length === 0 || seq > newestOlder), ...kept];
  const cursor = next === undefined || !isMet ? data.next : next;
  const load = async (): Promise<void> => {
    try {
      const page = await client.call("audit.page", { ...ask, cursor: cursor ?? undefined });
      setOlder([...records, ...page.records]);
      setNext(page.next);
    } catch (fault) {
      notify((fault as Error).message, "bad");
    }
  };
  return (
    <>
      {data.foreign === 0 ? null : (
        <p class="audit-hint">
          {counted(data.foreign, "line")} of the trail {data.foreign === 1 ? "is" : "are"} no record that Corral wrote.
          Run <code>corral audit verify</code> on the machine.
        </p>
      )}
      {records.length === 0 ? (
        <EmptyState title="There are no such records.">
          <p class="quiet">Every run, decision, grant and applied change is recorded here when it happens.</p>
        </EmptyState>
      ) : (
        <ol class="records" aria-label="Records, the newest first">
          {records.map((record) => (
            <RecordRow key={record.seq} record={record} now={now} />
          ))}
        </ol>
      )}
      {cursor === null ? null : records.length >= MAX_SHOWN ? (
        <CutNote isCut>
          Older records are not shown here. Choose a time, a type or a run, or use `corral audit`.
        </CutNote>
      ) : (
        <Button act={load}>Show older records</Button>
      )}
    </>
  );
}

/** The time is taken once, so that the same page is asked for again. */
function sinceOf(since: string | undefined): string | null {
  const ms = Object.hasOwn(SINCE, since ?? "") ? SINCE[since ?? ""] : undefined;
  return ms === undefined ? null : new Date(Date.now() - ms).toISOString();
}
