import { type ComponentType, render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ServiceClient } from "../../client/client.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { countText } from "../../text/amounts.ts";
import {
  type App,
  AppContext,
  hrefTo,
  isForPage,
  type PageProps,
  parsePageAddress,
  Shortcuts,
  useApp,
  useResource,
  useShortcuts,
} from "./app/resource.ts";
import { KeyboardHelp } from "./components/dialog.tsx";
import { EmptyState, type Toast, Toasts } from "./components/notes.tsx";
import { Audit } from "./pages/audit/audit.tsx";
import { ChangesetsPage } from "./pages/changesets/changesets.tsx";
import { ConvertPage } from "./pages/convert/convert.tsx";
import { FleetsPage } from "./pages/fleets/fleets.tsx";
import { Inbox } from "./pages/inbox/inbox.tsx";
import { JobsPage } from "./pages/jobs/jobs.tsx";
import { MachinePage } from "./pages/machine/machine.tsx";
import { Overview } from "./pages/overview/overview.tsx";
import { RunsPage } from "./pages/runs/runs.tsx";
import { SessionsPage } from "./pages/sessions/sessions.tsx";
import { Workers } from "./pages/workers/workers.tsx";
import {
  applyTheme,
  forgetToken,
  keepTheme,
  keepToken,
  keptTheme,
  nextTheme,
  takeToken,
  tokenInFragment,
  toOwnService,
  useNotifications,
} from "./session/session.ts";

type ApprovalPage = AnswerOf<"approvals.list">;
type Caller = AnswerOf<"host.caller">;

export interface PageEntry {
  /** The first part of its address; empty for the overview. */
  readonly name: string;
  readonly title: string;
  /** Goes there after `g`. */
  readonly key: string;
  readonly Page: ComponentType<PageProps>;
}

/** In the order of the navigation. */
const PAGES: readonly PageEntry[] = [
  { name: "", title: "Overview", key: "o", Page: Overview },
  { name: "runs", title: "Runs", key: "r", Page: RunsPage },
  { name: "inbox", title: "Inbox", key: "i", Page: Inbox },
  { name: "changesets", title: "Changesets", key: "c", Page: ChangesetsPage },
  { name: "fleets", title: "Fleets", key: "f", Page: FleetsPage },
  { name: "workers", title: "Workers", key: "w", Page: Workers },
  { name: "sessions", title: "Sessions", key: "s", Page: SessionsPage },
  { name: "convert", title: "Convert", key: "v", Page: ConvertPage },
  { name: "jobs", title: "Jobs", key: "j", Page: JobsPage },
  { name: "audit", title: "Audit", key: "a", Page: Audit },
  { name: "machine", title: "Machine", key: "m", Page: MachinePage },
];

const TOAST_MS = 6000;
const MAX_TOASTS = 4;
const INBOX_MS = 3000;

/** Navigation, the page that the address names, short notes and the keyboard. */
function Shell({
  client,
  caller,
  signOut,
}: {
  readonly client: ServiceClient;
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
  const [waiting, sawWaiting] = useState<ApprovalPage | null>(null);
  const app = useMemo(
    () => ({ client, caller, shortcuts, notify, showHelp, sawWaiting }),
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
      <Frame waiting={waiting} signOut={signOut} />
      <Toasts toasts={toasts} />
      {isHelp ? <KeyboardHelp shortcuts={shortcuts} close={() => setHelp(false)} /> : null}
    </AppContext.Provider>
  );
}

function Frame({ waiting: page, signOut }: { readonly waiting: ApprovalPage | null; readonly signOut: () => void }) {
  const { sawWaiting } = useApp();
  const hash = useHash();
  const { parts, query } = useMemo(() => parsePageAddress(hash), [hash]);
  const [name = "", ...rest] = parts;
  const entry = PAGES.find((page) => page.name === name);
  const main = useRef<HTMLElement>(null);
  const inbox = useResource("approvals.list", {}, { everyMs: INBOX_MS });
  useEffect(() => {
    if (inbox.data !== null) sawWaiting(inbox.data);
  }, [inbox.data, sawWaiting]);
  const waiting = countOf(page);
  const notifications = useNotifications(page);
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
      <Navigation name={name} waiting={waiting} notifications={notifications} signOut={signOut} />
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
  notifications,
  signOut,
}: {
  readonly name: string;
  /** Null: none waits. */
  readonly waiting: string | null;
  readonly notifications: ReturnType<typeof useNotifications>;
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
      <Foot notifications={notifications} signOut={signOut} />
    </header>
  );
}

