import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { describedRoutes, startService } from "./service-client.ts";
import { project, service, serviceForAll } from "./service-for-all.ts";

serviceForAll();

const CI = (run: string) =>
  JSON.stringify({
    version: 1,
    jobs: {
      test: { image: "corral/base", run, matrix: { part: ["a", "b"] }, reports: { junit: "r.xml" } },
      after: { image: "corral/base", needs: ["test"], run: "true" },
    },
  });
const REPORT = `<testsuite><testcase name="one"><failure/></testcase></testsuite>`;

it("jobs of the base's ci.yaml run on a head by the API, as runs of the project, and nobody but an admin names another base", async () => {
  const git = (...args: string[]): string =>
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...args], {
      cwd: project.dir,
    }).toString();
  const commit = async (run: string, message: string): Promise<string> => {
    await writeFile(join(project.dir, "ci.yaml"), CI(run));
    git("add", "ci.yaml");
    git("commit", "-qm", message);
    return git("rev-parse", "HEAD").trim();
  };
  git("init", "-q", "-b", "main");
  const base = await commit(`test "$MATRIX_PART" = a; echo '${REPORT}' > r.xml`, "base");
  git("checkout", "-qb", "pull");
  const head = await commit("true", "head");
  git("checkout", "-q", "main");
  const [{ name = "" } = {}] = (await service.ask("GET", "/v1/projects")).json.projects;
  const runner = (await project.corral(["serve", "token", "create", "--role", "run"])).stdout.trim();
  const start = async (body: object, token = runner) => await service.ask("POST", "/v1/ci", { body, token });
  const ended = async (id: string) => {
    for (;;) {
      const { json } = await service.ask("GET", `/v1/ci/${id}?wait=60`);
      if (json.state !== "running") return json;
    }
  };

  const begun = await start({ head: "pull" });
  expect(begun.status, begun.text).toBe(202);
  const id = begun.json.ci;
  const shown = await ended(id);
  expect(shown).toMatchObject({ project: name, state: "failed", base, head, isChanged: true, why: null });
  expect(shown.steps.map((one: Record<string, unknown>) => [one.name, one.status, one.failedTests])).toEqual([
    ["test.a", "succeeded", 1],
    ["test.b", "failed", null],
    ["after", "skipped", null],
  ]);
  const { json: run } = await service.ask("GET", `/v1/runs/${shown.steps[1].run}`);
  expect(run).toMatchObject({ id: shown.steps[1].run, worker: "test.b", status: "failed", hasEvents: false });
  const file = async (path: string) => await service.ask("GET", `/v1/ci/${id}/file?path=${encodeURIComponent(path)}`);
  expect((await file("junit.xml")).text).toContain('name="one"');
  for (const path of ["../../ci.yaml", "nothing"]) expect((await file(path)).status).toBe(404);
  expect((await service.ask("GET", "/v1/ci")).json.ci).toMatchObject([{ id, state: "failed" }]);

  expect((await start({ head: "pull", base: "pull" })).status).toBe(403);
  const other = await ended((await start({ head: "pull", base: "pull", jobs: ["after"] }, service.token)).json.ci);
  expect(other).toMatchObject({ state: "succeeded", base: head, isChanged: false });
  expect((await service.ask("DELETE", `/v1/ci/${id}`)).json).toEqual({ id, outcome: "removed" });
  expect((await service.ask("GET", `/v1/ci/${id}`)).json.error.code).toBe("UNKNOWN_CI");
  expect(existsSync(join(project.dir, ".corral/ci", `results-${id}`))).toBe(false);
  const wrong = await ended((await start({ head: "nowhere" })).json.ci);
  expect(wrong).toMatchObject({ state: "stopped", why: expect.stringContaining("no commit nowhere"), steps: [] });
  expect(JSON.stringify(wrong)).not.toContain(project.dir);

  const explained = await service.ask("GET", `/v1/projects/${name}/ci/after`);
  expect(Object.keys(explained.json.workers)).toEqual(["test.a", "test.b", "after"]);
  expect(explained.text).not.toContain(project.dir);
  const routes = (await describedRoutes(service)).filter((route) => /\/v1\/ci\b|\/ci\//.test(route));
  expect(routes).toHaveLength(6);
  expect(routes.filter((route) => !service.seen.has(route))).toEqual([]);

  const results = async (): Promise<string[]> =>
    (await readdir(join(project.dir, ".corral/ci"))).filter((one) => one.startsWith("results-"));
  expect(await results()).toHaveLength(2);
  const { token } = service;
  await service.stop("SIGKILL");
  await using _next = await startService(project, { token });
  expect(await results()).toEqual([]);
  await rm(join(project.dir, ".git"), { recursive: true });
});
