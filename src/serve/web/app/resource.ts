import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api/client.ts";
import { useApp } from "./context.ts";

/** What a `GET` answered. The last answer stays while the next one is asked for, or if that fails. */
export interface Resource<T> {
  readonly data: T | null;
  readonly error: ApiError | null;
  readonly reload: () => void;
}

/**
 * Asks for a path, again after `everyMs`, but only while the page is seen. Null: asks for nothing. A new path forgets the old answer.
 */
export function useResource<T>(path: string | null, { everyMs = 0 }: { readonly everyMs?: number } = {}): Resource<T> {
  const { client } = useApp();
  const [state, setState] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({
    path,
    data: null,
    error: null,
  });
  const load = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    const over = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isAsking = false;
    const ask = async (): Promise<void> => {
      clearTimeout(timer);
      if (isAsking) return;
      isAsking = true;
      try {
        const data = await client.get<T>(path, over.signal);
        setState((before) => (same(before, path, data) ? before : { path, data, error: null }));
      } catch (error) {
        if (over.signal.aborted) return;
        setState((before) => ({ path, data: before.path === path ? before.data : null, error: error as ApiError }));
      } finally {
        isAsking = false;
      }
      if (everyMs > 0 && !over.signal.aborted) timer = setTimeout(next, everyMs);
    };
    const next = (): void => {
      if (!document.hidden) void ask();
    };
    load.current = () => void ask();
    void ask();
    document.addEventListener("visibilitychange", next);
    return () => {
      over.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", next);
    };
  }, [client, path, everyMs]);
  const reload = useCallback(() => load.current(), []);
  const isOther = state.path !== path;
  return { data: isOther ? null : state.data, error: isOther ? null : state.error, reload };
}

/** Nothing is drawn again if nothing has changed. */
function same<T>(
  before: { readonly path: string | null; readonly data: T | null; readonly error: ApiError | null },
  path: string,
  data: T,
): boolean {
  return before.path === path && before.error === null && JSON.stringify(before.data) === JSON.stringify(data);
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
