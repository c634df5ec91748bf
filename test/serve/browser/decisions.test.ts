import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { startService, type TestService } from "../service-client.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";
import { signedIn, type TestPage } from "./page.ts";

let project: CliProject;
let service: TestService;
let browser: Browser;
/** Of the first user, for tests that need no profile of their own, which takes several times as long as a page. */
let tab: TestPage;

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { docs: { root: "docs", mode: "ro" }, out: { root: "out", mode: "rw", stage: true } } },
      approval: { mode: "interactive", timeout: "5m" },
    },
    workers: {
      asks: { image: "corral/base", command: sh("echo asked >> /out/asked.txt"), sandbox: { inherit: true } },
      writer: {
        image: "corral/base",
        command: sh("echo one >> /out/one.txt; echo two >> /out/two.txt; exit 3"),
        sandbox: { inherit: true },
      },
      slow: {
        image: "corral/base",
        command: sh("i=0; while true; do printf '\\033[31mtick\\033[0m %d\\n' $i; i=$((i+1)); sleep 0.2; done"),
      },
      given: { image: "corral/base", command: sh("cat; echo; cat /attachments/*"), attachments: {} },
      caller: {
        image: "corral/base",
        command: sh("corral-call callee; corral-call nobody; true"),
        sandbox: { inherit: true },
        calls: ["callee"],
        limits: { memory: "256m" },
      },
      callee: {
        image: "corral/base",
        command: ["true"],
        sandbox: { allow_read: ["/docs"] },
        limits: { memory: "64m" },
      },
    },
    files: { "docs/a.txt": "a document\n" },
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

const started = async (worker: string): Promise<string> =>
  (await service.ask("POST", "/v1/runs", { body: { worker } })).json.run;
const statusOf = async (run: string): Promise<string> => (await service.ask("GET", `/v1/runs/${run}`)).json.status;
const waiting = async (): Promise<{ id: string; digest: string }[]> =>
  (await service.ask("GET", "/v1/approvals")).json.approvals;
/** As long as the page takes no key for a question that has only just appeared. */
const settle = ({ page }: TestPage): Promise<void> => page.waitForTimeout(700);

async function tokenWith(role: string): Promise<string> {
  const { stdout } = await project.corral(["serve", "token", "create", "--name", role, "--role", role]);
  return stdout.trim();
}

