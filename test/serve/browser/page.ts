import axe, { type AxeResults } from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import type { TestService } from "../service-client.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

export const THEMES = ["light", "dark"] as const;
export const WIDTHS = [1280, 390] as const;

export interface Look {
  readonly theme?: (typeof THEMES)[number];
  readonly width?: number;
  /** Used with a finger. */
  readonly isTouched?: boolean;
}

/** A page of the service, signed in, in a profile of its own. */
export interface TestPage extends AsyncDisposable {
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the browser refused or reported: violations of the policy, errors of scripts, files that were not there. */
  readonly troubles: readonly string[];
  /** Goes to a page of the page, such as `#/fleets`. */
  go(place: string): Promise<void>;
  /** Loads the page anew, with nothing left of what was shown and reported. A new profile takes several times as long. */
  anew(): Promise<void>;
}

/** Signs in with a link as `corral serve` prints it. `token`: absent, that of the admin. */
export async function signedIn(
  browser: Browser,
  service: Pick<TestService, "port" | "token">,
  { theme = "light", width = 1280, isTouched = false, token = service.token }: Look & { readonly token?: string } = {},
): Promise<TestPage> {
  const context = await browser.newContext({
    viewport: { width, height: width < 600 ? 844 : 800 },
    colorScheme: theme,
    reducedMotion: "reduce",
    hasTouch: isTouched,
    isMobile: isTouched,
    deviceScaleFactor: 1,
  });
  const page = await context.newPage();
  const troubles = watched(page);
  const load = async (): Promise<void> => {
    await page.goto(`http://127.0.0.1:${service.port}/#token=${token}`);
    await page.getByRole("main").waitFor();
  };
  await load();
  return {
    page,
    context,
    troubles,
    go: async (place) => {
      await page.evaluate((hash) => (window.location.hash = hash), place);
      await page.getByRole("main").waitFor();
    },
    async anew() {
      await page.goto("about:blank");
      troubles.length = 0;
      await load();
    },
    [Symbol.asyncDispose]: () => context.close(),
  };
}

/** All that a page reports from now on. */
export function watched(page: Page): string[] {
  const troubles: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) troubles.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("dialog", (dialog) => {
    troubles.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return troubles;
}

/** Serious and critical violations of the rules for accessible pages, each with the first element that has it. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // By the debugger: the policy of the page would refuse such a script.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(`${axe.source}; undefined`);
  const results = (await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")) as AxeResults;
  return results.violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(
      ({ id, help, nodes }) =>
        `${id}: ${help}: ${nodes.length} × ${nodes[0]?.html.slice(0, 200)} ${nodes[0]?.failureSummary ?? ""}`,
    );
}

/** How far the page is wider than its window, in pixels. */
export async function overflow(page: Page): Promise<number> {
  return await page.evaluate(() => {
    const { scrollWidth, clientWidth } = window.document.documentElement;
    return scrollWidth - clientWidth;
  });
}
