import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type ServiceTransport } from "../../../client/client.ts";
import type { AnswerOf } from "../../../operations/contract/table.ts";
import { visibleName } from "../../../text/visible.ts";
import { hrefTo, useApp } from "../app/resource.ts";

/*
 * The token is kept in the session storage of this tab, and is sent in the header Authorization. A cookie would be sent by the browser itself,
 * also to every other port of this machine (cookies know no ports) and with requests that another site makes: it would need a
 * defence against both. What is in the session storage belongs to this origin and this tab, and ends with the tab.
 */

const KEY = "corral.token";

type Store = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** The token of a link such as `#token=corral_…`; null: it has none. */
export function tokenInFragment(hash: string): string | null {
  const token = new URLSearchParams(hash.replace(/^#/, "")).get("token");
  return token === null || token === "" ? null : token;
}

/**
 * A token in a link is moved into the session storage, and out of the address bar and the history of the browser. The link may lead to a
 * place of the page: `#token=…&to=/runs/ID`.
 */
export function takeToken(
  place: Pick<Location, "hash">,
  history: Pick<History, "replaceState">,
  store: Store,
): string | null {
  const given = tokenInFragment(place.hash);
  if (given === null) return store.getItem(KEY);
  const to = new URLSearchParams(place.hash.replace(/^#/, "")).get("to") ?? "";
  history.replaceState(null, "", `#${to.startsWith("/") ? to : "/"}`);
  store.setItem(KEY, given);
  return given;
}

export function keepToken(token: string, store: Store): void {
  store.setItem(KEY, token);
}

export function forgetToken(store: Store): void {
  store.removeItem(KEY);
}

/** `auto`: as the system has it. */
type Theme = "auto" | "light" | "dark";

const THEME_KEY = "corral.theme";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];

export function keptTheme(store: Pick<Storage, "getItem">): Theme {
  const kept = store.getItem(THEME_KEY);
  return ORDER.find((theme) => theme === kept) ?? "auto";
}

export function nextTheme(theme: Theme): Theme {
  return ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "auto";
}

export function keepTheme(theme: Theme, store: Pick<Storage, "setItem">): void {
  store.setItem(THEME_KEY, theme);
}

export function applyTheme(theme: Theme, root: HTMLElement): void {
  if (theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme);
}

/** Asks the service that the page comes from. Files are those that a user has chosen; bytes are a file, or what was typed. */
export const toOwnService: ServiceTransport = async ({ method, path, headers, json, bytes, files, signal }) => {
  const body = bytes instanceof Blob || bytes instanceof Uint8Array ? (bytes as BodyInit) : json;
  const response = await fetch(path, {
    method,
    headers: { ...headers, ...(json === null || files.length > 0 ? {} : { "content-type": "application/json" }) },
    ...(body === null ? {} : { body: json === null || files.length === 0 ? body : formOf(json, files) }),
    ...(signal === undefined ? {} : { signal }),
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
  }).catch((cause: unknown) => {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  });
  return { status: response.status, hasEnd: true, pieces: piecesOf(response, signal) };
};

function unreachable(cause: unknown): ApiError {
  return new ApiError(0, "UNREACHABLE", "The service does not answer. Is `corral serve` running?", { cause });
}

function formOf(json: string, files: Parameters<ServiceTransport>[0]["files"]): FormData {
  const form = new FormData();
  form.set("request", json);
  for (const { name, content } of files) if (content instanceof Blob) form.append("file", content, name);
  return form;
}

async function* piecesOf(response: Response, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const { value, done } = (await reader?.read()) ?? { done: true };
      if (done || value === undefined) return;
      yield value;
    }
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  } finally {
    // Of who reads no further: the connection is free again.
    void reader?.cancel().catch(() => {});
  }
}

const TOLD_KEY = "corral.notify";
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
  const [isOn, setOn] = useState(() => canNotify && allowed() && localStorage.getItem(TOLD_KEY) === "on");
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
      localStorage.removeItem(TOLD_KEY);
      setOn(false);
      return;
    }
    void Notification.requestPermission().then(() => {
      if (!allowed()) return;
      localStorage.setItem(TOLD_KEY, "on");
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
