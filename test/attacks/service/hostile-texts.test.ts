import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { InboxFolder } from "../../../src/inbox/inbox-folder.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import { projectMark, statePaths } from "../../../src/state/state-dir.ts";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { NO_CHROMIUM, openBrowser } from "../../serve/browser/chromium.ts";
import { overflow, signedIn, type TestPage } from "../../serve/browser/page.ts";
import { startService, type TestService } from "../../serve/service-client.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

/* Everything that a worker, a file or an item can name, print or propose, shown on the page in a real Chromium. */

const MARKUP = `"'><img src=x onerror="window.pwned=1"><script>window.pwned=1</script><svg/onload=window.pwned=1><a href="javascript:window.pwned=1">link</a>{{7*7}}`;
/** A title of the terminal, a link, a cleared screen, and text that turns around what follows. */
const ESCAPES =
  "\u001b]0;title\u0007\u001b]8;;javascript:window.pwned=1\u0007link\u001b]8;;\u0007\u001b[2J\u001b[31m\u202edetrevni\u200b";
/** A line break that JSON and regular expressions overlook, and letters that are drawn as nothing. */
const BREAKS = "\u2028\u2029\u{e0041}\u115f\ufeff";
const HOSTILE = `${MARKUP}${ESCAPES}${BREAKS}`;
const LONG = `${HOSTILE}${"W".repeat(50_000)}`;

let project: CliProject;
let broken: CliProject;
let service: TestService;
let browser: Browser;
let shown: TestPage;
let [fleet, key] = ["", ""];
const questions = { real: "", waiting: "", decided: "" };
const runs: Record<string, string> = {};
const names: string[] = [];

const printf = (text: string, more = ""): string[] => [
  "sh",
  "-c",
  `printf '%s\\n' "$0"; printf '%s\\n' "$0" >&2; ${more}`,
  text,
];

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { out: { root: "out", mode: "rw", stage: true } } },
      approval: { mode: "interactive", timeout: "10m" },
    },
    workers: {
      prints: { image: "corral/base", command: printf(HOSTILE), description: MARKUP },
      fails: { image: "corral/base", command: printf(HOSTILE, "exit 1") },
      writes: {
        image: "corral/base",
        command: printf(HOSTILE, `printf '%s\\n# %s\\n' "$0" "$0" > "/out/<img src=x onerror=pwned>.md"; exit 3`),
        sandbox: { allow_write: ["/out"] },
      },
      asks: {
        image: "corral/base",
        command: ["sh", "-c", `printf '%s\\n' "$0" > "/out/<svg onload=pwned>.md"`, HOSTILE],
        sandbox: { allow_write: ["/out"] },
      },
      attached: { image: "corral/base", command: sh("ls /attachments"), attachments: {} },
    },
    folders: ["out"],
  });
  broken = await cliProject({ yaml: { version: 1 }, workers: { right: { image: "corral/base", command: ["true"] } } });
  service = await startService(project, { args: ["-C", project.dir, "-C", broken.dir] });
  // A service does not start with such a file; it may come later.
  await writeFile(join(broken.dir, "workers/wrong.worker"), `---\n${JSON.stringify({ [MARKUP]: MARKUP })}\n---\n`);
  browser = await openBrowser();
  shown = await signedIn(browser, service);
  names.push(...(await service.ask("GET", "/v1/projects")).json.projects.map((one: { name: string }) => one.name));
  const own = { project: names[0] };
  const result = async (run: string | undefined) => (await service.ask("GET", `/v1/runs/${run}/result?wait=30`)).json;
  const begin = async (worker: string) =>
    (await service.ask("POST", "/v1/runs", { body: { ...own, worker } })).json.run;
  for (const worker of ["prints", "fails", "writes"]) {
    runs[worker] = await begin(worker);
    await result(runs[worker]);
  }
  const part = (head: string, content: string) =>
    `--BOUNDARY\r\nContent-Disposition: form-data; ${head}\r\n\r\n${content}\r\n`;
  const form = `${part('name="request"', JSON.stringify({ ...own, worker: "attached" }))}${part(`name="f"; filename="<img src=x onerror=pwned>.txt"`, "x")}--BOUNDARY--\r\n`;
  const headers = { "content-type": "multipart/form-data; boundary=BOUNDARY" };
  runs.attached = (await service.ask("POST", "/v1/runs", { raw: form, headers })).json.run;
  const item = { name: HOSTILE, other: MARKUP };
  const template = { key: "{other}", input: { text: "{name}" } };
  fleet = (await service.ask("POST", "/v1/fleets", { body: { ...own, worker: "fails", items: [item], template } })).json
    .fleet;
  await result(runs.attached);
  const done = async (): Promise<void> =>
    expect((await service.ask("GET", `/v1/fleets/${fleet}`)).json.state).toBe("done");
  await vi.waitFor(done, { timeout: 60_000, interval: 200 });
  key = (await service.ask("GET", `/v1/fleets/${fleet}/items`)).json.items[0].key;
  expect(key).toBe(MARKUP);
  runs.asks = await begin("asks");
  const isAsked = async (): Promise<void> => {
    const { approvals } = (await service.ask("GET", "/v1/approvals")).json;
    questions.real = approvals[0]?.id ?? "";
    expect(questions.real).not.toBe("");
  };
  await vi.waitFor(isAsked, { timeout: 60_000, interval: 200 });
  await postQuestions();
});

