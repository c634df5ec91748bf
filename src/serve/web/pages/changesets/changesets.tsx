import { useMemo, useRef, useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, roughBytesText, words } from "../../../../text/amounts.ts";
import { visibleName } from "../../../../text/visible.ts";
import { hrefTo, type PageProps, useApp, useMay, useNow, useResource, useShortcuts } from "../../app/resource.ts";
import { Button, Confirm } from "../../components/dialog.tsx";
import { ConfirmUnseen, DiffView, LeftNote, ROOM } from "../../components/diff-view.tsx";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Table, useRowKeys } from "../../components/table.tsx";
import { Ago, Name, StatusBadge, Visible } from "../../components/visible.tsx";
import { cutDiff, type FileDiff, type Left, parseDiff } from "../../text/diff.ts";

type Review = AnswerOf<"changesets.review">;
type ReviewedPart = Review["parts"][number];

const AT_FIRST = 100;
/** Diffs that are open at first. */
const OPEN = 20;
const MOST_UNFIT = 500;

/** A changeset for a decision: what each path would become, and which of them are applied. */
function ChangesetView({ id }: { readonly id: string }) {
  const { data: review, error, reload } = useResource("changesets.review", { changeset: id });
  if (review === null) {
    if (error === null) return <Loading what="the changeset" />;
    if (error.code !== "UNKNOWN_CHANGESET") return <ErrorNote error={error} retry={reload} />;
    return (
      <EmptyState title="This changeset does not wait any more.">
        <p>It was applied or discarded.</p>
        <a href={hrefTo(["changesets"])}>Show all that wait</a>
      </EmptyState>
    );
  }
  return <Decision key={review.digest} review={review} reload={reload} />;
}

