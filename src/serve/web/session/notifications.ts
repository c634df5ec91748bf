import { useEffect, useRef, useState } from "preact/hooks";
import type { AnswerOf } from "../../../operations/contract/table.ts";
import { visibleName } from "../../../text/visible.ts";
import { useApp } from "../app/resource.ts";
import { hrefTo } from "../routing/page-address.ts";

const KEY = "corral.notify";
/** Nothing else of the page asks while it is not seen. */
const HIDDEN_MS = 10_000;
const MAX_AT_ONCE = 3;

type ApprovalPage = AnswerOf<"approvals.list">;

/** Whether the browser tells of new questions while the page is not seen; null: it cannot. */
export function useNotifications(waiting: ApprovalPage | null): {
  readonly isOn: boolean | null;
  readonly change: () => void;
} {
  const { client } = useApp();
  const canNotify = "Notification" in globalThis && isSecureContext;
  const [isOn, setOn] = useState(() => canNotify && allowed() && localStorage.getItem(KEY) === "on");
  const known = useRef<ReadonlySet<string> | null>(null);
  if (waiting !== null && !document.hidden) known.current = new Set(waiting.approvals.map(({ id }) => id));
  useEffect(() => {
    if (!isOn) return;
    const over = new AbortController();
    const look = async (): Promise<void> => {
      if (!document.hidden) return;
      const page = await client.call("approvals.list", {}, { signal: over.signal }).catch(() => null);
      if (page === null || over.signal.aborted) return;
      const fresh = known.current === null ? [] : page.approvals.filter(({ id }) => !known.current?.has(id));
      known.current = new Set(page.approvals.map(({ id }) => id));
      for (const one of fresh.slice(0, MAX_AT_ONCE)) show(one);
    };
    const timer = setInterval(() => void look(), HIDDEN_MS);
    return () => {
      over.abort();
      clearInterval(timer);
    };
  }, [client, isOn]);
  const change = (): void => {
    if (isOn) {
      localStorage.removeItem(KEY);
      setOn(false);
      return;
    }
    void Notification.requestPermission().then(() => {
      if (!allowed()) return;
      localStorage.setItem(KEY, "on");
      setOn(true);
    });
  };
  return { isOn: canNotify ? isOn : null, change };
}

function allowed(): boolean {
  return Notification.permission === "granted";
}

/** The system shows it outside of the page: it has names alone, and no text of a worker. */
function show({ id, project, question: { worker } }: ApprovalPage["approvals"][number]): void {
  const shown = new Notification("Corral: a question waits", {
    body: `${visibleName(worker)} of ${visibleName(project)} asks.`,
    tag: `corral-${id}`,
  });
  shown.onclick = () => {
    focus();
    location.hash = hrefTo(["inbox", id]);
    shown.close();
  };
}