/** As a process of Corral posts them, with every text that a worker, a model or a client may have chosen. */
async function postQuestions(): Promise<void> {
  const dir = join(statePaths(project.stateDir).inbox, projectMark(project.dir));
  const folder = new InboxFolder({ dir, key: await loadSealKey(project.stateDir), self: currentOwner() });
  const paths = Array.from({ length: 3000 }, (_, index) => `/out/${index}${HOSTILE}`);
  const lines = [`+${HOSTILE}`, `+${LONG}`, ...Array.from({ length: 5000 }, (_, index) => `+${index} ${MARKUP}`)];
  const diff = [
    `--- /out/${HOSTILE.replaceAll("\u2028", "")}`,
    `+++ ${LONG}`,
    `@@ -0,0 +1,${lines.length} @@`,
    ...lines,
  ].join("\n");
  const question = {
    ...{ run: runs.prints ?? "", root: runs.prints ?? "", worker: HOSTILE, through: [LONG, HOSTILE], runs: 2 },
    waiting: [HOSTILE, LONG].map((run) => ({ run, root: run })),
    ...{ operations: ["write"] as const, paths, diff, why: LONG, command: LONG, input: HOSTILE },
    ...{ directory: HOSTILE, wider: [`${HOSTILE}${"W".repeat(3000)}`, MARKUP], to: HOSTILE, reaches: [HOSTILE, LONG] },
  };
  const asked = { project: project.dir, askedAt: new Date().toISOString(), at: "board", question } as const;
  const answers = ["once", "tree", "no"] as const;
  questions.waiting = folder.post({ ...asked, timeoutMs: null, answers })?.id ?? "";
  const decided = folder.post({ ...asked, timeoutMs: null, answers });
  questions.decided = decided?.id ?? "";
  const end = {
    outcome: "denied",
    scope: null,
    directory: HOSTILE,
    by: `${HOSTILE}${"W".repeat(5000)}`,
    via: "terminal",
  } as const;
  folder.end(questions.decided, { ...end, digest: decided?.digest ?? "", decidedAt: new Date().toISOString() });
}
afterAll(async () => {
  await shown?.[Symbol.asyncDispose]();
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
  await broken?.[Symbol.asyncDispose]();
});

const place = (...parts: readonly string[]): string => `#/${parts.map(encodeURIComponent).join("/")}`;

/** What is shown, and where; `sees`: a text of it that must be there, so that the test looks at the right thing. */
const SHOWN: readonly (readonly [what: string, at: () => string, sees: string])[] = [
  ["a worker's description, in the list", () => place("workers"), '<img src=x onerror="window.pwned=1">'],
  ["mistakes in the files of a project", () => place("workers"), "wrong.worker"],
  ["a worker, explained", () => place("workers", names[0] ?? "", "prints"), "prints"],
  ["what a run printed", () => place("runs", runs.prints ?? ""), '<img src=x onerror="window.pwned=1">'],
  [
    "the last words of a run that failed",
    () => place("runs", runs.fails ?? ""),
    '<img src=x onerror="window.pwned=1">',
  ],
  ["names of attached files", () => place("runs", runs.attached ?? ""), "<img src=x onerror=pwned>"],
  [
    "a changeset with such names and contents",
    () => place("changesets", runs.writes ?? ""),
    "<img src=x onerror=pwned>",
  ],
  ["keys of items and causes of failures", () => place("fleets", fleet), '<img src=x onerror="window.pwned=1">'],
  [
    "an item with fields, input and both streams",
    () => `${place("fleets", fleet)}?key=${encodeURIComponent(key)}`,
    "{{7*7}}",
  ],
  ["the list of questions", () => place("inbox"), "<svg onload=pwned>"],
  ["a question of a run", () => place("inbox", questions.real), "<svg onload=pwned>"],
  ["every field of a question", () => place("inbox", questions.waiting), "these may be the worker's words"],
  ["a question that was decided", () => `${place("inbox", questions.decided)}?state=decided`, "denied"],
  ["audit records", () => `${place("audit")}?project=${names[0]}`, "run requested"],
  ["the overview", () => place(), "prints"],
];