function Decision({ review, reload }: { readonly review: Review; readonly reload: () => void }) {
  const { client, notify } = useApp();
  const may = useMay("decide");
  const now = useNow(10_000);
  // What the host would execute is chosen by itself, and never with all.
  const [left, setLeft] = useState<ReadonlySet<string>>(
    () => new Set(review.parts.flatMap(({ path: one, hostExecuted }) => (hostExecuted == null ? [] : [one]))),
  );
  const [isAsked, setAsked] = useState(false);
  const [unseen, setUnseen] = useState(false);
  const [isAll, setAll] = useState(false);
  /** Which differ from how they are at first. */
  const [turned, setTurned] = useState<ReadonlySet<string>>(new Set());
  const list = useRef<HTMLDivElement>(null);
  useRowKeys(list, "Files");
  const { id, parts, unfit, total, notShown, digest, worker, run, project, createdAt } = review;
  const isWhole = left.size === 0;
  const shown = useMemo(() => parts.map((part) => ({ part, files: parseDiff(part.lines) })), [parts]);
  const limit = isAll ? parts.length : AT_FIRST;
  const drawn = shown.map(({ part, files }, index) => {
    const isOpen = (isAll || index < OPEN) !== turned.has(part.path);
    return { part, isOpen, isChosen: !left.has(part.path), ...cutDiff(files, isAll ? Number.POSITIVE_INFINITY : ROOM) };
  });
  const chosen = parts.filter((part) => !left.has(part.path));
  /** What would be applied, and is not on the page. */
  const hidden: Left[] = [
    ...drawn.flatMap(({ part, isOpen, isChosen, left }, index) => {
      const lines =
        index < limit && isOpen ? left.reduce((sum, one) => sum + one.lines, 0) : Math.max(1, part.lines.length);
      return isChosen && lines > 0 ? [{ name: visibleName(part.path, "kept"), lines }] : [];
    }),
    ...(isWhole && notShown > 0
      ? [{ name: `${counted(notShown, "change")} beyond the limit, which have no names here`, lines: 0 }]
      : []),
  ];
  const showAll = (): void => {
    setAll(true);
    setTurned(new Set());
  };
  /** Null: discards it. */
  const act = async (what: { which?: number[]; hostExecuted?: string[] } | null): Promise<void> => {
    try {
      if (what === null) {
        await client.call("changesets.discard", { changeset: id, digest });
        notify("The changeset was discarded.");
        location.hash = hrefTo(["changesets"]);
        return;
      }
      const done = await client.call("changesets.apply", { changeset: id, digest, ...what });
      const isWhole = done.changes.every(({ outcome }) => outcome === "applied");
      notify(
        `${outcomeText(done.changes)}${done.left > 0 ? `; ${done.left} still wait` : ""}.`,
        isWhole ? "good" : "bad",
      );
      if (done.left === 0) location.hash = hrefTo(["changesets"]);
      else reload();
    } catch (fault) {
      const { code, message } = fault as ApiError;
      notify(
        code === "CHANGESET_CHANGED"
          ? "It is not what was shown any more. Nothing was done; look at it again."
          : message,
        "bad",
      );
      reload();
    }
  };
  const apply = (): Promise<void> => {
    const hostExecuted = chosen.flatMap((part) => (part.hostExecuted == null ? [] : [part.path]));
    // By their numbers: what could not be applied when it was shown, and can be meanwhile, was not agreed to.
    const which = isWhole && notShown > 0 ? {} : { which: chosen.flatMap(({ indexes }) => indexes) };
    return act({ ...which, ...(hostExecuted.length === 0 ? {} : { hostExecuted }) });
  };
  const ask = (): Promise<void> | void => (hidden.length === 0 ? apply() : setUnseen(true));
  const turn = (one: string): void => setTurned(withTurned(turned, one));
  const toggle = (one: string): void => {
    setLeft(withTurned(left, one));
  };
  const focused = (): string | undefined =>
    (document.activeElement as HTMLElement | null)?.closest<HTMLElement>("[data-path]")?.dataset.path;
  useShortcuts("This changeset", [
    ...(may && chosen.length > 0
      ? [{ keys: "a", does: isWhole ? "Apply all" : "Apply what is chosen", act: () => void ask() }]
      : []),
    ...(may ? [{ keys: "x", does: "Discard it", act: () => setAsked(true) }] : []),
    ...(may
      ? [
          {
            keys: "e",
            does: "Choose the file, or leave it out",
            act: () => {
              const one = focused();
              if (one !== undefined) toggle(one);
            },
          },
        ]
      : []),
  ]);
  return (
    <>
      <nav class="crumbs" aria-label="Above">
        <a href={hrefTo(["changesets"])}>Changesets</a> / <code>{review.id}</code>
      </nav>
      <div class="page-head">
        <h1>
          <Visible text={worker} max={80} />
        </h1>
        <div class="actions">
          {may ? (
            <>
              <Button kind="primary" shortcut="a" disabled={chosen.length === 0 && notShown === 0} act={ask}>
                {isWhole ? "Apply all" : `Apply ${countText(chosen.length)} of ${countText(parts.length)}`}
              </Button>
              <Button kind="danger" shortcut="x" act={() => setAsked(true)}>
                Discard
              </Button>
            </>
          ) : (
            <p class="quiet">This token may not decide. It needs the role decide.</p>
          )}
        </div>
      </div>
      <p class="quiet">
        <span class="added">+{countText(total.added)}</span> <span class="removed">−{countText(total.removed)}</span> in{" "}
        {counted(total.files, "file")}, {roughBytesText(total.bytes)} · project <Visible text={project} max={80} /> ·
        run{" "}
        <a href={hrefTo(["runs", run])}>
          <code>{run}</code>
        </a>{" "}
        · made <Ago at={createdAt} now={now} />
      </p>
      {may ? <LeftNote left={hidden} showAll={showAll} /> : null}
      {review.commits.length === 0 ? null : (
        <ul class="look-alike" aria-label="Commits of git">
          {review.commits.map((text, index) => (
            <li key={index}>
              <Visible text={text} />
            </li>
          ))}
        </ul>
      )}
      {review.lookAlike.length === 0 ? null : (
        <ul class="look-alike" aria-label="Names that look alike">
          {review.lookAlike.map((text, index) => (
            <li key={index}>
              <Visible text={text} />
            </li>
          ))}
        </ul>
      )}
      <div ref={list} class="changes">
        {drawn.slice(0, limit).map((one) => (
          <Part
            key={one.part.path}
            {...one}
            turn={() => turn(one.part.path)}
            toggle={may ? () => toggle(one.part.path) : null}
            showAll={showAll}
          />
        ))}
      </div>
      {parts.length > limit ? (
        <Button kind="quiet" act={showAll}>
          {counted(parts.length - limit, "more path")} not shown: show all
        </Button>
      ) : null}
      {notShown > 0 ? (
        <p class="quiet">{counted(notShown, "more change")} cannot be shown, and are applied only with all.</p>
      ) : null}
      {unfit.length === 0 ? null : <Unfit review={review} />}
      {unseen ? (
        <ConfirmUnseen
          left={hidden}
          deed={isWhole ? "Apply all" : "Apply them"}
          act={() => {
            setUnseen(false);
            void apply();
          }}
          close={() => setUnseen(false)}
        />
      ) : null}
      {isAsked ? (
        <Confirm
          title="Discard these changes?"
          deed="Discard them"
          act={() => void act(null)}
          close={() => setAsked(false)}
        >
          <p>What the run wrote is removed for good. What was applied before stays.</p>
        </Confirm>
      ) : null}
    </>
  );
}

