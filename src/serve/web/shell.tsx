import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Client } from "./api/client.ts";
import type { ApprovalPage, Caller } from "./api/shapes.ts";
import { type App, AppContext, useApp, useShortcuts } from "./app/context.ts";
import { useResource } from "./app/resource.ts";
import { KeyboardHelp } from "./components/keyboard-help.tsx";
import { EmptyState } from "./components/notes.tsx";
import { type Toast, Toasts } from "./components/toasts.tsx";
import { isForPage, Shortcuts } from "./keyboard/shortcuts.ts";
import { PAGES } from "./pages.ts";
import { hrefTo, parsePageAddress } from "./routing/page-address.ts";
import { applyTheme, keepTheme, keptTheme, nextTheme } from "./session/theme.ts";
import { countText } from "./text/amounts.ts";

const TOAST_MS = 6000;
const MAX_TOASTS = 4;
const INBOX_MS = 3000;

/** Navigation, the page that the address names, short notes and the keyboard. */
export function Shell({
  client,
  caller,
  signOut,
}: {
  readonly client: Client;
  readonly caller: Caller;
  readonly signOut: () => void;
}) {
  const shortcuts = useMemo(() => new Shortcuts(), []);
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const [isHelp, setHelp] = useState(false);
  const lastToast = useRef(0);
  const notify = useCallback<App["notify"]>((text, tone = "good") => {
    lastToast.current += 1;
    const toast = { id: lastToast.current, text, tone };
    setToasts((before) => [...before, toast].slice(-MAX_TOASTS));
    setTimeout(() => setToasts((before) => before.filter(({ id }) => id !== toast.id)), TOAST_MS);
  }, []);
  const showHelp = useCallback(() => setHelp(true), []);
  const app = useMemo(
    () => ({ client, caller, shortcuts, notify, showHelp }),
    [client, caller, shortcuts, notify, showHelp],
  );
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (!event.defaultPrevented && isForPage(event) && shortcuts.press(event.key, event.timeStamp))
        event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [shortcuts]);
  return (
    <AppContext.Provider value={app}>
      <Frame signOut={signOut} />
      <Toasts toasts={toasts} />
      {isHelp ? <KeyboardHelp shortcuts={shortcuts} close={() => setHelp(false)} /> : null}
    </AppContext.Provider>
  );
}

function Frame({ signOut }: { readonly signOut: () => void }) {
  const hash = useHash();
  const { parts, query } = useMemo(() => parsePageAddress(hash), [hash]);
  const [name = "", ...rest] = parts;
  const entry = PAGES.find((page) => page.name === name);
  const main = useRef<HTMLElement>(null);
  const inbox = useResource<ApprovalPage>("/v1/approvals", { everyMs: INBOX_MS });
  const waiting = countOf(inbox.data);
  const title = entry?.title ?? "Not found";
  useEffect(() => {
    document.title = `${waiting !== null ? `(${waiting}) ` : ""}${title} · Corral`;
  }, [title, waiting]);
  useGeneralKeys();
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <Navigation name={name} waiting={waiting} signOut={signOut} />
      <main ref={main} class="main" tabIndex={-1}>
        {inbox.error?.status === 0 ? (
          <p class="offline" role="alert">
            The service does not answer. What is shown may be old.
          </p>
        ) : null}
        {entry === undefined ? (
          <EmptyState title="There is no such page.">
            <a href={hrefTo([])}>Go to the overview</a>
          </EmptyState>
        ) : (
          <entry.Page parts={rest} query={query} />
        )}
      </main>
    </div>
  );
}

/** How many questions wait: `100+` if the list was cut. Null: none. */
function countOf(page: ApprovalPage | null): string | null {
  const count = page?.approvals.length ?? 0;
  return count === 0 ? null : countText(count, page?.next !== null);
}

function Navigation({
  name,
  waiting,
  signOut,
}: {
  readonly name: string;
  /** Null: none waits. */
  readonly waiting: string | null;
  readonly signOut: () => void;
}) {
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // In a narrow window the names are one line that scrolls.
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [name]);
  return (
    <header class="side">
      <a class="brand" href={hrefTo([])}>
        Corral
      </a>
      <nav ref={nav} aria-label="Pages">
        <ul>
          {PAGES.map((page) => (
            <li key={page.name}>
              <a
                href={hrefTo(page.name === "" ? [] : [page.name])}
                aria-current={page.name === name ? "page" : undefined}
              >
                {page.title}
                {page.name === "inbox" && waiting !== null ? (
                  <span class="count">
                    {waiting}
                    <span class="unseen"> waiting</span>
                  </span>
                ) : null}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <Foot signOut={signOut} />
    </header>
  );
}

function Foot({ signOut }: { readonly signOut: () => void }) {
  const [theme, setTheme] = useState(() => keptTheme(localStorage));
  const change = (): void => {
    const next = nextTheme(theme);
    keepTheme(next, localStorage);
    applyTheme(next, document.documentElement);
    setTheme(next);
  };
  return (
    <div class="side-foot">
      <button
        type="button"
        class="button button-quiet"
        onClick={change}
        title="Change between light, dark and the system's theme"
      >
        Theme: {theme}
      </button>
      <button type="button" class="button button-quiet" onClick={signOut}>
        Sign out
      </button>
    </div>
  );
}

function useGeneralKeys(): void {
  const { showHelp } = useApp();
  const focus = (): void => document.querySelector<HTMLElement>("main [data-search]")?.focus();
  useShortcuts("Everywhere", [
    { keys: "?", does: "Show these keys", act: showHelp },
    { keys: "/", does: "Search or filter", act: focus },
  ]);
  useShortcuts(
    "Go to",
    PAGES.map(({ name, title, key }) => ({
      keys: `g ${key}`,
      does: title,
      act: () => {
        location.hash = hrefTo(name === "" ? [] : [name]);
      },
    })),
  );
}

function useHash(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const look = (): void => setHash(location.hash);
    addEventListener("hashchange", look);
    look();
    return () => removeEventListener("hashchange", look);
  }, []);
  return hash;
}
