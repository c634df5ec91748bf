import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadProject } from "../../../src/declarations/project.ts";
import { parseWorker } from "../../../src/declarations/worker/worker.ts";
import { readWorkerTexts } from "../../../src/declarations/worker/workers.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";
import { memoryEngine } from "../memory-engine.ts";
import { openProject, type ProjectFixture, writable } from "../project-fixture.ts";

const beside = (worker: string, more: object = {}) => ({ services: { db: { worker, ports: [5432], ...more } } });
const command = ["true"];
const zones = [writable("out"), { name: "data" }];

function problemsIn(services: object): string[] {
  try {
    parseWorker(`---\n${JSON.stringify({ command, services })}\n---\n`, "workers/w.worker");
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ path, message }) => `${path}: ${message}`);
  }
}

describe("services in a worker file", () => {
  it("have a worker, ports, and when they are ready", () => {
    const text = `---\n${JSON.stringify({ command, ...beside("pg", { ready: ["pg_isready"], ready_within: "5s" }) })}\n---\n`;
    const service = { name: "db", worker: "pg", ports: [5432], ready: ["pg_isready"], readyWithinMs: 5000 };
    expect(parseWorker(text, "w.worker").services).toEqual([service]);
  });

  it("are refused with their places if a name is no host's, or a port is another's", () => {
    const pg = { worker: "pg", ports: [5432] };
    expect(problemsIn({ db: pg, cache: { worker: "redis", ports: [6379, 5432] } })).toEqual([
      expect.stringMatching(/^services\.cache\.ports\.1: 5432 is a port of another service/),
    ]);
    for (const name of ["localhost", "corral", "ip6-x", "DB", "a_b", "x-", "-x", "1a", "a.b"])
      expect(problemsIn({ [name]: pg }), name).toHaveLength(1);
    expect(problemsIn({ db: { worker: "pg", ports: [] } })).toHaveLength(1);
    expect(problemsIn({ db: { worker: "pg", ports: [0] } })).toHaveLength(1);
    expect(problemsIn({ db: { ...pg, ready: "pg_isready" } })).toEqual([
      "services.db.ready: must be a list of words; write it as [pg_isready]",
    ]);
    expect(problemsIn({ db: { ...pg, ready_within: "11m" } })).toEqual([
      "services.db.ready_within: must be at most `10m`",
    ]);
  });

  it("name a worker that exists", async () => {
    const texts = new Map([["w", `---\n${JSON.stringify({ command, ...beside("postgre") })}\n---\n`]]);
    texts.set("postgres", `---\n${JSON.stringify({ command })}\n---\n`);
    const read = await readWorkerTexts(texts, { mounts: null, secrets: null });
    expect(read.ok || read.problems).toMatchObject([
      { path: "services.db.worker", message: expect.stringContaining("`postgres`") },
    ]);
  });
});

it("examples/services has two of them, which its worker may have", async () => {
  const project = await loadProject(join(import.meta.dirname, "../../../examples/services"));
  const { services = [] } = project.workers.get("app") ?? {};
  expect(services.map(({ name, worker, ports }) => [name, worker, ports])).toEqual([
    ["db", "postgres", [5432]],
    ["cache", "redis", [6379]],
  ]);
});

describe("a run with a service that has more than a service can have", () => {
  let project: ProjectFixture;
  const engine = memoryEngine({ programs: { true: () => 0 } });

  beforeAll(async () => {
    const plain = { command };
    const workers = {
      writes: { command, sandbox: { zones } },
      more: { command, sandbox: { zones: [{ name: "data" }] }, limits: { memory: "128m" } },
      reaches: { command, sandbox: { network: { allow: [{ to: "example.org:443" }] } } },
      nested: { command, ...beside("plain") },
      agent: { model: "anthropic/m" },
      plain,
      "w-writes": { command, sandbox: { zones }, ...beside("writes") },
      "w-more": { command, limits: { memory: "64m" }, ...beside("more") },
      "w-reaches": { command, sandbox: { network: { allow: [{ to: "example.org:443" }] } }, ...beside("reaches") },
      "w-nested": { command, ...beside("nested") },
      "w-agent": { command, ...beside("agent") },
      "w-itself": { command, ...beside("w-itself") },
    };
    project = await openProject(
      {
        workers,
        zones: { out: "rw", data: "ro" },
        sandbox: { network: { allow: [{ to: "example.org:443" }] } },
        yaml: { models: { anthropic: { key: { env: "KEY" } } } },
        policy: "default",
      },
      { engine: engine.open },
    );
  });

  afterAll(() => project[Symbol.asyncDispose]());

  it.each([
    ["w-writes", [["SERVICE_REFUSED", /its worker writes writes in \/out.*`readonly: true`/]]],
    [
      "w-more",
      [
        ["SERVICE_REFUSED", /'db'.*more asks for more.*'data'/],
        ["SERVICE_REFUSED", /`memory: 128 MiB`/],
      ],
    ],
    ["w-reaches", [["SERVICE_REFUSED", /network: false/]]],
    ["w-nested", [["SERVICE_REFUSED", /has services itself/]]],
    ["w-agent", [["SERVICE_REFUSED", /is an agent/]]],
    ["w-itself", [["SERVICE_REFUSED", /has services itself/]]],
  ] as const)("is refused before anything runs: %s", async (worker, expected) => {
    const result = await project.run(worker);
    expect(result.status).toBe("refused");
    expect(result.violations.map(({ code }) => code).toSorted()).toEqual(expected.map(([code]) => code).toSorted());
    for (const [, words] of expected) expect(result.error?.message).toMatch(words);
    expect(engine.containers.size).toBe(0);
  });
});