function withTurned(set: ReadonlySet<string>, one: string): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(one)) next.add(one);
  return next;
}

const KINDS = { create: "new", modify: "changed", delete: "deleted" } as const;

function Part({
  part: { path, kind, type, added, removed, ruled, hostExecuted },
  files,
  left,
  isOpen,
  isChosen,
  turn,
  toggle,
  showAll,
}: {
  readonly part: ReviewedPart;
  readonly files: readonly FileDiff[];
  readonly left: readonly Left[];
  readonly isOpen: boolean;
  readonly isChosen: boolean;
  readonly turn: () => void;
  readonly toggle: (() => void) | null;
  readonly showAll: () => void;
}) {
  return (
    <div class={isChosen ? "change" : "change change-left"} data-path={path}>
      <div class="change-head">
        {toggle === null ? null : (
          <input type="checkbox" checked={isChosen} onChange={toggle} aria-label={`Apply ${visibleName(path)}`} />
        )}
        <button type="button" data-row class="change-name" aria-expanded={isOpen} onClick={turn}>
          <span class="change-arrow" aria-hidden="true">
            {isOpen ? "▾" : "▸"}
          </span>
          <code>
            <Name text={path} />
          </code>
        </button>
        <span class={`kind-${kind}`}>{`${KINDS[kind]}${type === "file" ? "" : ` ${type}`}`}</span>
        {added === 0 && removed === 0 ? null : (
          <span class="amounts">
            <span class="added">+{countText(added)}</span> <span class="removed">−{countText(removed)}</span>
          </span>
        )}
      </div>
      {hostExecuted == null ? null : (
        <p class="change-note executed">
          <Visible text={hostExecuted} max={500} />
          {isChosen ? "" : ": it is applied only if it is chosen by itself"}
        </p>
      )}
      {ruled === null ? null : (
        <p class="change-note quiet">
          A rule of the project: <StatusBadge status={ruled.outcome} /> <Visible text={ruled.reason} max={300} />
        </p>
      )}
      {isOpen && files.length > 0 ? (
        <DiffView {...{ files, left, showAll }} label={`Changes of ${visibleName(path)}`} path={visibleName(path)} />
      ) : null}
    </div>
  );
}

function Unfit({ review: { unfit } }: { readonly review: Review }) {
  return (
    <section class="part" aria-labelledby="unfit-title">
      <div class="part-head">
        <h2 id="unfit-title">Cannot be applied</h2>
      </div>
      <ul class="files">
        {unfit.slice(0, MOST_UNFIT).map(({ index, path, outcome, reason }) => (
          <li key={index}>
            <StatusBadge status={outcome} />
            <code>
              <Name text={path} />
            </code>
            <span class="quiet">
              <Visible text={reason} max={500} />
            </span>
          </li>
        ))}
        {unfit.length > MOST_UNFIT ? (
          <li class="quiet">and {counted(unfit.length - MOST_UNFIT, "more change")}</li>
        ) : null}
      </ul>
    </section>
  );
}

