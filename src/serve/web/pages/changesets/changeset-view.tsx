import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../../api/client.ts";
import type { AppliedChangeset, Review, ReviewedPart } from "../../api/shapes.ts";
import { useApp, useMay, useShortcuts } from "../../app/context.ts";
import { useNow, useResource } from "../../app/resource.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { Button } from "../../components/button.tsx";
import { Confirm } from "../../components/dialog.tsx";
import { DiffView } from "../../components/diff-view.tsx";
import { EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { useRowKeys } from "../../components/row-keys.ts";
import { Ago } from "../../components/time.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { bytesText, countText, plural } from "../../text/amounts.ts";
import { visibleText } from "../../text/visible.ts";
import { outcomeText } from "./outcome.ts";

const AT_FIRST = 100;
/** Diffs that are open at first. */
const OPEN = 20;

/** A changeset for a decision: what each path would become, and which of them are applied. */
export function ChangesetView({ id }: { readonly id: string }) {
  const path = `/v1/changesets/${encodeURIComponent(id)}`;
  const { data: review, error, reload } = useResource<Review>(`${path}/review`);
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
  return <Decision key={review.digest} review={review} path={path} reload={reload} />;
}

function Decision({
  review,
  path,
  reload,
}: {
  readonly review: Review;
  readonly path: string;
  readonly reload: () => void;
}) {
  const { client, notify } = useApp();
  const may = useMay("decide");
  const now = useNow(10_000);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [isAsked, setAsked] = useState(false);
  const [limit, setLimit] = useState(AT_FIRST);
  const list = useRef<HTMLDivElement>(null);
  useRowKeys(list, "Files");
  const { parts, unfit, total, notShown, digest, worker, run, project, createdAt } = review;
  const chosen = parts.filter((part) => !left.has(part.path));
  const isAll = left.size === 0;
  const act = async (what: "apply" | "discard", body: object): Promise<void> => {
    try {
      const done = await client.post<AppliedChangeset>(`${path}/${what}`, { digest, ...body });
      if (what === "discard") {
        notify("The changeset was discarded.");
        location.hash = hrefTo(["changesets"]);
        return;
      }
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
  const apply = (): Promise<void> => act("apply", isAll ? {} : { which: chosen.flatMap(({ indexes }) => indexes) });
  const toggle = (one: string): void => {
    const next = new Set(left);
    if (!next.delete(one)) next.add(one);
    setLeft(next);
  };
  const focused = (): string | undefined =>
    (document.activeElement as HTMLElement | null)?.closest<HTMLElement>("[data-path]")?.dataset.path;
  useShortcuts("This changeset", [
    ...(may && chosen.length > 0
      ? [{ keys: "a", does: isAll ? "Apply all" : "Apply what is chosen", act: () => void apply() }]
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
              <Button kind="primary" shortcut="a" disabled={chosen.length === 0 && notShown === 0} act={apply}>
                {isAll ? "Apply all" : `Apply ${countText(chosen.length)} of ${countText(parts.length)}`}
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
        {plural(total.files, "file")}, {bytesText(total.bytes)} · project <Visible text={project} max={80} /> · run{" "}
        <a href={hrefTo(["runs", run])}>
          <code>{run}</code>
        </a>{" "}
        · made <Ago at={createdAt} now={now} />
      </p>
      <div ref={list} class="changes">
        {parts.slice(0, limit).map((part, index) => (
          <Part
            key={part.path}
            part={part}
            isOpen={index < OPEN}
            isChosen={!left.has(part.path)}
            toggle={may ? () => toggle(part.path) : null}
          />
        ))}
      </div>
      {parts.length > limit ? (
        <Button kind="quiet" act={() => setLimit(limit + 500)}>
          Show more of {plural(parts.length, "path")}
        </Button>
      ) : null}
      {notShown > 0 ? (
        <p class="quiet">{plural(notShown, "more change")} cannot be shown, and are applied only with all.</p>
      ) : null}
      {unfit.length === 0 ? null : <Unfit review={review} />}
      {isAsked ? (
        <Confirm
          title="Discard these changes?"
          deed="Discard them"
          act={() => void act("discard", {})}
          close={() => setAsked(false)}
        >
          <p>What the run wrote is removed for good. What was applied before stays.</p>
        </Confirm>
      ) : null}
    </>
  );
}

const KINDS = { create: "new", modify: "changed", delete: "deleted" } as const;

function Part({
  part: { path, kind, type, added, removed, lines, ruled },
  isOpen: isOpenAtFirst,
  isChosen,
  toggle,
}: {
  readonly part: ReviewedPart;
  readonly isOpen: boolean;
  readonly isChosen: boolean;
  readonly toggle: (() => void) | null;
}) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  return (
    <div class={isChosen ? "change" : "change change-left"} data-path={path}>
      <div class="change-head">
        {toggle === null ? null : (
          <input
            type="checkbox"
            checked={isChosen}
            onChange={toggle}
            aria-label={`Apply ${visibleText(path.slice(0, 200))}`}
          />
        )}
        <button type="button" data-row class="change-name" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <span class="change-arrow" aria-hidden="true">
            {isOpen ? "▾" : "▸"}
          </span>
          <code>
            <Visible text={path} max={500} />
          </code>
        </button>
        <span class={`kind-${kind}`}>{`${KINDS[kind]}${type === "file" ? "" : ` ${type}`}`}</span>
        {added === 0 && removed === 0 ? null : (
          <span class="amounts">
            <span class="added">+{countText(added)}</span> <span class="removed">−{countText(removed)}</span>
          </span>
        )}
      </div>
      {ruled === null ? null : (
        <p class="change-note quiet">
          A rule of the project: <StatusBadge status={ruled.outcome} /> <Visible text={ruled.reason} max={300} />
        </p>
      )}
      {isOpen && lines.length > 0 ? (
        <DiffView lines={lines} label={`Changes of ${visibleText(path.slice(0, 200))}`} path={path} />
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
        {unfit.slice(0, 500).map(({ index, path, outcome, reason }) => (
          <li key={index}>
            <StatusBadge status={outcome} />
            <code>
              <Visible text={path} max={500} />
            </code>
            <span class="quiet">
              <Visible text={reason} max={500} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