describe.skipIf(NO_CHROMIUM)(`decisions in the page${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("are for all runs that ask the same, which the page names", async () => {
    const runs = [await started("asks"), await started("asks")];
    const both = async () => (await service.ask("GET", "/v1/approvals")).json.approvals[0]?.question.runs;
    await expect.poll(both, { timeout: 30_000 }).toBe(2);
    await tab.anew();
    await tab.page.keyboard.press("g");
    await tab.page.keyboard.press("i");
    const named = tab.page.locator(".waiting-runs");
    await named.getByText("2 runs wait for this, and an answer is for all of them").waitFor();
    expect((await named.locator("code").allTextContents()).toSorted()).toEqual(runs.toSorted());
    await settle(tab);
    await tab.page.getByRole("button", { name: "Deny" }).click();
    await expect
      .poll(async () => await Promise.all(runs.map(statusOf)), { timeout: 30_000 })
      .toEqual(["denied", "denied"]);
  });

  it("are made by keyboard, on exactly what was shown, and are in the history with who made them", async () => {
    const run = await started("asks");
    await expect.poll(waiting).toHaveLength(1);
    const [{ digest = "" } = {}] = await waiting();
    await tab.anew();
    const { page } = tab;
    const sent = page.waitForRequest((request) => request.url().endsWith("/decision"));
    // From the overview, without a mouse.
    await page.getByText("to decide").waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("i");
    await page.getByRole("heading", { name: "asks asks to write /out/asked.txt" }).waitFor();
    await expect.poll(() => page.locator(".diff-added .diff-text").allTextContents()).toEqual(["asked"]);
    expect(await page.title()).toContain("(1)");
    await settle(tab);
    await page.keyboard.press("a");
    expect((await sent).postDataJSON()).toEqual({ answer: "once", digest });
    await expect.poll(() => statusOf(run)).toBe("succeeded");
    await page.getByText("Nothing waits for a decision.").waitFor();
    await page.keyboard.press("h");
    await page.locator(".questions").getByText("by first").first().waitFor();
    expect(tab.troubles).toEqual([]);
  });

  it("begin with a run that the page itself starts, with an input and a file; a reader is not offered that", async () => {
    await tab.anew();
    const { page } = tab;
    const [{ name }] = (await service.ask("GET", "/v1/projects")).json.projects;
    await tab.go(`#/workers/${name}/given`);
    await page.getByText("Run it").click();
    await page.getByLabel("Input, as JSON or as text").fill('{"a": ');
    await page.getByText("This begins as JSON, but is none").waitFor();
    expect(await page.getByRole("button", { name: "Run", exact: true }).isDisabled()).toBe(true);
    await page.getByLabel("Input, as JSON or as text").fill('{"a": 1}');
    const content = Buffer.from("the content\n");
    await page.getByLabel(/Files/).setInputFiles({ name: "a file.txt", mimeType: "text/plain", buffer: content });
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText('{"a":1}').first().waitFor();
    await page.getByText("the content").first().waitFor();
    await page.getByText("/attachments/a file.txt").waitFor();
    expect(tab.troubles).toEqual([]);
    await using reader = await signedIn(browser, service, { token: await tokenWith("read") });
    await reader.go(`#/workers/${name}/given`);
    await reader.page.locator("article.cell").waitFor();
    expect(await reader.page.getByText("Run it").count()).toBe(0);
  });

  it("are asked for by a notification of the browser while the page is not seen", async () => {
    await using tab = await signedIn(browser, service);
    const { page, context } = tab;
    await context.grantPermissions(["notifications"]);
    // The browser's own, which also notes what it was told; and a page behind others, which no test can put there.
    await page.addInitScript(`{
      const Own = Notification;
      globalThis.told = [];
      globalThis.Notification = class extends Own {
        constructor(title, options) {
          super(title, options);
          told.push({ title, ...options, notification: this });
        }
      };
    }`);
    await page.clock.install();
    await tab.anew();
    const told = (): Promise<{ title: string; body: string; tag: string }[]> =>
      page.evaluate("told.map(({ title, body, tag }) => ({ title, body, tag }))");
    await page.getByRole("button", { name: /otif/ }).click();
    await page.getByRole("button", { name: /otif/, pressed: true }).waitFor();
    const hide = (isHidden: boolean): Promise<unknown> =>
      page.evaluate(`Object.defineProperty(document, "hidden", { get: () => ${isHidden}, configurable: true }); null`);
    await hide(true);
    const run = await started("asks");
    await expect.poll(waiting).toHaveLength(1);
    const [{ id = "" } = {}] = await waiting();
    const forwarded = async (): Promise<number> => {
      await page.clock.runFor(11_000);
      return (await told()).length;
    };
    await expect.poll(forwarded).toBe(1);
    const [{ title, body, tag } = { title: "", body: "", tag: "" }] = await told();
    expect([title, tag]).toEqual(["Corral: a question waits", `corral-${id}`]);
    // Names alone: the system shows it outside of the page.
    expect(body).toMatch(/^asks of \S+ asks\.$/);
    // Once for a question.
    await forwarded();
    expect(await told()).toHaveLength(1);
    await page.evaluate("told[0].notification.onclick(); null");
    await hide(false);
    await page.getByRole("heading", { name: /asks asks to write/ }).waitFor();
    await service.ask("DELETE", `/v1/runs/${run}`);
  });

  it("that another made first are not made again: the page says who was faster", async () => {
    const run = await started("asks");
    await expect.poll(waiting).toHaveLength(1);
    const [question] = await waiting();
    await using tab = await signedIn(browser, service);
    await tab.go("#/inbox");
    await tab.page.getByRole("heading", { name: /asks asks to/ }).waitFor();
    await settle(tab);
    // The page learns of nothing until it has asked.
    await tab.page.route(
      "**/v1/approvals?state=waiting",
      (route) => void setTimeout(() => void route.continue().catch(() => {}), 4000),
    );
    const token = await tokenWith("decide");
    const body = { answer: "no", digest: question?.digest };
    expect((await service.ask("POST", `/v1/approvals/${question?.id}/decision`, { body, token })).status).toBe(200);
    await tab.page.keyboard.press("a");
    await tab.page.getByText("decide was faster: denied.").waitFor();
    await expect.poll(() => statusOf(run)).not.toBe("running");
    expect(await statusOf(run)).not.toBe("succeeded");
  });

  it("are not offered to a token that may only read, by no button and by no key", async () => {
    const run = await started("asks");
    await expect.poll(waiting).toHaveLength(1);
    await using tab = await signedIn(browser, service, { token: await tokenWith("read") });
    await tab.go("#/inbox");
    await tab.page.getByText("This token may not decide.").waitFor();
    await settle(tab);
    for (const key of ["a", "t", "x"]) await tab.page.keyboard.press(key);
    expect(await tab.page.getByRole("button", { name: /Allow|Deny/ }).count()).toBe(0);
    await tab.go(`#/runs/${run}`);
    await tab.page.getByRole("heading", { name: /asks/ }).waitFor();
    expect(await tab.page.getByRole("button", { name: /Stop/ }).count()).toBe(0);
    expect(await waiting()).toHaveLength(1);
    await service.ask("DELETE", `/v1/runs/${run}`);
  });
});

