import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../../cli/cli-project.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { makeLargeFleet } from "../large-fleet.ts";
import { startService, type TestService } from "../service-client.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";
import { signedIn } from "./page.ts";

let project: CliProject;
let service: TestService;
let browser: Browser;
let fleet = "";

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: { version: 1 },
    workers: { extract: { image: "corral/base", command: ["true"] } },
  });
  fleet = await makeLargeFleet({ stateDir: project.stateDir, projectDir: project.dir });
  service = await startService(project);
  browser = await openBrowser();
});
afterAll(async () => {
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

/** The measures of the page itself: from a change of the filter to the frame that shows its items. */
async function measures(page: Page): Promise<number[]> {
  return (await page.evaluate(
    "performance.getEntriesByName('items shown').map(({ duration }) => duration)",
  )) as number[];
}

/** The page's own measure of what was done, in milliseconds. */
async function timed(page: Page, act: () => Promise<unknown>): Promise<number> {
  const before = (await measures(page)).length;
  await act();
  await expect.poll(async () => (await measures(page)).length, { interval: 20 }).toBeGreaterThan(before);
  return (await measures(page)).at(-1) ?? Number.NaN;
}

const ROUNDS = AT_LENGTH ? 3 : 1;
const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1] ?? Number.NaN;

/** The limits (a second to open, 150 ms to filter) are for a person to compare with what is printed: other work shares the machine. */
describe.skipIf(NO_CHROMIUM)(`a fleet of 100,000 items${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("is opened, filtered and searched, and the page measures how long that takes", async () => {
    const times: Record<string, number[]> = {};
    const note = (what: string, ms: number): void => {
      times[what] = [...(times[what] ?? []), ms];
    };
    for (let round = 0; round < ROUNDS; round += 1) {
      await using shown = await signedIn(browser, service);
      const { page } = shown;
      const list = page.getByRole("list", { name: "Items" }).getByRole("link");
      // From the beginning: the browser loads page, script and styles again.
      await page.goto(`http://127.0.0.1:${service.port}/#/fleets/${fleet}`);
      await page.reload();
      await list.first().waitFor();
      await expect.poll(async () => (await measures(page)).length).toBeGreaterThan(0);
      const opened =
        "performance.getEntriesByName('items shown').map(({ startTime, duration }) => startTime + duration)[0]";
      note("open", (await page.evaluate(opened)) as number);
      note("all items", await timed(page, () => page.getByLabel("Show").selectOption("all")));
      const search = page.getByLabel("Search items by key");
      note("search, found", await timed(page, () => search.fill("99999")));
      await expect.poll(() => list.count()).toBe(1);
      note("search, not found", await timed(page, () => search.fill("nothing has this")));
      note("search, cleared", await timed(page, () => search.fill("")));
      note("by status", await timed(page, () => page.getByLabel("Show").selectOption("oom_killed")));
      note("by cause", await timed(page, () => page.getByRole("button", { name: /cannot parse the date/ }).click()));
      expect(shown.troubles).toEqual([]);
    }
    const lines = Object.entries(times).map(([what, list]) => `${what}: ${Math.round(median(list))} ms`);
    process.stderr.write(`a fleet of 100,000 items in Chromium: ${lines.join(", ")}\n`);
    for (const [what, list] of Object.entries(times)) expect(list.filter(Number.isFinite), what).toHaveLength(ROUNDS);
  });

  it("is scrolled to its end, and only what is in sight is drawn", async () => {
    await using shown = await signedIn(browser, service);
    const { page } = shown;
    await shown.go(`#/fleets/${fleet}?show=all`);
    const list = page.getByRole("list", { name: "Items" });
    await list.getByRole("link").first().waitFor();
    await list.evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await list.getByRole("link", { name: /099999-invoice/ }).waitFor();
    expect(await list.getByRole("listitem").count()).toBeLessThan(100);
  });
});
