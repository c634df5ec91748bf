import { createContext } from "preact";
import { useCallback, useContext, useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { ApiError, type ServiceClient } from "../../../client/client.ts";
import type { Answering, AnswerOf, AskOf } from "../../../operations/contract/table.ts";

/** What an operation answered. The last answer stays while the next one is asked for, or if that fails. */
interface Resource<T> {
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

const DRAW_MS = 100;

/**
 * Follows what comes while it is shown, and begins anew if one of `on` is another one. What comes is kept outside of the state: after `changed` the
 * component is drawn, at most once in `drawMs`.
 */
export function useStream(
  follow: (of: { readonly signal: AbortSignal; readonly changed: () => void }) => Promise<void>,
  on: readonly unknown[],
  drawMs = DRAW_MS,
): { readonly error: ApiError | null; readonly setError: (error: ApiError | null) => void; readonly draw: () => void } {
  const [error, setError] = useState<ApiError | null>(null);
  const [, draw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const over = new AbortController();
    let timer: ReturnType<typeof setTimeout> | null = null;
    const changed = (): void => {
      timer ??= setTimeout(() => {
        timer = null;
        draw(0);
      }, drawMs);
    };
    follow({ signal: over.signal, changed }).catch((fault: unknown) => {
      if (!over.signal.aborted && fault instanceof ApiError) setError(fault);
    });
    return () => {
      over.abort();
      if (timer !== null) clearTimeout(timer);
    };
  }, on);
  return { error, setError, draw: () => draw(0) };
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

type Caller = AnswerOf<"host.caller">;

type CallerRole = Caller["roles"][number];

/** What every page uses. */
export interface App {
  readonly client: ServiceClient;
  readonly caller: Caller;
  readonly shortcuts: Shortcuts;
  /** Says something for some seconds, also to screen readers. */
  readonly notify: (text: string, tone?: "good" | "bad") => void;
  readonly showHelp: () => void;
  /** A page has asked which questions wait: the navigation counts the same. */
  readonly sawWaiting: (page: AnswerOf<"approvals.list">) => void;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("nothing is shown outside of the app");
  return app;
}

/** Whether the token may do what needs this role. What it may not do is not offered. */
export function useMay(role: CallerRole): boolean {
  return mayDo(useApp().caller.roles, role);
}

/** As the service has it: `admin` may do all, and every role but `metrics` may read. */
export function mayDo(roles: readonly CallerRole[], role: CallerRole): boolean {
  return roles.some((own) => own === "admin" || own === role || (role === "read" && own !== "metrics"));
}

/**
 * Shortcuts while the component is shown. They are taken anew at each drawing, together with it: a key that is pressed at once acts on what
 * the user sees, and never on what was there before.
 */
export function useShortcuts(title: string, list: readonly Shortcut[]): void {
  const { shortcuts } = useApp();
  useLayoutEffect(() => shortcuts.add(title, list));
}

/** What a page is given of its address. */
export interface PageProps {
  /** After the name of the page. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

/** A key, or two of them one after the other (`g r`), and what it does: a verb first. */
interface Shortcut {
  readonly keys: string;
  readonly does: string;
  readonly act: () => void;
}

const SECOND_KEY_MS = 1500;

/** What the keyboard does at this moment. Later shortcuts take the place of earlier ones. */
export class Shortcuts {
  readonly #groups: { readonly title: string; readonly list: readonly Shortcut[] }[] = [];
  #first = "";
  #firstAt = 0;

  /** Returns what takes them away again. */
  add(title: string, list: readonly Shortcut[]): () => void {
    const group = { title, list };
    this.#groups.push(group);
    return () => {
      const index = this.#groups.indexOf(group);
      if (index >= 0) this.#groups.splice(index, 1);
    };
  }

  get groups(): readonly { readonly title: string; readonly list: readonly Shortcut[] }[] {
    return this.#groups;
  }

  /** True if the key did something. */
  press(key: string, now: number): boolean {
    const isSecond = this.#first !== "" && now - this.#firstAt < SECOND_KEY_MS;
    const typed = isSecond ? `${this.#first} ${key}` : key;
    this.#first = "";
    const all = this.#groups.flatMap(({ list }) => list);
    const found =
      all.findLast(({ keys }) => keys === typed) ?? (isSecond ? undefined : all.findLast(({ keys }) => keys === key));
    if (found !== undefined) {
      found.act();
      return true;
    }
    if (all.some(({ keys }) => keys.startsWith(`${key} `))) {
      this.#first = key;
      this.#firstAt = now;
    }
    return false;
  }
}

/** Keys for a field, a menu of the browser or a dialog are not for the page. */
export function isForPage(event: Pick<KeyboardEvent, "ctrlKey" | "metaKey" | "altKey" | "target">): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.target;
  if (!(target instanceof Element)) return true;
  return target.closest("input, textarea, select, [contenteditable], dialog[open]") === null;
}

/** What the page shows, as the fragment of its address has it: `#/runs/ID?status=failed`. */
interface PageAddress {
  /** Without empty parts; none: the overview. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

const MAX_CHARS = 4096;

export function parsePageAddress(hash: string): PageAddress {
  const [path = "", query = ""] = hash
    .slice(0, MAX_CHARS)
    .replace(/^#/, "")
    .split(/\?(.*)/s);
  const parts = path.split("/").filter((part) => part !== "");
  return { parts: parts.map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The fragment for a part of the page. Fields of the query without a text are left out. */
export function hrefTo(parts: readonly string[], query: Readonly<Record<string, string | undefined>> = {}): string {
  const fields = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const asked = new URLSearchParams(fields as [string, string][]).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${asked === "" ? "" : `?${asked}`}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