describe.skipIf(NO_CHROMIUM)(`a changeset in the page${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("is applied without the file that was left out, and the rest is discarded", async () => {
    const run = await started("writer");
    const { json } = await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
    expect([json.status, json.error?.code]).toEqual(["failed", "FAILED"]);
    await tab.anew();
    const { page } = tab;
    await tab.go(`#/changesets/${run}`);
    await page.getByText("/out/one.txt").first().waitFor();
    await page.keyboard.press("j");
    // As soon as the page says what it would apply, it applies nothing else.
    await page.evaluate(`{
      const look = new MutationObserver(() => {
        if (!document.body.textContent?.includes("Apply 1 of 2")) return;
        look.disconnect();
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true, cancelable: true }));
      });
      look.observe(document.body, { childList: true, subtree: true, characterData: true });
    }`);
    await page.keyboard.press("e");
    await page.getByText("1 applied; 1 still wait.").waitFor();
    expect(await readFile(join(project.dir, "out/two.txt"), "utf8")).toBe("two\n");
    await expect(readFile(join(project.dir, "out/one.txt"))).rejects.toThrow("ENOENT");
    await expect.poll(() => page.locator(".change").count()).toBe(1);
    await page.keyboard.press("x");
    await page.getByRole("button", { name: "Discard them" }).click();
    await page.getByText("The changeset was discarded.").waitFor();
    expect((await service.ask("GET", `/v1/changesets/${run}`)).status).toBe(404);
    expect(tab.troubles).toEqual([]);
  });

  it("is applied without what could not be applied when it was shown, and can be meanwhile", async () => {
    const one = join(project.dir, "out/one.txt");
    for (const name of ["one", "two"]) await rm(join(project.dir, `out/${name}.txt`), { force: true });
    const run = await started("writer");
    await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
    await writeFile(one, "the user's own\n");
    await tab.anew();
    await tab.go(`#/changesets/${run}`);
    await tab.page.getByRole("button", { name: "Apply all" }).waitFor();
    await tab.page.getByText("conflict").first().waitFor();
    await rm(one);
    await tab.page.keyboard.press("a");
    await tab.page.getByText("1 applied; 1 still wait.").waitFor();
    await expect(readFile(one)).rejects.toThrow("ENOENT");
    const { digest } = (await service.ask("GET", `/v1/changesets/${run}`)).json;
    await service.ask("POST", `/v1/changesets/${run}/discard`, { body: { digest } });
  });

  it("of which another has applied a part is applied as far as it is left", async () => {
    const run = await started("writer");
    const { json } = await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
    expect([json.status, json.error?.code]).toEqual(["failed", "FAILED"]);
    await tab.anew();
    await tab.go(`#/changesets/${run}`);
    await tab.page.getByRole("button", { name: "Apply all" }).waitFor();
    const { digest, changes } = (await service.ask("GET", `/v1/changesets/${run}`)).json;
    const body = { digest, which: [changes[0].index] };
    expect((await service.ask("POST", `/v1/changesets/${run}/apply`, { body })).json.left).toBe(changes.length - 1);
    await tab.page.keyboard.press("a");
    await tab.page.getByText(/^1 applied\.$/).waitFor();
    expect((await service.ask("GET", `/v1/changesets/${run}`)).status).toBe(404);
  });
});

