import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { eventsFrom, startService } from "../service-client.ts";

interface Span {
  readonly name: string;
  readonly kind: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: number;
  readonly trace: string;
  readonly id: string;
  readonly parent: string | null;
  readonly ms: number;
  readonly events: readonly { readonly name: string; readonly attributes: object }[];
}

const SDK = join(import.meta.dirname, "sdk.mjs");
const [INTERNAL, CLIENT] = [0, 2];
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const CALLER = "b7ad6b7169203331";

let project: CliProject;
let spans: readonly Span[];
let file: string;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: {
        network: { allow: [{ to: "nowhere.invalid:80" }, { to: "*.wild.invalid:80" }] },
        paths: { docs: { root: "docs", mode: "ro" } },
      },
    },
    workers: {
      kid: { image: "corral/base", command: sh("echo a secret content") },
      boss: { image: "corral/base", command: sh("corral-call kid 1; corral-call made-up-name; true"), calls: ["kid"] },
      asks: {
        model: "script/asks.yaml",
        tools: ["read_file", "call_worker"],
        calls: ["kid"],
        sandbox: { inherit: true },
      },
      reaching: {
        image: "corral/base",
        command: sh(
          "curl -s http://nowhere.invalid/; curl -s --connect-to ::nowhere.invalid:80 http://leaked-name.example/; exit 3",
        ),
        sandbox: { network: { allow: [{ to: "nowhere.invalid:80" }] } },
      },
      telling: {
        image: "corral/base",
        command: sh("curl -s http://leaked-name.wild.invalid/; true"),
        sandbox: { network: { allow: [{ to: "*.wild.invalid:80" }] } },
      },
    },
    files: {
      "docs/a.txt": "a secret content\n",
      "asks.yaml": JSON.stringify([
        { calls: [{ read_file: { path: "/docs/a.txt" } }] },
        { calls: [{ call_worker: { worker: "kid" } }] },
        { say: "a secret content" },
      ]),
    },
  });
  file = join(project.dir, "..", `${project.dir.split("/").at(-1)}.spans`);
  process.env.SPANS = file;
  process.env.NODE_OPTIONS = `--import ${SDK}`;
  const service = await startService(project).finally(() => {
    delete process.env.NODE_OPTIONS;
    delete process.env.SPANS;
  });
  const headers = { traceparent: `00-${TRACE}-${CALLER}-01` };
  const run = async (worker: string): Promise<void> => {
    const { json } = await service.ask("POST", "/v1/runs", { body: { worker }, headers });
    await service.ask("GET", `/v1/runs/${json.run}/result?wait=30`);
  };
  for (const worker of ["boss", "asks", "reaching", "telling"]) await run(worker);
  const items = ["secret-key-1", "secret-key-2"].map((id) => ({ id }));
  const order = { worker: "kid", items, template: { key: "{id}" }, reuse: "scrubbed", policy: "batch" };
  const { json } = await service.ask("POST", "/v1/fleets", { body: order, headers });
  await eventsFrom(await service.open("GET", `/v1/fleets/${json.fleet}/events`));
  await service.stop();
  spans = (await readFile(file, "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
});
afterAll(async () => await project?.[Symbol.asyncDispose]());

const named = (name: string): Span => {
  const found = spans.find((span) => span.name === name);
  if (found === undefined) throw new Error(`no span ${name} among ${spans.map((span) => span.name).join(", ")}`);
  return found;
};
const below = ({ id }: Span): string[] =>
  spans
    .filter(({ parent }) => parent === id)
    .map(({ name }) => name)
    .toSorted();

describe("spans of a service, for an SDK that the user registers", () => {
  it("begin below the span of the request's traceparent", () => {
    for (const name of ["run boss", "run asks", "run reaching", "fleet kid"])
      expect(named(name), name).toMatchObject({ trace: TRACE, parent: CALLER });
    expect(new Set(spans.map(({ trace }) => trace))).toEqual(new Set([TRACE]));
  });

  it("have a call below the run that calls, and the start of the cell below its run", () => {
    const boss = named("run boss");
    // A name that no worker has is not told.
    expect(below(boss)).toEqual(["call", "call kid", "start cell"]);
    expect(boss.attributes).toMatchObject({
      "container.image.name": expect.stringContaining("corral/base"),
      "corral.driver": expect.stringMatching(/^(engine|runc)$/),
      "corral.run.status": "succeeded",
      "process.exit.code": 0,
    });
    const cell = spans.find(({ name, parent }) => name === "start cell" && parent === boss.id);
    expect(cell?.ms).toBeGreaterThan(5);
    expect(cell?.ms).toBeLessThan(boss.ms);
  });

  it("of an agent follow the conventions for generative AI", () => {
    const asks = named("run asks");
    expect(asks.attributes).toMatchObject({
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": "asks",
      "gen_ai.request.model": "script/asks.yaml",
    });
    const chat = "chat script/asks.yaml";
    expect(below(asks)).toEqual(["call kid", chat, chat, chat, "execute_tool call_worker", "execute_tool read_file"]);
    expect(named(chat)).toMatchObject({ kind: CLIENT, attributes: { "gen_ai.operation.name": "chat" } });
    expect(named("execute_tool read_file")).toMatchObject({
      kind: INTERNAL,
      attributes: { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read_file" },
    });
  });

  it("of the network say where it led and why not, but not a host that a worker made up", () => {
    const run = named("run reaching");
    expect(run).toMatchObject({ status: 2, attributes: { "process.exit.code": 3, "error.type": "FAILED" } });
    expect(named("connect")).toMatchObject({
      kind: CLIENT,
      parent: run.id,
      attributes: { "server.address": "nowhere.invalid", "server.port": 80, "error.type": "unresolved" },
    });
    expect(run.events).toContainEqual({ name: "egress denied", attributes: { "error.type": "name" } });
  });

  it("leave out a host that only a wildcard allows: the worker chose its name", () => {
    const { id } = named("run telling");
    const connect = spans.find(({ name, parent }) => name === "connect" && parent === id);
    expect(connect?.attributes).toEqual({
      "server.port": 80,
      "network.transport": "tcp",
      "error.type": "unresolved",
    });
    expect(JSON.stringify(spans)).not.toContain("leaked-name");
  });

  it("have the items and the cells of a fleet below the fleet", () => {
    const fleet = named("fleet kid");
    expect(below(fleet).filter((name) => name === "item kid")).toHaveLength(2);
    expect(below(fleet)).toContain("start cell");
    expect(fleet.attributes).toMatchObject({ "corral.worker": "kid", "corral.fleet.state": "done" });
    expect(named("item kid").attributes["corral.fleet.id"]).toBe(fleet.attributes["corral.fleet.id"]);
  });

  it("have no contents, no keys, no made-up names and no paths of the host", async () => {
    const text = await readFile(file, "utf8");
    for (const hidden of ["secret", "made-up-name", "leaked-name", project.dir, project.stateDir, "/docs/a.txt"])
      expect(text).not.toContain(hidden);
  });
});
