import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { onRunc } from "../../tiers/on-runc.ts";
import { eventsFrom, startService, type TestService } from "../service-client.ts";

let project: CliProject;
let service: TestService;
let text: string;
let scraper: string;

const value = (line: string): number => {
  const found = text.split("\n").find((one) => one.startsWith(`${line} `));
  if (found === undefined) throw new Error(`no ${line}`);
  return Number(found.split(" ").at(-1));
};

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { network: { allow: [{ to: "allowed.example:80" }] }, paths: { docs: { root: "docs", mode: "ro" } } },
    },
    workers: {
      echo: { image: "corral/base", command: ["cat"] },
      fails: { image: "corral/base", command: ["false"] },
      boss: {
        image: "corral/base",
        command: sh("corral-call echo 1; for i in 1 2 3 4 5; do corral-call secret-$i-of-mine; done; true"),
        calls: ["echo"],
      },
      desk: {
        image: "corral/base",
        command: ["true"],
        sandbox: { inherit: true },
        shell_rules: { default: "pre_approved" },
      },
      reaching: {
        image: "corral/base",
        command: sh("curl -s --connect-to ::allowed.example:80 http://leaked-name.example/; true"),
        sandbox: { network: { allow: [{ to: "allowed.example:80" }] } },
      },
    },
    files: { "docs/a.txt": "a document\n" },
  });
  service = await startService(project);
  const run = async (worker: string): Promise<void> => {
    const { json } = await service.ask("POST", "/v1/runs", { body: { worker } });
    await service.ask("GET", `/v1/runs/${json.run}/result?wait=30`);
  };
  await run("echo");
  await run("fails");
  await run("boss");
  await run("reaching");
  const items = ["secret-key-1", "secret-key-2", "secret-key-3"].map((id) => ({ id }));
  const template = { key: "{id}", input: { id: "{id}" } };
  const { status, json } = await service.ask("POST", "/v1/fleets", {
    body: { worker: "echo", items, template, reuse: "scrubbed", policy: "batch" },
  });
  expect(status, JSON.stringify(json)).toBe(202);
  await eventsFrom(await service.open("GET", `/v1/fleets/${json.fleet}/events`));
  const session = (await service.ask("POST", "/v1/sessions", { body: { worker: "desk" } })).json.id;
  const tool = `/v1/sessions/${session}/tools`;
  await service.ask("POST", `${tool}/read_file`, { body: { path: "/docs/a.txt" } });
  await service.ask("POST", `${tool}/exec`, { body: { command: "true" } });
  scraper = (await project.corral(["serve", "token", "create", "--role", "metrics"])).stdout.trim();
  const reply = await service.ask("GET", "/metrics", { token: scraper });
  expect(reply.status).toBe(200);
  expect(reply.headers["content-type"]).toMatch(/^text\/plain; version=0\.0\.4/);
  text = reply.text;
});
afterAll(async () => {
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

describe("GET /metrics", () => {
  const of = (): string => /corral_runs_running\{project="([^"]+)"/.exec(text)?.[1] ?? "";

  it("counts runs by worker, position and status", () => {
    const runs = (worker: string, position: string, status: string): number =>
      value(`corral_runs_total{project="${of()}",worker="${worker}",position="${position}",status="${status}"}`);
    expect(runs("fails", "root", "failed")).toBe(1);
    expect(runs("echo", "called", "succeeded")).toBe(1);
    // One by itself, and three items.
    expect(runs("echo", "root", "succeeded")).toBe(4);
    expect(value(`corral_runs_running{project="${of()}"}`)).toBe(0);
  });

  it("counts cells by what they are for, and by what made them", () => {
    const driver = onRunc() ? "runc" : "engine";
    const cells = (kind: string): number =>
      value(`corral_cell_start_duration_seconds_count{driver="${driver}",kind="${kind}"}`);
    expect(cells("items")).toBeGreaterThanOrEqual(1);
    expect(cells("session")).toBe(1);
    expect(cells("command")).toBe(5);
  });

  it("counts items, tools, sessions, requests and decisions about the network", () => {
    expect(value(`corral_fleet_items_total{project="${of()}",worker="echo",status="succeeded"}`)).toBe(3);
    expect(value(`corral_tool_calls_total{project="${of()}",tool="exec",outcome="ok"}`)).toBe(1);
    expect(value(`corral_tool_calls_total{project="${of()}",tool="read_file",outcome="ok"}`)).toBe(1);
    expect(value(`corral_sessions_open{project="${of()}"}`)).toBe(1);
    expect(value(`corral_egress_decisions_total{project="${of()}",decision="denied",reason="name"}`)).toBe(1);
    const posted = 'http_request_method="POST",http_route="/v1/runs",http_response_status_code="202"';
    expect(value(`http_server_request_duration_seconds_count{${posted}}`)).toBe(4);
    expect(value("process_resident_memory_bytes")).toBeGreaterThan(10_000_000);
    expect(text).toMatch(/corral_build_info\{version="\d+\.\d+\.\d+"\} 1/);
  });

  it("has nothing that a worker, an item or a client chose as a label", () => {
    expect(text).toContain('worker="other",position="called",status="refused"} 5');
    for (const chosen of ["secret-", "leaked-name", "allowed.example", project.dir, "a.txt", service.token, scraper])
      expect(text).not.toContain(chosen);
  });

  it("needs a token, of which one with the role metrics can do nothing else", async () => {
    expect((await service.ask("GET", "/metrics", { token: null })).status).toBe(401);
    expect((await service.ask("GET", "/metrics", { token: service.token })).status).toBe(200);
    for (const path of ["/v1/projects", "/v1/runs", "/v1/audit", "/openapi.json"])
      expect((await service.ask("GET", path, { token: scraper })).status, path).toBe(403);
    expect((await service.ask("POST", "/v1/runs", { token: scraper, body: { worker: "echo" } })).status).toBe(403);
  });

  it("counts no path that is no route, so that a stranger cannot add series", async () => {
    for (let turn = 0; turn < 20; turn += 1) await service.ask("GET", `/v1/made-up-${turn}`, { token: null });
    await service.ask("GET", "/v1/made-up");
    text = (await service.ask("GET", "/metrics")).text;
    expect(text).not.toContain("made-up");
    expect(text).toContain('http_route="",http_response_status_code="401"');
  });
});
