import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serverPrograms } from "../../fleet/postgres/server-fixture.ts";
import { type QueueService, queueService } from "../queue-service.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";
import { accessibilityFaults, overflow, signedIn } from "./page.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

const IS_POSSIBLE = !NO_CHROMIUM && serverPrograms() !== null;
/** A machine calls itself as it likes. */
const HOSTILE = `<img src=x onerror=alert(1)>${"long-".repeat(12)}`;
let at: QueueService;
let browser: Browser;
let fleet = "";

beforeAll(async () => {
  if (!IS_POSSIBLE) return;
  at = await queueService();
  await at.join("alpha", "--concurrency", "2", "--label", "gpu");
  await at.join(HOSTILE, "--concurrency", "1");
  const items = ["a", "b"].map((key) => ({ key }));
  const body = { worker: "long", items, template: { key: "{key}" }, concurrency: 0, machines: { needs: ["gpu"] } };
  fleet = (await at.service.ask("POST", "/v1/fleets", { body })).json.fleet;
  browser = await openBrowser();
}, 90_000);
afterAll(async () => {
  await browser?.close();
  await at?.[Symbol.asyncDispose]();
});

describe.skipIf(!IS_POSSIBLE)("machines on the page", () => {
  it.each([
    { theme: "light", width: 1400 },
    { theme: "dark", width: 390 },
  ] as const)("are shown with what each runs, at $width px", async ({ theme, width }) => {
    await using shown = await signedIn(browser, at.service, { theme, width });
    const { page, troubles } = shown;
    const fits = async (name: string): Promise<void> => {
      const to = process.env.CORRAL_SCREENSHOTS;
      if (to !== undefined) await page.screenshot({ path: `${to}/${name}-${theme}-${width}.png`, fullPage: true });
      expect(await accessibilityFaults(page)).toEqual([]);
      expect(await overflow(page)).toBeLessThanOrEqual(0);
    };
    await shown.go(`#/fleets/${fleet}?show=all`);
    const machines = page.getByRole("table", { name: "Machines" });
    await machines.getByText("2 of 2").waitFor();
    await page.getByText("2 items on 1 of 2 machines. They need gpu.").waitFor();
    await machines.getByText("Takes none: it lacks the label gpu").waitFor();
    const items = page.getByRole("list", { name: "Items" }).getByRole("link");
    await expect.poll(() => items.count()).toBe(2);
    expect(await items.first().textContent()).toContain("alpha");
    await fits("fleet");
    await items.first().click();
    await page.getByRole("dialog").getByText("on alpha").waitFor();
    // The browser reports the end of a dialog later: who has gone to another place meanwhile stays there.
    await page.evaluate(() => {
      const dialog = window.document.querySelector("dialog");
      window.location.hash = "#/machine";
      dialog.dispatchEvent(new window.Event("close"));
    });
    await page.getByText("2 machines: 2 of 3 slots in use.").waitFor();
    await page.getByRole("table", { name: "Machines" }).getByRole("link", { name: fleet }).first().waitFor();
    await fits("machine");
    expect(troubles).toEqual([]);
  });
});