describe.skipIf(NO_CHROMIUM)(`on the page, a hostile text${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it.each(SHOWN)("in %s is text, and nothing else", async (_, at, sees) => {
    await shown.anew();
    const { page } = shown;
    await shown.go(at());
    await page.locator("body").getByText(sees).first().waitFor({ state: "attached", timeout: 20_000 });
    // Each click takes one away from those that are closed.
    const closed = page.locator("main details:not([open]) > summary");
    while ((await closed.count()) > 0) await closed.first().click();
    const found = await page.evaluate(() => {
      const { document } = window;
      const bad = "main img, main script, main svg[onload], main iframe, main [onerror], main [onload], main style";
      const links = [...document.querySelectorAll("a[href]")].map((link) => link.getAttribute("href"));
      const labels = [...document.querySelectorAll("[title], [aria-label]")].map(
        (one) => `${one.getAttribute("title")}${one.getAttribute("aria-label")}`,
      );
      const texts = `${document.body.textContent}${labels.join("")}`;
      return {
        chars: texts.length,
        pwned: window.pwned,
        elements: document.querySelectorAll(bad).length,
        links: links.filter((href) => !href.startsWith("#/")),
        title: document.title,
        controls: /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f]/u.test(texts),
      };
    });
    expect(found).toMatchObject({ pwned: undefined, elements: 0, links: [], controls: false });
    expect(found.title).toMatch(/· Corral$/);
    expect(found.title).not.toContain("<");
    // What is too long is cut, and nothing makes the page wider than its window.
    expect(found.chars).toBeLessThan(500_000);
    expect(await overflow(page)).toBe(0);
    expect(shown.troubles).toEqual([]);
  });

  it("in a question is for the API a text like any other: whole, in JSON that no browser takes for a page", async () => {
    const list = await service.ask("GET", "/v1/approvals");
    const one = await service.ask("GET", `/v1/approvals/${questions.waiting}`);
    for (const { status, headers } of [list, one]) {
      expect(status).toBe(200);
      expect(headers).toMatchObject({
        "content-type": "application/json; charset=utf-8",
        "x-content-type-options": "nosniff",
      });
    }
    expect(list.json.approvals.map(({ id }: { id: string }) => id)).toEqual([questions.real, questions.waiting]);
    const { question } = one.json;
    expect(question).toMatchObject({ worker: HOSTILE, why: LONG, command: LONG, directory: HOSTILE, to: HOSTILE });
    expect(question.paths).toHaveLength(3000);
    const { answers, digest } = one.json;
    const body = { answer: "no", digest: digest.replace(/^./, (first: string) => (first === "0" ? "1" : "0")) };
    expect(answers).toEqual(["once", "tree", "no"]);
    expect((await service.ask("POST", `/v1/approvals/${questions.waiting}/decision`, { body })).status).toBe(409);
  });

  // Each on the page that the one before left, as after a click on a link.
  it("in the address of the page does nothing", async () => {
    await shown.anew();
    const addresses = [
      "#/<img src=x onerror=window.pwned=1>",
      "#/fleets/<script>window.pwned=1</script>",
      "#/fleets/..%2f..%2fv1%2fruns",
      "#/workers/a/..%2f..%2fb",
      "#/audit?run=<svg onload=window.pwned=1>&type=<b>&since=__proto__&project=<i>",
      "#/fleets/0123456789ab?search=%00%ff&show=constructor&alike=<b>&key=<b>",
      "#//////",
      "#/%E0%A4%A",
    ];
    for (const address of addresses) {
      await shown.go(address);
      await shown.page.waitForTimeout(300);
      expect(await shown.page.evaluate(() => window.pwned), address).toBeUndefined();
      expect(await shown.page.getByRole("main").count(), address).toBe(1);
      // The service's own 400 and 404 are reported by the browser; violations and errors of scripts are not expected.
      const troubles = shown.troubles.filter((line) => !/status of 40[04]/.test(line));
      expect(troubles, address).toEqual([]);
    }
  });
});