function Foot({
  notifications: { isOn, change: changeNotifications },
  signOut,
}: {
  readonly notifications: ReturnType<typeof useNotifications>;
  readonly signOut: () => void;
}) {
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
      {isOn === null ? null : (
        <button
          type="button"
          class="button button-quiet"
          aria-pressed={isOn}
          onClick={changeNotifications}
          title="The browser tells of questions while this page is in the background"
        >
          Notifications: {isOn ? "on" : "off"}
        </button>
      )}
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

/*
 * The page of `corral serve`. To add a page: a folder `pages/NAME/` with `NAME.tsx`, which exports a component that takes
 * `PageProps` (what follows its name in the address), and its styles in `NAME.css` beside it; then a line in `PAGES`.
 * Pages do not import each other. They ask the service with `useResource` and `useApp().client`, show texts of workers with `<Visible>` alone,
 * offer what a token may do with `useMay`, and add keys with `useShortcuts`. No inline style or script: the policy of the page forbids them.
 */

applyTheme(keptTheme(localStorage), document.documentElement);
const place = document.getElementById("page");
if (place !== null) render(<Root />, place);

interface SignedIn {
  readonly client: ServiceClient;
  readonly caller: Caller;
}

/** The page after its token was found to be good, and before that the form for one. */
function Root() {
  const [token, setToken] = useState(() => takeToken(location, history, sessionStorage));
  const [signedIn, setSignedIn] = useState<SignedIn | null>(null);
  const [error, setError] = useState<string | null>(null);
  const signOut = useCallback((why: string | null) => {
    forgetToken(sessionStorage);
    setToken(null);
    setSignedIn(null);
    setError(why);
  }, []);
  const client = useMemo(
    () =>
      token === null
        ? null
        : new ServiceClient(toOwnService, token, () =>
            signOut("The service does not know this token, or knows it no more."),
          ),
    [token, signOut],
  );
  useEffect(() => {
    if (client === null) return;
    const over = new AbortController();
    client
      .call("host.caller", {}, { signal: over.signal })
      .then((caller) => setSignedIn({ client, caller }))
      .catch((fault: unknown) => {
        if (!over.signal.aborted && fault instanceof ApiError && fault.status !== 401) setError(fault.message);
      });
    return () => over.abort();
  }, [client]);
  useEffect(() => {
    // A link with another token was opened in this tab.
    const look = (): void => {
      if (!location.hash.includes("token=")) return;
      const given = takeToken(location, history, sessionStorage);
      setSignedIn(null);
      setToken(given);
    };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  if (signedIn !== null && token !== null)
    return <Shell client={signedIn.client} caller={signedIn.caller} signOut={() => signOut(null)} />;
  if (token !== null && error === null) return <p class="loading alone">Connecting…</p>;
  const signIn = (given: string): void => {
    keepToken(given, sessionStorage);
    setError(null);
    setToken(given);
  };
  return <SignIn error={error} signIn={signIn} />;
}

/** Takes a token, or the whole link that has one. */
function SignIn({ error, signIn }: { readonly error: string | null; readonly signIn: (token: string) => void }) {
  const [text, setText] = useState("");
  const given = text.trim();
  const token = given.includes("#") ? tokenInFragment(given.slice(given.indexOf("#"))) : given;
  return (
    <main class="sign-in">
      <h1>Corral</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token) signIn(token);
        }}
      >
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={text}
          aria-describedby="token-error token-help"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <p id="token-error" class="sign-in-error" role="alert">
          {error}
        </p>
        <button type="submit" class="button button-primary" disabled={!token}>
          Sign in
        </button>
      </form>
      <p id="token-help" class="quiet">
        <code>corral serve</code> prints a link with a token. <code>corral serve token create --role decide</code> makes
        a token for another user. The token stays in this tab, and is forgotten when the tab is closed.
      </p>
    </main>
  );
}
