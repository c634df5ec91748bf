import { createContext } from "preact";
import { useContext, useLayoutEffect } from "preact/hooks";
import type { ServiceClient } from "../../../client/client.ts";
import type { AnswerOf } from "../../../operations/contract/table.ts";
import type { Shortcut, Shortcuts } from "../keyboard/shortcuts.ts";

type Caller = AnswerOf<"host.caller">;

export type CallerRole = Caller["roles"][number];

/** What every page uses. */
export interface App {
  readonly client: ServiceClient;
  readonly caller: Caller;
  readonly shortcuts: Shortcuts;
  /** Says something for some seconds, also to screen readers. */
  readonly notify: (text: string, tone?: "good" | "bad") => void;
  readonly showHelp: () => void;
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
