/**
 * Takes pictures of every page of `corral serve`, for the pages of the documentation: `node scripts/screenshots.ts [DIR]`. It runs the job of
 * `examples/inbox` in a folder of its own, and needs an Engine and Chromium. The fleet is written with the functions of its store, as 100,000
 * items would take hours. With DIR all pages are pictured there, in both themes and at both widths; without it those that the
 * documentation shows, in `docs/screenshots/`.
 */
import { chown, cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { runJob } from "../examples/inbox/host/job.ts";
import { makeStateDir } from "../src/state/state-dir.ts";
import { type CliProject, sh } from "../test/cli/cli-project.ts";
import { openBrowser } from "../test/serve/browser/chromium.ts";
import { signedIn, THEMES, WIDTHS } from "../test/serve/browser/page.ts";
import { makeLargeFleet } from "../test/serve/large-fleet.ts";
import { startService, type TestService } from "../test/serve/service-client.ts";

const root = join(import.meta.dirname, "..");
/** Those of the documentation: few, so that the package stays small. */
const IN_DOCS: readonly string[] = ["run-dark-1280", "worker-light-1280"];
/** Until what is loaded is drawn. */
const DRAWN_MS = 800;

/** The user of a cell. */
const WORKER_UID = 65532;

const [all] = process.argv.slice(2);
const to = all ?? join(root, "docs/screenshots");
await mkdir(to, { recursive: true });
const dir = await mkdtemp(join(tmpdir(), "corral-screenshots-"));
try {
  const [inbox, letters, stateDir] = ["inbox", "letters", "state"].map((name) => join(dir, name)) as [
    string,
    string,
    string,
  ];
  await cp(join(root, "examples/inbox"), inbox, { recursive: true, filter: (path) => !path.endsWith("/.work") });
  await writeLetters(letters);
  await makeStateDir(stateDir);
  const { signal } = new AbortController();
  const say = (line: string): boolean => process.stderr.write(`${line}\n`);
  await runJob({ projectDir: inbox, stateDir, engineEnv: process.env, signal, emit: () => {}, say });
  const fleet = await makeLargeFleet({ stateDir, projectDir: inbox }, { settled: 61_400 });
  await using service = await startService({ dir: inbox, stateDir } as CliProject, {
    args: ["-C", inbox, "-C", letters],
  });
  await using browser = await openBrowser();
  await takePictures(service, browser, fleet);
} finally {
  await rm(dir, { recursive: true, force: true });
}

/** A second project, of which a change waits and a question is asked. */
async function writeLetters(project: string): Promise<void> {
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(join(project, path, ".."), { recursive: true });
    await writeFile(join(project, path), text);
  };
  const worker = (description: string, script: string): string =>
    `---\n${JSON.stringify({ description, image: "corral/base", command: sh(script), sandbox: { inherit: true } })}\n---\n`;
  const paths = { letters: { root: "letters", mode: "rw" }, drafts: { root: "drafts", mode: "rw", stage: true } };
  await write(
    "corral.yaml",
    JSON.stringify({ version: 1, sandbox: { paths }, approval: { mode: "interactive", timeout: "10m" } }),
  );
  const letter =
    "Dear Ms Okafor,\n\nwe recieved your letter of 3 March, and will answer untill Friday.\n\nYours sincerely\n";
  await write("letters/okafor.txt", letter);
  await write("drafts/reply.md", "# Reply\n\nThank you for your letter.\n");
  const mends = "sed -i 's/recieved/received/; s/answer untill/answer by/' /letters/okafor.txt";
  await write("workers/proofread.worker", worker("Corrects the spelling of letters", mends));
  const writes =
    "echo 'We look into it, and write again by Friday.' >> /drafts/reply.md; echo '- ask the archive' > /drafts/todo.md; exit 3";
  await write("workers/draft.worker", worker("Drafts a reply", writes));
  for (const path of ["letters", "drafts", "letters/okafor.txt", "drafts/reply.md"])
    await chown(join(project, path), WORKER_UID, WORKER_UID);
}

async function takePictures(service: TestService, browser: Browser, fleet: string): Promise<void> {
  const begin = async (worker: string): Promise<string> =>
    (await service.ask("POST", "/v1/runs", { body: { project: "letters", worker } })).json.run;
  const draft = await begin("draft");
  await service.ask("GET", `/v1/runs/${draft}/result?wait=60`);
  await begin("proofread");
  while ((await service.ask("GET", "/v1/approvals")).json.approvals.length === 0)
    await new Promise((resolve) => setTimeout(resolve, 200));
  const { runs } = (await service.ask("GET", "/v1/runs?worker=triage")).json;
  const places: Readonly<Record<string, string>> = {
    overview: "#/",
    runs: "#/runs",
    run: `#/runs/${runs[0].id}`,
    inbox: "#/inbox",
    fleets: "#/fleets",
    fleet: `#/fleets/${fleet}`,
    item: `#/fleets/${fleet}?key=inbox%2F2024%2F000007-invoice.pdf`,
    changesets: "#/changesets",
    changeset: `#/changesets/${draft}`,
    workers: "#/workers",
    worker: "#/workers/inbox/triage",
    audit: "#/audit",
    machine: "#/machine",
  };
  for (const theme of THEMES)
    for (const width of WIDTHS) {
      const wanted = Object.entries(places).filter(
        ([name]) => all !== undefined || IN_DOCS.includes(`${name}-${theme}-${width}`),
      );
      if (wanted.length === 0) continue;
      await using shown = await signedIn(browser, service, { theme, width });
      for (const [name, place] of wanted) {
        await shown.go(place);
        await shown.page.waitForTimeout(DRAWN_MS);
        await shown.page.locator(".loading").waitFor({ state: "detached" });
        await shown.page.screenshot({ path: join(to, `${name}-${theme}-${width}.png`) });
      }
    }
}