/** `3 applied, 1 conflict`, the most frequent first. */
export function outcomeText(changes: readonly { readonly outcome: string }[]): string {
  const counts = new Map<string, number>();
  for (const { outcome } of changes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  if (counts.size === 0) return "nothing was applied";
  return [...counts]
    .toSorted(([, a], [, b]) => b - a)
    .map(([outcome, count]) => `${count} ${words(outcome)}`)
    .join(", ");
}

const EVERY_MS = 3000;

function ChangesetList() {
  const now = useNow();
  const { data, error, reload } = useResource("changesets.list", {}, { everyMs: EVERY_MS });
  return (
    <>
      <h1>Changesets</h1>
      <FleetGroups changesets={data?.changesets ?? []} reload={reload} />
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {data === null && error === null ? <Loading what="changesets" /> : null}
      {data === null ? null : data.changesets.length === 0 ? (
        <EmptyState title="No changes wait to be applied.">
          <p>
            What a worker writes in a directory with <code>stage: true</code> waits here if its run failed, or if the
            project asks before it applies. Until then the directory is as it was.
          </p>
        </EmptyState>
      ) : (
        <Table
          label="Changesets"
          rows={data.changesets}
          keyOf={({ id }) => id}
          linkOf={({ id }) => hrefTo(["changesets", id])}
          columns={[
            { title: "Worker", kind: "main", cell: ({ worker }) => <Visible text={worker} max={80} /> },
            { title: "Item", kind: "text", cell: ({ fleet, item }) => <OfItem fleet={fleet} item={item} /> },
            { title: "Changes", cell: ({ counts, applying }) => (applying ? "being applied" : countsText(counts)) },
            { title: "Why", kind: "text", isExtra: true, cell: ({ why }) => <Visible text={why ?? ""} max={200} /> },
            { title: "Project", isExtra: true, cell: ({ project }) => <Visible text={project} max={60} /> },
            { title: "Made", kind: "number", cell: ({ createdAt }) => <Ago at={createdAt} now={now} /> },
            { title: "Changeset", isExtra: true, cell: ({ id }) => <code>{id}</code> },
          ]}
        />
      )}
      <CutNote isCut={data?.more}>
        {`More changesets wait: these are the oldest ${data?.changesets.length}. Those that are decided make room for the next.`}
      </CutNote>
    </>
  );
}

type ListedChangeset = AnswerOf<"changesets.list">["changesets"][number];

/** Names in a dialog; the rest is counted. */
const NAMED = 10;

/** What items of one fleet left can be decided on together. */
function FleetGroups({
  changesets,
  reload,
}: {
  readonly changesets: readonly ListedChangeset[];
  readonly reload: () => void;
}) {
  const { client, notify } = useApp();
  const mayDecide = useMay("decide");
  // What comes while the dialog is open is not decided by it.
  const [asking, setAsking] = useState<{
    readonly deed: "apply" | "discard";
    readonly all: readonly ListedChangeset[];
  } | null>(null);
  const [progress, setProgress] = useState<string | null>(null);
  const groups = Map.groupBy(
    changesets.filter(({ fleet }) => fleet !== null),
    ({ fleet }) => fleet ?? "",
  );
  const chosen = asking?.all ?? [];
  const decide = async (deed: "apply" | "discard", all: readonly ListedChangeset[]): Promise<void> => {
    let left = 0;
    for (const [index, { id: changeset }] of all.entries()) {
      setProgress(
        `${deed === "apply" ? "Applying" : "Discarding"} ${countText(index + 1)} of ${countText(all.length)}`,
      );
      try {
        const { digest } = await client.call("changesets.show", { changeset });
        if (deed === "discard") await client.call("changesets.discard", { changeset, digest });
        else left += (await client.call("changesets.apply", { changeset, digest })).left > 0 ? 1 : 0;
      } catch {
        // Another was faster, or it cannot be applied: it stays in the list, with the reason on its page.
        left += 1;
      }
    }
    setProgress(null);
    const done = counted(all.length - left, "changeset");
    notify(`${done} ${deed === "apply" ? "applied" : "discarded"}${left === 0 ? "" : `, ${left} left`}.`);
    reload();
  };
  if (!mayDecide) return null;
  return (
    <>
      <ul class="changeset-groups">
        {[...groups].map(([fleet, all]) =>
          all.length < 2 ? null : (
            <li key={fleet} class="actions">
              <span>
                {counted(all.length, "changeset")} of fleet <code>{fleet}</code>
              </span>
              <Button disabled={progress !== null} act={() => setAsking({ deed: "apply", all })}>
                Apply all
              </Button>
              <Button kind="danger" disabled={progress !== null} act={() => setAsking({ deed: "discard", all })}>
                Discard all
              </Button>
            </li>
          ),
        )}
      </ul>
      {progress === null ? null : <p role="status">{progress}</p>}
      {asking === null ? null : (
        <Confirm
          title={`${asking.deed === "apply" ? "Apply" : "Discard"} ${counted(chosen.length, "changeset")}?`}
          deed={asking.deed === "apply" ? "Apply all, unseen" : "Discard all"}
          close={() => setAsking(null)}
          act={() => {
            setAsking(null);
            void decide(asking.deed, chosen);
          }}
        >
          <p>
            Of{" "}
            <Visible
              text={chosen
                .slice(0, NAMED)
                .map((one) => one.item ?? one.id)
                .join(", ")}
              max={600}
            />
            {chosen.length > NAMED ? ` and ${countText(chosen.length - NAMED)} more` : ""}.{" "}
            {asking.deed === "apply"
              ? "Their changes are not shown here. What a program of this machine would execute waits for its own page."
              : "What they wrote is removed."}
          </p>
        </Confirm>
      )}
    </>
  );
}

function OfItem({ fleet, item }: { readonly fleet: string | null; readonly item: string | null }) {
  if (fleet === null) return null;
  return (
    <a href={hrefTo(["fleets", fleet], item === null ? {} : { key: item })}>
      <Visible text={item ?? `of fleet ${fleet}`} max={60} />
    </a>
  );
}

function countsText(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([outcome, count]) => `${countText(count)} ${words(outcome)}`)
    .join(", ");
}

export function ChangesetsPage({ parts: [id] }: PageProps) {
  return id === undefined ? <ChangesetList /> : <ChangesetView key={id} id={id} />;
}
