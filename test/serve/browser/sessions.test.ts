import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../../cli/cli-project.ts";
import { startService, type TestService } from "../service-client.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";
import { accessibilityFaults, overflow, signedIn, type TestPage } from "./page.ts";

let project: CliProject;
let service: TestService;
let browser: Browser;
let tab: TestPage;

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { docs: { root: "docs", mode: "ro" }, out: { root: "out", mode: "rw", stage: true } } },
      policy: "default",
    },
    workers: {
      desk: {
        image: "corral/base",
        command: ["true"],
        sandbox: { inherit: true, approval: "pre_approved" },
        shell_rules: { default: "pre_approved" },
        ports: { web: 8000 },
      },
    },
    files: { "docs/page.html": "<script>document.title = 'taken'</script>\n" },
    folders: ["out"],
  });
  service = await startService(project);
  browser = await openBrowser();
  tab = await signedIn(browser, service);
});
afterAll(async () => {
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const WAIT = { timeout: 60_000 };

describe.skipIf(NO_CHROMIUM)(`a session in the page${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("runs commands, has a terminal and files, pauses, and ends with its changes", { timeout: 240_000 }, async () => {
    const { page, troubles } = tab;
    await tab.go("#/sessions");
    await page.getByText("No session is open.").waitFor();
    await page.getByRole("button", { name: "Open a session" }).click();
    await page.getByRole("heading", { name: "desk" }).waitFor(WAIT);

    const line = page.getByRole("textbox", { name: "Command" });
    const output = page.getByRole("log", { name: "What it prints" });
    await line.fill("printf '\\033[31mred\\033[0m\\n<b>bold</b>\\n'; echo one > /out/one.txt; read -r end");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await output.getByText("<b>bold</b>").waitFor(WAIT);
    await line.fill("sleep 4781");
    await line.press("Enter");
    const commands = page.getByRole("table", { name: "Commands" });
    await commands.getByRole("row").nth(2).waitFor(WAIT);
    await page.getByRole("button", { name: "Kill" }).click();
    await commands.getByText("SIGKILL").waitFor(WAIT);

    await page.getByRole("button", { name: "Open a terminal" }).click();
    const screen = page.getByRole("log", { name: "The screen of the terminal" });
    const keys = page.getByRole("textbox", { name: /^Keys for the terminal/ });
    await screen.getByText("$", { exact: false }).first().waitFor(WAIT);
    await keys.pressSequentially("echo a$((40+2))b; tput cols");
    await page.keyboard.press("Enter");
    await screen.getByText("a42b").waitFor(WAIT);
    // A screen that a program draws anew, and what would set a title elsewhere.
    await keys.pressSequentially("printf '\\033[2J\\033[H\\033]0;taken\\007top'; sleep 4782");
    await page.keyboard.press("Enter");
    await expect.poll(() => screen.textContent(), WAIT).toMatch(/^\s*top\s*$/);
    await page.keyboard.press("Control+c");
    await expect.poll(() => screen.textContent(), WAIT).toMatch(/top\^C.*\$/);
    expect(await page.title()).not.toContain("taken");
    await page.keyboard.press("Shift+Tab");
    expect(await keys.evaluate((field) => field === field.ownerDocument.activeElement)).toBe(false);

    const ports = page.getByRole("table", { name: "Ports" }).getByRole("row");
    await ports.filter({ hasText: /8000.*web.*nothing listens/s }).waitFor(WAIT);
    await line.fill(
      "mkdir /tmp/w; echo 'seen <i>at</i> a port' > /tmp/w/index.html; busybox httpd -f -p 8000 -h /tmp/w & busybox httpd -f -p 8001",
    );
    await line.press("Enter");
    await ports.filter({ hasText: /8001.*not declared/s }).waitFor(WAIT);
    const opened = tab.context.waitForEvent("page");
    await ports.filter({ hasText: "8000" }).getByRole("button", { name: "Open in a new tab" }).click();
    const shown = await opened;
    await shown.getByText("seen at a port").waitFor(WAIT);
    expect(new URL(shown.url()).hostname).toMatch(/^p\w+\.localhost$/);
    expect(await shown.evaluate("String(window.opener) + document.referrer")).toBe("null");
    await shown.close();

    const files = page.getByRole("table", { name: "Files" });
    await files.getByRole("link", { name: "docs/" }).click();
    const saved = page.waitForEvent("download");
    await files.getByRole("button", { name: "Save page.html" }).click();
    expect(await readFile(await (await saved).path(), "utf8")).toContain("<script>");
    await page.getByRole("link", { name: "up" }).click();
    await files.getByRole("link", { name: "out/" }).click();
    await page
      .getByLabel("Send files here")
      .setInputFiles({ name: "up.bin", mimeType: "x/y", buffer: Buffer.from([0, 255]) });
    await files.getByText("up.bin").waitFor(WAIT);

    await page.getByRole("textbox", { name: "Name of a snapshot" }).fill("kept");
    await page.getByRole("button", { name: "Take a snapshot" }).click();
    const snapshots = page.getByRole("table", { name: "Snapshots" }).getByRole("row").filter({ hasText: "kept" });
    await snapshots.filter({ hasText: "this" }).waitFor(WAIT);
    await page
      .getByLabel("Send files here")
      .setInputFiles({ name: "later.bin", mimeType: "x/y", buffer: Buffer.from([1]) });
    await files.getByText("later.bin").waitFor(WAIT);
    await snapshots.getByRole("button", { name: "Restore" }).click();
    await page.getByRole("button", { name: "Restore it" }).click();
    await page.getByText("shows what the snapshot has").waitFor(WAIT);
    await page.getByRole("button", { name: "Look again" }).click();
    await files.getByText("later.bin").waitFor({ state: "detached", ...WAIT });
    const first = page.url();
    await snapshots.getByRole("button", { name: "Fork" }).click();
    await snapshots.filter({ hasText: "this" }).waitFor({ state: "detached", ...WAIT });
    await files.getByRole("link", { name: "out/" }).click();
    await files.getByText("up.bin").waitFor(WAIT);
    await page.goto(first);

    for (const look of [{ theme: "dark", width: 390 }, { theme: "light" }] as const) {
      await using other = await signedIn(browser, service, look);
      const [place] = page.url().split("?");
      const shown = await commands.getByRole("link", { name: /terminal/ }).getAttribute("href");
      for (const to of ["#/sessions", new URL(place ?? "").hash, shown ?? ""]) {
        await other.go(to);
        await other.page
          .getByRole("link", { name: /desk|terminal/ })
          .first()
          .waitFor(WAIT);
        expect(await accessibilityFaults(other.page), to).toEqual([]);
        expect(await overflow(other.page), to).toBeLessThanOrEqual(0);
      }
      await expect.poll(() => other.page.getByRole("log").textContent(), WAIT).toMatch(/top/);
      expect(other.troubles).toEqual([]);
    }

    await page.getByRole("button", { name: /^Pause/ }).click();
    await page.getByText("paused").first().waitFor(WAIT);
    await page.getByRole("button", { name: /^Resume/ }).click();
    await page
      .getByText("paused")
      .first()
      .waitFor({ state: "detached", ...WAIT });
    await page.getByRole("button", { name: /^Stop/ }).click();
    await page.getByRole("button", { name: "Stop it" }).click();
    await page.getByRole("heading", { name: "The session of desk has ended" }).waitFor(WAIT);
    expect(await page.getByRole("listitem").filter({ hasText: "/out/" }).allInnerTexts()).toEqual([
      expect.stringMatching(/applied[\s\S]*\/out\/one\.txt/),
      expect.stringMatching(/applied[\s\S]*\/out\/up\.bin/),
    ]);
    expect(await readFile(join(project.dir, "out/up.bin"))).toEqual(Buffer.from([0, 255]));
    expect(troubles).toEqual([]);
  });
});
