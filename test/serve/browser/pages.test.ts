import { execFileSync } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { makeLargeFleet } from "../large-fleet.ts";
import { startService, type TestService } from "../service-client.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";
import { accessibilityFaults, overflow, signedIn, type TestPage, THEMES, WIDTHS } from "./page.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

let project: CliProject;
let service: TestService;
let browser: Browser;
/** For tests that need no profile of their own, which takes several times as long as a page. */
let shown: TestPage;
let [run, ended, stopped, name] = ["", "", "", ""];

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { in: { root: "in", mode: "ro" }, out: { root: "out", mode: "rw", stage: true } } },
    },
    workers: {
      lines: { image: "corral/base", command: ["wc", "-l"], description: "Counts lines" },
      caller: {
        image: "corral/base",
        command: sh("corral-call lines --input x; echo done"),
        sandbox: { allow_read: ["/in"] },
        calls: ["lines"],
      },
      fails: {
        image: "corral/base",
        command: sh("echo some output; read -r x; echo cannot read it >&2; case $x in *bad*) exit 1;; esac"),
      },
      writer: { image: "corral/base", command: sh("echo new > /out/new.txt; exit 3"), sandbox: { inherit: true } },
    },
    folders: ["in", "out"],
  });
  const place = { stateDir: project.stateDir, projectDir: project.dir };
  ended = await makeLargeFleet(place, { items: 300, worker: "lines" });
  stopped = await makeLargeFleet(place, { items: 300, settled: 120, worker: "lines" });
  service = await startService(project);
  browser = await openBrowser();
  shown = await signedIn(browser, service);
  name = (await service.ask("GET", "/v1/projects")).json.projects[0].name;
  for (const worker of ["caller", "writer"]) {
    run = (await service.ask("POST", "/v1/runs", { body: { worker } })).json.run;
    await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
  }
});
afterAll(async () => {
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

/** Every page, and those that show one thing. */
const places = (): string[] => [
  "#/",
  "#/runs",
  `#/runs/${run}`,
  "#/inbox",
  "#/fleets",
  `#/fleets/${ended}`,
  `#/fleets/${ended}?key=inbox%2F2024%2F000007-invoice.pdf`,
  `#/fleets/${stopped}?show=all`,
  "#/changesets",
  `#/changesets/${run}`,
  "#/workers",
  `#/workers/${name}/caller`,
  "#/sessions",
  "#/convert",
  "#/jobs",
  "#/audit",
  "#/machine",
  "#/nothing",
];

/** Until nothing is being loaded. */
async function settled({ page }: TestPage): Promise<void> {
  await page.waitForLoadState("networkidle").catch(() => {});
  await expect.poll(() => page.locator(".loading").count()).toBe(0);
}

/** Each theme and each width once: how wide something is does not depend on its colours. At length, both with both. */
const LOOKS = THEMES.flatMap((theme) => WIDTHS.map((width) => ({ theme, width }))).filter(
  ({ theme, width }) => AT_LENGTH || (theme === "light") === (width === 1280),
);

describe.skipIf(NO_CHROMIUM)(`the page in a browser${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it.each(LOOKS)(
    "is accessible, fits its window, and breaks none of its own rules: $theme, $width px",
    { timeout: 240_000 },
    async ({ theme, width }) => {
      await using shown = await signedIn(browser, service, { theme, width });
      for (const place of places()) {
        await shown.go(place);
        await settled(shown);
        expect(await accessibilityFaults(shown.page), place).toEqual([]);
        expect(await overflow(shown.page), place).toBeLessThanOrEqual(0);
      }
      expect(shown.troubles).toEqual([]);
    },
  );

  it("shows what failed first, by cause, and finds items by their keys", async () => {
    await shown.anew();
    const { page } = shown;
    await shown.go(`#/fleets/${ended}`);
    const causes = page.getByRole("heading", { name: "9 failures by cause" });
    await causes.waitFor();
    const items = page.getByRole("list", { name: "Items" }).getByRole("link");
    await expect.poll(() => items.count()).toBe(9);
    await page.getByRole("button", { name: /no text layer/ }).click();
    await expect.poll(() => items.count()).toBe(6);
    expect(await page.getByRole("button", { name: /no text layer/ }).getAttribute("aria-pressed")).toBe("true");
    await page.getByLabel("Show").selectOption("all");
    await page.getByText("300 items").waitFor();
    await page.getByLabel("Search items by key").fill("/00012");
    await expect.poll(() => items.count()).toBe(10);
    expect(await items.first().textContent()).toContain("inbox/2024/000120-invoice.pdf");
    // The address has the filter, so that it can be kept and sent.
    await expect.poll(() => page.url()).toContain("search=%2F00012");
    await page.reload();
    await expect.poll(() => items.count()).toBe(10);
  });

  it("converts what is dropped on it, says what became of each file, and saves what was made as a file to save", async () => {
    await shown.anew();
    const { page } = shown;
    await shown.go("#/convert");
    const content = "<!doctype html><html><body><p>Words</p><script>top.taken = 1</script></body></html>";
    const dropped = await page.evaluateHandle((html) => {
      const transfer = new window.DataTransfer();
      transfer.items.add(new File([html], "page.html"));
      transfer.items.add(new File(["%PDF-1.4\n"], "broken.pdf"));
      transfer.items.add(new File(["P1 1 1 0"], "picture.pbm"));
      return transfer;
    }, content);
    await page.locator(".drop").dispatchEvent("drop", { dataTransfer: dropped });
    await page.getByText("broken.pdf").waitFor();
    await page.getByLabel("Make").selectOption("text");
    await page.getByRole("button", { name: "Convert" }).click();
    await page.getByText("1 done, 2 not possible, 0 refused").waitFor({ timeout: 60_000 });
    await page.getByText("not possible: damaged").waitFor();
    // It has no options: what to do is a field of its form.
    await page.getByText("choose a language in “Read pictures in”").waitFor();
    expect(await page.locator(".page-head .badge-good").count()).toBe(0);
    const widths = page.locator("th").evaluateAll((all) => all.map((one) => one.clientWidth));
    expect(Math.min(...(await widths))).toBeGreaterThan(40);
    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await overflow(page)).toBeLessThanOrEqual(0);
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "text.txt" }).click();
    const saved = await saving;
    expect(saved.suggestedFilename()).toBe("text.txt");
    expect(await readFile(await saved.path(), "utf8")).toContain("Words");
    // Also by its own address it is only saved: nothing of it is shown in this place.
    const [, id] = /#\/convert\/([0-9a-f]{12})/.exec(page.url()) ?? [];
    const { headers } = await service.ask("GET", `/v1/conversions/${id}/file?path=report.html`);
    expect(headers["content-disposition"]).toContain("attachment");
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByText("Nothing was converted yet.").waitFor();
    expect(shown.troubles).toEqual([]);
  });

  it("paints no fleet with failures green, and names item, fleet and cause of changes that wait, decided at once", async () => {
    const body = { worker: "writer", items: [{ key: "letter 1" }, { key: "letter 2" }], template: { key: "{key}" } };
    const { fleet } = (await service.ask("POST", "/v1/fleets", { body })).json;
    await shown.anew();
    const { page } = shown;
    await shown.go("#/fleets");
    const row = page.getByRole("table", { name: "Fleets" }).getByRole("row").filter({ hasText: ended });
    expect(await row.locator(".badge").textContent()).toContain("done, with failures");
    expect(await row.locator(".badge-good").count()).toBe(0);
    expect(await row.locator("progress.with-failures").count()).toBe(1);
    const sound = page.getByRole("row").filter({ has: page.locator("progress:not(.with-failures)") });
    expect(await sound.filter({ hasText: "failed" }).count()).toBe(0);
    await expect.poll(async () => (await service.ask("GET", `/v1/fleets/${fleet}`)).json.state).toBe("done");
    await shown.go("#/changesets");
    const changes = page.getByRole("table", { name: "Changesets" }).getByRole("row").filter({ hasText: "letter 1" });
    await changes.waitFor();
    expect(await changes.getByRole("link", { name: "letter 1" }).getAttribute("href")).toContain(fleet);
    expect(await changes.textContent()).toMatch(/failed/);
    // As high as its words need, and no column of single letters.
    expect((await changes.boundingBox())?.height).toBeLessThan(80);
    const held = Promise.withResolvers<void>();
    await page.route("**/discard", async (route) => {
      await held.promise;
      await route.continue();
    });
    const group = page.locator(".changeset-groups li").filter({ hasText: fleet });
    await group.getByRole("button", { name: "Discard all" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Discard all" }).click();
    await page.getByText("Discarding 1 of 2").waitFor();
    expect(await group.getByRole("button", { disabled: true }).count()).toBe(2);
    held.resolve();
    await page.getByText("2 changesets discarded.").waitFor();
    await changes.waitFor({ state: "detached" });
  });

  it("has room for a finger", async () => {
    await using touched = await signedIn(browser, service, { width: 390, isTouched: true });
    await touched.go(`#/fleets/${ended}`);
    const retry = touched.page.getByRole("button", { name: /failed item/ });
    await retry.waitFor();
    expect((await retry.boundingBox())?.height).toBeGreaterThanOrEqual(44);
    const hints = async ({ page, go }: TestPage): Promise<number> => {
      await go(`#/changesets/${run}`);
      await page.getByRole("button", { name: /Apply/ }).first().waitFor();
      return await page.locator("main kbd:visible").count();
    };
    expect(await hints(touched)).toBe(0);
    await shown.anew();
    expect(await hints(shown)).toBeGreaterThan(0);
  });

  it("has the same columns in the tables of all projects", async () => {
    await shown.anew();
    const { page } = shown;
    // A second project is not made for this: only answers are changed.
    await page.route("**/v1/projects", async (route) => {
      const answer = await (await route.fetch()).json();
      await route.fulfill({
        json: { ...answer, projects: [...answer.projects, { ...answer.projects[0], name: "other" }] },
      });
    });
    await page.route("**/v1/projects/other/workers", async (route) => {
      const url = route
        .request()
        .url()
        .replace("/other/", `/${encodeURIComponent(name)}/`);
      const { workers, ...answer } = await (await route.fetch({ url })).json();
      const long = {
        ...workers[0],
        description: "A much longer text than those of the first project have. ".repeat(4),
      };
      await route.fulfill({ json: { ...answer, workers: [long] } });
    });
    await shown.go("#/workers");
    const tables = page.getByRole("table", { name: /^Workers of / });
    await expect.poll(() => tables.count()).toBe(2);
    const starts = async (at: number): Promise<number[]> => {
      const heads = await tables.nth(at).getByRole("columnheader").all();
      return await Promise.all(heads.map(async (head) => Math.round((await head.boundingBox())?.x ?? -1)));
    };
    expect((await starts(0)).length).toBeGreaterThan(2);
    expect(await starts(1)).toEqual(await starts(0));
    await page.unrouteAll();
  });

  it("shows an item with what it printed, and is used by keyboard alone", async () => {
    await shown.anew();
    const { page } = shown;
    await shown.go("#/fleets");
    await page.getByRole("table", { name: "Fleets" }).waitFor();
    // A key that comes before the page listens is lost.
    const choose = async (row: string): Promise<void> => {
      const link = page.locator(`[data-row][href*="${row}"]`).first();
      const isChosen = async (): Promise<boolean> => {
        await page.keyboard.press("j");
        return await link.evaluate((element) => element === element.ownerDocument.activeElement);
      };
      await expect.poll(isChosen).toBe(true);
      await page.keyboard.press("Enter");
    };
    await choose(ended);
    await page.getByRole("heading", { level: 1, name: /lines/ }).waitFor();
    await choose("000007-invoice.pdf");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("heading", { name: "inbox/2024/000007-invoice.pdf" }).waitFor();
    await dialog.getByText("page 7 has no text layer").waitFor();
    await dialog.getByText("inbox/2024/000007-invoice.pdf has 7 pages").waitFor();
    await page.keyboard.press("Escape");
    await expect.poll(() => dialog.count()).toBe(0);
    for (const [keys, title] of [
      ["g a", "Audit"],
      ["g w", "Workers"],
      ["g m", "Machine"],
      ["g f", "Fleets"],
    ] as const) {
      for (const key of keys.split(" ")) await page.keyboard.press(key);
      await page.getByRole("heading", { level: 1, name: title }).waitFor();
    }
  });

  it("retries what failed, and cancels a fleet after it has asked", async () => {
    const body = {
      worker: "fails",
      items: ["good", "bad"].map((key) => ({ key })),
      template: { key: "{key}", input: "{key}" },
    };
    const { fleet } = (await service.ask("POST", "/v1/fleets", { body })).json;
    await shown.anew();
    const { page } = shown;
    await shown.go(`#/fleets/${fleet}`);
    await page.getByText("2 of 2").waitFor({ timeout: 30_000 });
    await page.getByRole("button", { name: /failed item/ }).click();
    await expect
      .poll(async () => (await service.ask("GET", `/v1/fleets/${fleet}/items?failed=true`)).json.items[0]?.attempt)
      .toBe(2);
    await shown.go(`#/fleets/${stopped}`);
    await page.getByRole("button", { name: "Cancel" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("180 waiting items will never run").waitFor();
    expect((await service.ask("GET", `/v1/fleets/${stopped}`)).json.state).not.toBe("cancelled");
    await dialog.getByRole("button", { name: "Cancel the fleet" }).click();
    await expect.poll(async () => (await service.ask("GET", `/v1/fleets/${stopped}`)).json.state).toBe("cancelled");
  });

  it("says of a list that it was cut, and how to see the rest", async () => {
    await using shown = await signedIn(browser, service);
    const { page } = shown;
    await shown.go("#/runs?limit=1");
    await page.getByText("There are older runs: these are the newest 1.").waitFor();
    await shown.go("#/runs");
    await page.getByText("There are older runs").waitFor({ state: "detached" });
    // A service with so many is not made for this: only its answer is changed.
    await page.route("**/v1/fleets?limit=200", async (route) => {
      const answer = await (await route.fetch()).json();
      await route.fulfill({ json: { ...answer, more: true } });
    });
    await shown.go("#/fleets");
    await page.getByText(/There are older fleets: these are the newest \d+\./).waitFor();
  });

  it("draws what each worker would get, and what was taken from it", async () => {
    await shown.anew();
    await shown.go(`#/workers/${name}/caller`);
    const cells = shown.page.locator("article.cell");
    await expect.poll(() => cells.count()).toBe(2);
    expect(await cells.first().textContent()).toMatch(/\/in read/);
    expect(await cells.first().textContent()).toMatch(/\/out\s*taken by caller/);
    expect(await cells.last().textContent()).toMatch(/\/in\s*taken by lines/);
  });

  it("pages and filters the audit trail", async () => {
    await shown.anew();
    const { page } = shown;
    await shown.go("#/audit");
    const records = page.getByRole("list", { name: /Records/ }).locator("li.record");
    await records.first().waitFor();
    await page.getByLabel("Type").selectOption("run_ended");
    await expect.poll(async () => new Set(await records.locator(".badge").allTextContents()).size).toBe(1);
    await shown.go(`#/audit?run=${run}`);
    await expect
      .poll(async () => [...new Set(await records.locator(".record-worker").allTextContents())])
      .toEqual(["writer"]);
    await records.first().locator("summary").click();
    await records.first().getByText(`"run": "${run}"`).waitFor();
  });

  it("runs jobs on a commit, shows their steps with what failed, saves their results, and removes them: 390 px", async () => {
    const job = (run: string) => ({ image: "corral/base", run, reports: { junit: "r.xml" } });
    const report = "<testsuite><testcase name='one'><failure/></testcase></testsuite>";
    const jobs = {
      test: job(`echo so many words; echo "${report}" > r.xml; false`),
      after: { ...job("true"), needs: ["test"] },
    };
    await writeFile(join(project.dir, "ci.yaml"), JSON.stringify({ version: 1, jobs }));
    const git = "git -c user.name=a -c user.email=a@localhost";
    execFileSync("sh", ["-ec", `git init -q; git add ci.yaml; ${git} commit -qm x`], { cwd: project.dir });
    await using narrow = await signedIn(browser, service, { width: 390 });
    const { page } = narrow;
    await narrow.go("#/jobs");
    await page.getByText("No jobs were run yet.").waitFor();
    await page.getByLabel("Commit to test").fill("HEAD");
    await page.getByRole("button", { name: "Run jobs" }).click();
    await page.locator(".page-head .badge-bad").waitFor({ timeout: 60_000 });
    const rows = page.getByRole("table", { name: "Steps" }).getByRole("row");
    expect(await rows.nth(1).textContent()).toMatch(/^test.*failed.*1 test failed/);
    expect(await rows.nth(2).textContent()).toMatch(/^after.*skipped/);
    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await overflow(page)).toBeLessThanOrEqual(0);
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "junit.xml" }).click();
    expect(await readFile(await (await saving).path(), "utf8")).toContain('name="one"');
    expect(narrow.troubles).toEqual([]);
    const at = page.url();
    await page.getByRole("link", { name: "test" }).click();
    await page.getByText("so many words", { exact: true }).waitFor();
    await settled(narrow);
    // The service did not start a step by itself, and is not asked for what it has not.
    expect(narrow.troubles).toEqual([]);
    await page.goto(at);
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByText("No jobs were run yet.").waitFor();
    await narrow.go("#/jobs");
    await page.getByLabel("Commit to test").fill("nowhere");
    await page.getByRole("button", { name: "Run jobs" }).click();
    await page.getByText("no commit nowhere").waitFor();
    await rm(join(project.dir, ".git"), { recursive: true });
  });

  it("offers to a reader nothing that a reader may not do, and shows no path of the host", async () => {
    const token = (await project.corral(["serve", "token", "create", "--role", "read"])).stdout.trim();
    await using shown = await signedIn(browser, service, { token });
    for (const place of places()) {
      await shown.go(place);
      await settled(shown);
      const buttons = await shown.page.locator("main button").allTextContents();
      expect(
        buttons.filter((text) => /^(Retry|Resume|Cancel|Apply|Discard|Allow|Deny|Stop)/.test(text)),
        place,
      ).toEqual([]);
      const text = await shown.page.locator("body").textContent();
      expect(text, place).not.toContain(project.stateDir);
      expect(text, place).not.toContain(project.dir);
    }
  });
});
