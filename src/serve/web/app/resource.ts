import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../../../client/client.ts";
import type { Answering, AnswerOf, AskOf } from "../../../operations/contract/table.ts";
import { useApp } from "./context.ts";

/** What an operation answered. The last answer stays while the next one is asked for, or if that fails. */
export interface Resource<T> {
  readonly data: T | null;
  readonly error: ApiError | null;
  readonly reload: () => void;
}

/**
 * Asks with an operation, again after `everyMs`, but only while the page is seen. Null: asks for nothing. Asking for something else forgets the
 * old answer.
 */
export function useResource<Name extends Answering<"output">>(
  name: Name,
  ask: AskOf<Name> | null,
  { everyMs = 0 }: { readonly everyMs?: number } = {},
): Resource<AnswerOf<Name>> {
  const { client } = useApp();
  const asked = ask === null ? null : JSON.stringify(ask);
  const [state, setState] = useState<State<AnswerOf<Name>>>({ asked, data: null, error: null });
  const load = useRef<() => void>(() => {});
  useEffect(() => {
    if (asked === null) return;
    const ask: AskOf<Name> = JSON.parse(asked);
    const over = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isAsking = false;
    const look = async (): Promise<void> => {
      clearTimeout(timer);
      if (isAsking) return;
      isAsking = true;
      try {
        const data = await client.call(name, ask, { signal: over.signal });
        setState((before) => (same(before, asked, data) ? before : { asked, data, error: null }));
      } catch (error) {
        if (over.signal.aborted) return;
        setState((before) => ({ asked, data: before.asked === asked ? before.data : null, error: error as ApiError }));
      } finally {
        isAsking = false;
      }
      if (everyMs > 0 && !over.signal.aborted) timer = setTimeout(next, everyMs);
    };
    const next = (): void => {
      if (!document.hidden) void look();
    };
    load.current = () => void look();
    void look();
    document.addEventListener("visibilitychange", next);
    return () => {
      over.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", next);
    };
  }, [client, name, asked, everyMs]);
  const reload = useCallback(() => load.current(), []);
  const isOther = state.asked !== asked;
  return { data: isOther ? null : state.data, error: isOther ? null : state.error, reload };
}

interface State<T> {
  /** As JSON: the same question is the same text. */
  readonly asked: string | null;
  readonly data: T | null;
  readonly error: ApiError | null;
}

/** Nothing is drawn again if nothing has changed. */
function same<T>(before: State<T>, asked: string, data: T): boolean {
  return before.asked === asked && before.error === null && JSON.stringify(before.data) === JSON.stringify(data);
}

/** Now, again every `everyMs`, for times that are shown as ages. */
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
