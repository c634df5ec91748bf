import { chown, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../cli/cli-project.ts";
import { makeHostFolder } from "../run/grants/host-folder.ts";
import { startService, type TestService } from "./service-client.ts";

let project: CliProject | null = null;
let service: TestService | null = null;
let host = "";

afterEach(async () => {
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
  await rm(host, { recursive: true, force: true });
});

it("a running worker asks for a directory, a client grants one around it, sees the grant and takes it back", async () => {
  host = await makeHostFolder();
  await mkdir(join(host, "src/deep"), { recursive: true });
  await mkdir(join(host, "more"));
  await writeFile(join(host, "src/deep/a"), "A\n");
  for (const path of ["src", "src/deep", "more"]) await chown(join(host, path), 65_532, 65_532);
  const ask = `curl -s --unix-socket "$CORRAL_SOCKET" -d '{"path":"'${host}'/src/deep/a"}' http://corral/v1/tools/read_file`;
  const write = `curl -s --unix-socket "$CORRAL_SOCKET" -d '{"path":"'${host}'/more/b","content":"B"}' http://corral/v1/tools/write_file`;
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { inbox: { path: "inbox" } } },
      approval: { timeout: "60s" },
    },
    workers: {
      w: {
        command: sh(
          `${ask}; until ${ask} | grep GRANT_REVOKED; do sleep 0.2; done; until ${write} | grep Created; do sleep 0.2; done; until [ -e /inbox/end ]; do sleep 0.1; done`,
        ),
        sandbox: { dynamic: true, zones: [{ name: "inbox" }] },
      },
    },
    folders: ["inbox"],
  });
  service = await startService(project);
  const s = service;
  const get = async (path: string) => (await s.ask("GET", path)).json;
  const { run } = (await s.ask("POST", "/v1/runs", { body: { worker: "w" } })).json;
  await expect.poll(async () => (await get("/v1/approvals")).approvals, { timeout: 30_000 }).toHaveLength(1);
  const [asked] = (await get("/v1/approvals")).approvals;
  expect(asked.question).toMatchObject({ operations: ["grant_read"], directory: `${host}/src/deep` });
  expect(asked.question.wider).toContain(`${host}/src`);
  const decide = (directory: string) =>
    s.ask("POST", `/v1/approvals/${asked.id}/decision`, { body: { answer: "tree", digest: asked.digest, directory } });
  const wrong = await decide("/etc");
  expect([wrong.status, wrong.json.error.code]).toEqual([400, "WRONG_ANSWER"]);
  expect((await decide(`${host}/src`)).json).toMatchObject({ outcome: "approved", directory: `${host}/src` });
  await expect.poll(async () => (await get("/v1/grants")).grants, { timeout: 30_000 }).toHaveLength(1);
  const [grant] = (await get("/v1/grants")).grants;
  expect(grant).toMatchObject({ run, worker: "w", directory: `${host}/src`, mode: "read", scope: "tree" });
  // Before the worker writes there, which it does when it has seen the revocation: else it would ask, and wait.
  const added = await s.ask("POST", `/v1/runs/${run}/grants`, { body: { path: `${host}/more`, mode: "write" } });
  expect(added.json).toMatchObject({ run, directory: `${host}/more`, mode: "write" });
  expect((await s.ask("DELETE", `/v1/grants/${grant.id}`)).status).toBe(200);
  // In the same run: what was revoked stays so, also for who gives it without being asked.
  const again = await s.ask("POST", `/v1/runs/${run}/grants`, { body: { path: `${host}/src` } });
  expect(again).toMatchObject({ status: 422, json: { error: { code: "GRANT_REFUSED" } } });
  expect((await get("/v1/grants")).grants).toMatchObject([{ id: added.json.id, mode: "write" }]);
  const unknown = await s.ask("POST", "/v1/runs/0123456789ab/grants", { body: { path: `${host}/more` } });
  expect([unknown.status, unknown.json.error.code]).toEqual([404, "UNKNOWN_RUN"]);
  await writeFile(join(project.dir, "inbox/end"), "");
  const result = await get(`/v1/runs/${run}/result?wait=30`);
  expect(result).toMatchObject({ status: "succeeded", output: expect.stringContaining("GRANT_REVOKED") });
  expect(result.output).toContain('"content":"A\\n"');
  expect(await readFile(join(host, "more/b"), "utf8")).toBe("B");
  expect((await get("/v1/grants")).grants).toEqual([]);
  const { records } = await get(`/v1/audit?run=${run}`);
  const types = records.map(({ type }: { type: string }) => type);
  expect(types).toEqual(expect.arrayContaining(["grant", "grant_revoked"]));
});