describe.skipIf(NO_CHROMIUM)(`a run in the page${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("shows its output while it prints, and is stopped", async () => {
    const run = await started("slow");
    await tab.anew();
    const { page } = tab;
    await tab.go(`#/runs/${run}`);
    await page.getByText("tick").first().waitFor();
    const count = async (): Promise<number> => page.locator(".terminal-line").count();
    const before = await count();
    await expect.poll(count).toBeGreaterThan(before + 3);
    expect(await page.locator(".ink-1").first().textContent()).toBe("tick");
    await page.keyboard.press("s");
    await page.getByRole("button", { name: "Stop it" }).click();
    await page.getByRole("heading", { name: /cancelled/ }).waitFor();
    expect(await statusOf(run)).toBe("cancelled");
    expect(tab.troubles).toEqual([]);
  });

  it("shows who narrowed what, and what was refused and why", async () => {
    const run = await started("caller");
    await expect.poll(() => statusOf(run)).toBe("succeeded");
    await using tab = await signedIn(browser, service, { width: 390 });
    await tab.go(`#/runs/${run}`);
    const [listed] = (await service.ask("GET", "/v1/runs?worker=caller&limit=1&calls=false")).json.runs;
    expect(listed).toMatchObject({ id: run, callCount: 2, calls: [] });
    const row = tab.page.locator(".call-row", { has: tab.page.getByText("callee", { exact: true }) });
    await row.waitFor();
    expect(await row.locator(".chip-lost").allTextContents()).toEqual(["not: /out rw"]);
    expect(await row.locator(".chip-narrowed").allTextContents()).toEqual(["↓ memory 64 MiB"]);
    expect(
      await tab.page.locator(".call-row", { has: tab.page.getByText("nobody", { exact: true }) }).textContent(),
    ).toContain("never started");
    expect(tab.troubles).toEqual([]);
  });
});

describe.skipIf(NO_CHROMIUM)(`signing in${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("takes the token out of the address, keeps it in the tab alone, and forgets it", async () => {
    await using tab = await signedIn(browser, service);
    const { page, context } = tab;
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    expect(page.url()).not.toContain("token");
    expect(await context.cookies()).toEqual([]);
    expect(await page.evaluate("localStorage.length")).toBe(0);
    const other = await context.newPage();
    await other.goto(`http://127.0.0.1:${service.port}/`);
    await other.getByLabel("Token").fill("corral_wrong");
    await other.keyboard.press("Enter");
    await other.getByText("The service does not know this token").waitFor();
    await other.getByLabel("Token").fill(`http://127.0.0.1/#token=${service.token}`);
    await other.keyboard.press("Enter");
    await other.getByRole("heading", { name: "Overview" }).waitFor();
    await other.getByRole("button", { name: "Sign out" }).click();
    await other.getByLabel("Token").waitFor();
    expect(await other.evaluate("sessionStorage.length")).toBe(0);
  });
});
