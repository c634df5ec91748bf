import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import { hrefTo, type PageProps, useApp, useMay, useNow, useResource, useShortcuts } from "../../app/resource.ts";
import { CutNote, EmptyState, ErrorNote, Loading } from "../../components/notes.tsx";
import { Ago, StatusBadge, Visible } from "../../components/visible.tsx";
import { afterDecision, answersOf, deedOf, neighbour, type OfferedAnswer, QuestionView } from "./question-view.tsx";

const EVERY_MS = 1500;
/** A key that was meant for the question before is not taken for the next one. */
const SETTLE_MS = 500;

/**
 * The questions that wait, or those that were decided. The one that is shown stays until the user leaves it: if another decides on it
 * first, it says who. Its id is in the address.
 */
export function Inbox({ parts: [chosen], query }: PageProps) {
  const isHistory = query.state === "decided";
  const { client, notify, sawWaiting } = useApp();
  const may = useMay("decide");
  const now = useNow();
  const list = useResource(
    "approvals.list",
    { state: isHistory ? "decided" : "waiting" },
    {
      everyMs: EVERY_MS,
    },
  );
  useEffect(() => {
    if (list.data !== null && !isHistory) sawWaiting(list.data);
  }, [list.data, isHistory, sawWaiting]);
  const approvals = list.data?.approvals ?? [];
  const ids = approvals.map(({ id }) => id);
  const id = chosen ?? ids[0] ?? null;
  const listed = approvals.find((one) => one.id === id) ?? null;
  // It is not in the list any more: how was it decided?
  const single = useResource(
    "approvals.show",
    listed === null && id !== null && list.data !== null ? { approval: id } : null,
  );
  const shown = listed ?? single.data;
  const [directory, setDirectory] = useState<string | null>(null);
  const shownSince = useRef({ id: "", digest: "", at: 0 });
  // Other runs may wait for the same question now: it is as new as another one.
  if (shown !== null && shownSince.current.digest !== shown.digest) {
    if (directory !== null && shownSince.current.id !== shown.id) setDirectory(null);
    shownSince.current = { id: shown.id, digest: shown.digest, at: performance.now() };
  }
  const go = (to: string | null): void => {
    location.hash = hrefTo(to === null ? ["inbox"] : ["inbox", to], isHistory ? { state: "decided" } : {});
  };
  const mayNow = may && shown?.state === "waiting";
  const decide = async (answer: OfferedAnswer): Promise<void> => {
    if (shown === null || !mayNow || !answersOf(shown).includes(answer)) return;
    if (performance.now() - shownSince.current.at < SETTLE_MS)
      return notify("This question was shown or changed just now: press again.", "bad");
    const next = afterDecision(ids, shown.id);
    const body = {
      approval: shown.id,
      answer,
      digest: shown.digest,
      ...(directory === null || answer === "no" ? {} : { directory }),
    };
    try {
      await client.call("approvals.decide", body);
      notify(
        `${answer === "no" ? "Denied" : answer === "tree" ? "Allowed for this run and its calls" : "Allowed once"}: ${shown.question.worker}`,
      );
      go(next);
    } catch (fault) {
      const { code, message } = fault as ApiError;
      if (code !== "ALREADY_DECIDED") return notify(message, "bad");
      const { by, outcome } = await client.call("approvals.show", { approval: shown.id });
      notify(
        by === null ? "Nothing waits for this answer any more." : `${by} was faster: ${outcome ?? "decided"}.`,
        "bad",
      );
      go(shown.id);
    } finally {
      list.reload();
    }
  };
  useShortcuts("Inbox", [
    { keys: "j", does: "Show the next question", act: () => go(neighbour(ids, id, 1)) },
    { keys: "k", does: "Show the question before", act: () => go(neighbour(ids, id, -1)) },
    {
      keys: "h",
      does: isHistory ? "Show what waits" : "Show what was decided",
      act: () => (location.hash = hrefTo(["inbox"], isHistory ? {} : { state: "decided" })),
    },
  ]);
  return (
    <>
      <div class="page-head">
        <h1>Inbox</h1>
        <nav class="tabs" aria-label="Questions">
          <a href={hrefTo(["inbox"])} aria-current={isHistory ? undefined : "page"}>
            Waiting
          </a>
          <a href={hrefTo(["inbox"], { state: "decided" })} aria-current={isHistory ? "page" : undefined}>
            Decided
          </a>
        </nav>
      </div>
      {list.error === null ? null : <ErrorNote error={list.error} retry={list.reload} />}
      {list.data === null && list.error === null ? <Loading what="questions" /> : null}
      {list.data !== null && approvals.length === 0 && shown === null ? <Nothing isHistory={isHistory} /> : null}
      {list.data === null || (approvals.length === 0 && shown === null) ? null : (
        <div class="inbox">
          <div>
            <ul class="questions" aria-label={isHistory ? "Decided questions" : "Waiting questions"}>
              {approvals.map((one) => (
                <li key={one.id}>
                  <a
                    href={hrefTo(["inbox", one.id], isHistory ? { state: "decided" } : {})}
                    aria-current={one.id === id ? "true" : undefined}
                  >
                    <span class="question-who">
                      <Visible text={one.question.worker} max={60} />
                      {(one.question.runs ?? 1) > 1 ? ` · ${one.question.runs} runs` : ""}
                      {one.outcome === null ? null : <StatusBadge status={one.outcome} />}
                    </span>
                    <span class="question-deed">
                      <Visible text={deedOf(one.question)} max={120} />
                    </span>
                    <span class="quiet">
                      <Ago at={one.decidedAt ?? one.askedAt} now={now} />
                      {one.by === null ? (
                        ""
                      ) : (
                        <>
                          {" "}
                          by <Visible text={one.by} max={40} />
                        </>
                      )}
                    </span>
                  </a>
                </li>
              ))}
            </ul>
            <CutNote isCut={list.data !== null && list.data.next !== null}>
              {isHistory
                ? `These are the newest ${approvals.length}. The audit trail has all.`
                : `These are the oldest ${approvals.length}. More wait, and come when these are decided.`}
            </CutNote>
          </div>
          {shown === null ? (
            <p class="quiet">
              {single.error === null ? "Choose a question." : <Visible text={single.error.message} />}
            </p>
          ) : (
            <QuestionView
              key={shown.id}
              approval={shown}
              now={now}
              mayDecide={may}
              decide={decide}
              directory={directory}
              choose={setDirectory}
            />
          )}
        </div>
      )}
    </>
  );
}

function Nothing({ isHistory }: { readonly isHistory: boolean }) {
  return isHistory ? (
    <EmptyState title="Nothing was decided yet." />
  ) : (
    <EmptyState title="Nothing waits for a decision.">
      <p>
        A worker whose directories need consent (<code>stage: true</code>, <code>consent</code>), or that asks for more
        than it has, asks here while its run waits.
      </p>
      <a href={hrefTo(["inbox"], { state: "decided" })}>Show what was decided</a>
    </EmptyState>
  );
}
