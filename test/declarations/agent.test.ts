import { describe, expect, it } from "vitest";
import { loadProject } from "../../src/declarations/project.ts";
import { parseWorker } from "../../src/declarations/worker/worker.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

const agent = (frontMatter: string) => parseWorker(`---\n${frontMatter}\n---\nDo it.`, "workers/w.worker");

async function problemsOf(act: () => unknown): Promise<string[]> {
  try {
    await act();
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ file, line, column, path, message }) =>
      `${file.replace(/^.*\//, "")}:${line}:${column} ${path} ${message}`.trim(),
    );
  }
}

const problemsIn = (frontMatter: string) => problemsOf(() => agent(frontMatter));

describe("an agent's file", () => {
  it("says its model, tools, schemas, attachments and budget", () => {
    const text = `model: local/some/model-7b
tools: [read_file, exec, read_file]
calls: [b.c]
input_schema: { type: object, required: [lang] }
output_schema: { type: array }
attachments: { max_count: 2, max_bytes: 1m, suffixes: [PDF, .md] }
limits: { timeout: 1m, steps: 7, tokens: 9000, cost: 0.25 }`;
    expect(agent(text)).toMatchObject({
      command: null,
      model: "local/some/model-7b",
      agent: {
        model: { kind: "provider", provider: "local", name: "some/model-7b" },
        budget: { steps: 7, tokens: 9000, costUsd: 0.25 },
      },
      tools: ["read_file", "exec"],
      inputSchema: { type: "object", required: ["lang"] },
      outputSchema: { type: "array" },
      attachments: { maxCount: 2, maxBytes: 1_048_576, suffixes: [".pdf", ".md"] },
      output: "json",
      needs: { limits: { timeoutMs: 60_000 } },
    });
  });

  it("has bounds where it says none, and no tools", () => {
    const { agent: defined, tools } = agent("model: anthropic/m");
    expect(defined?.budget).toEqual({ steps: 50, tokens: 1_000_000, costUsd: null });
    expect(tools).toBeUndefined();
  });

  it("may have every tool by one word", () => {
    expect(agent("model: anthropic/m\ntools: all").tools).toContain("git_push");
  });

  it.each([
    ["model: m", "2:8 model must be PROVIDER/NAME"],
    ["model: script/../s.yaml", "must name a script inside of the project's folder"],
    ["model: script//etc/passwd", "must name a script inside of the project's folder"],
    ["model: a/b\ntools: [read_flie]", "tools.0 must be"],
    ["model: a/b\ntools: read_file", "must be a list of tools, or `all`"],
    ["model: a/b\ncalls: [exec]", "`exec` would be the tool `exec` of this agent"],
    [
      "model: a/b\ncalls: [a.b, a_b]",
      "`a_b` would be the tool `a_b` of this agent, but that name belongs to the worker a.b",
    ],
    ["model: a/b\ninput_schema: [1]", "must be a JSON Schema, which is a map"],
    ["command: [a]\nlimits: { steps: 3 }", "limits.steps is only for agents, which have a `model`"],
  ])("refuses %j and says where", async (text, message) => {
    const problems = await problemsIn(text);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(message);
  });
});

describe("a project with agents", () => {
  const files = (corral: string, worker: string, more: Record<string, string> = {}) => ({
    "corral.yaml": `version: 1\n${corral}`,
    "workers/w.worker": `---\n${worker}\n---\n`,
    ...more,
  });

  it("knows Anthropic and OpenAI, and where their keys are", async () => {
    const { models } = await loadProject(await projectFolder(files("", "model: anthropic/m")));
    expect(models.get("anthropic")).toMatchObject({
      api: "anthropic",
      url: null,
      images: true,
      key: { kind: "env", name: "ANTHROPIC_API_KEY" },
    });
    expect(models.get("openai")?.key).toEqual({ kind: "env", name: "OPENAI_API_KEY" });
  });

  it("declares a server of its own, which is not sent the key that is meant for a provider", async () => {
    const corral = `models:
  local: { api: openai-compatible, url: "http://127.0.0.1:8080/v1", prices: { m: { input: 1, output: 2 } } }
  anthropic: { url: "https://proxy.test/v1" }`;
    const { models } = await loadProject(await projectFolder(files(corral, "model: local/m\nlimits: { cost: 1 }")));
    expect(models.get("local")).toMatchObject({ api: "openai-compatible", images: false, key: null });
    expect(models.get("anthropic")).toMatchObject({ url: "https://proxy.test/v1", key: null });
  });

  it.each([
    ["", "model: nobody/m", "there is no provider `nobody`"],
    ["", "model: openai/m\nlimits: { cost: 1 }", "needs the price of `m`: add it under `models.openai.prices`"],
    ["models: { script: { api: openai } }", "model: openai/m", "is reserved"],
    ["models: { mine: { url: 'https://h/v1' } }", "model: openai/m", "needs `api`"],
    ["models: { mine: { api: openai-compatible } }", "model: openai/m", "needs `url`"],
    ["models: { mine: { api: openai, url: 'ftp://h' } }", "model: openai/m", "must be an address"],
    ["models: { mine: { api: openai, url: 'https://u:p@h/' } }", "model: openai/m", "must not contain a user"],
    [
      "models: { mine: { api: openai, url: 'http://h.test/', key: { env: K } } }",
      "model: openai/m",
      "sent unencrypted",
    ],
    ["models: { mine: { api: openai, key: { env: K, command: [a] } } }", "model: openai/m", "needs exactly one of"],
    ["", "model: openai/m\noutput_schema: { type: nothing }", "output_schema is not a JSON Schema"],
    ["", "model: openai/m\noutput_schema: { type: object, requird: [a] }", 'unknown keyword: "requird"'],
    ["", 'model: openai/m\ninput_schema: { $ref: "https://h.test/s.json" }', "input_schema is not a JSON Schema"],
  ])("with %j and %j is refused", async (corral, worker, message) => {
    const dir = await projectFolder(files(corral, worker));
    const problems = await problemsOf(() => loadProject(dir));
    expect(problems.join("\n")).toContain(message);
  });

  it("counts the scripts that play models among what no worker may write", async () => {
    const dir = await projectFolder(files("", "model: script/scripts/s.yaml", { "scripts/s.yaml": "[]" }));
    expect((await loadProject(dir)).ownFiles).toContain(`${dir}/scripts/s.yaml`);
  });

  it("refuses a program for a key that a worker could replace", async () => {
    const dir = await projectFolder(files("", "command: [a]", { "bin/key": "" }));
    const { writeFile } = await import("node:fs/promises");
    await writeFile(
      `${dir}/corral.yaml`,
      `version: 1\nsandbox: { mode: direct, zones: { tools: { path: ./bin, mode: rw } } }\nmodels: { openai: { key: { command: [${dir}/bin/key] } } }`,
    );
    expect((await problemsOf(() => loadProject(dir))).join("\n")).toContain("is where a worker may write");
  });
});
