import { describe, expect, it } from "vitest";
import { parseWorker } from "../../src/declarations/worker/worker.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";

function worker(frontMatter: string, instructions = "", file = "workers/w.worker") {
  return parseWorker(`---\n${frontMatter}\n---\n${instructions}`, file);
}

function problemsIn(frontMatter: string, file?: string): string[] {
  try {
    worker(frontMatter, "", file);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
  }
}

describe("a worker file", () => {
  it("is read whole", () => {
    const text = `name: extract-text
description: Turn one PDF into text
image: corral/documents
command: [pdftotext, /attachments/in.pdf, /text/out.txt]
calls: [ocr-page]
sandbox: { zones: [{ name: text, mode: rw, approval: pre_approved }] }
limits: { timeout: 30s, memory: 256m, cpus: 1, pids: 64, output: 1m, disk: 64m }
policy: untrusted`;
    expect(worker(text, "\nFor people.\n", "workers/extract-text.worker")).toEqual({
      name: "extract-text",
      file: "workers/extract-text.worker",
      description: "Turn one PDF into text",
      image: "corral/documents",
      command: ["pdftotext", "/attachments/in.pdf", "/text/out.txt"],
      model: null,
      instructions: "For people.",
      calls: ["ocr-page"],
      needs: {
        zones: [{ name: "text", mode: "rw", approval: { write: "pre_approved", delete: "pre_approved" } }],
        limits: {
          timeoutMs: 30_000,
          memoryBytes: 268_435_456,
          cpus: 1,
          pids: 64,
          outputBytes: 1_048_576,
          diskBytes: 67_108_864,
        },
      },
      dynamic: null,
      shellRules: { default: "ask", rules: [] },
      policyName: "untrusted",
      output: "text",
      env: {},
    });
  });

  it("needs nothing but what to run, and then has no access to anything", () => {
    const { name, image, needs, policyName, calls } = worker("command: [date]");
    expect({ name, image, needs, policyName, calls }).toEqual({
      name: "w",
      image: "corral/base",
      needs: {},
      policyName: null,
      calls: [],
    });
  });

  it("can be an agent: a model, and the instructions below the front matter", () => {
    const agent = worker("model: some/model\nsandbox: { inherit: true }", "\n# Do it\n\n---\nwith rules\n");
    expect(agent).toMatchObject({ command: null, model: "some/model", instructions: "# Do it\n\n---\nwith rules" });
  });

  it("may narrow its caller's access by lists, where a single path needs no brackets", () => {
    const text =
      "command: [ls]\nsandbox: { allow_read: data/in, allow_write: ['data:out', ~/x], readonly: false, working_dir: data }";
    expect(worker(text).needs).toEqual({
      allowRead: ["data/in"],
      allowWrite: ["data:out", "~/x"],
      readonly: false,
      workingDir: "data",
    });
  });

  it("may bring paths of its own, with constraints", () => {
    const text = `command: [ls]
sandbox:
  paths:
    portfolio: { root: ./portfolio, mode: rw, suffixes: [.md, .pdf], max_file_bytes: 10000000 }
    pipeline: { root: ./pipeline }
  network: { allow: ["example.org:443"] }
  require_os_sandbox: true`;
    expect(worker(text).needs).toEqual({
      paths: [
        { name: "portfolio", root: "./portfolio", mode: "rw", suffixes: [".md", ".pdf"], maxFileBytes: 10_000_000 },
        { name: "pipeline", root: "./pipeline", mode: "ro" },
      ],
      network: { allow: [{ to: "example.org:443" }] },
    });
  });

  it("reads each approval, and asks for what is not named", () => {
    const text =
      "command: [ls]\nsandbox: { zones: [{ name: drafts, mode: rw, approval: { write: pre_approved } }, { name: final, approval: { delete: blocked } }] }";
    expect(worker(text).needs.zones).toEqual([
      { name: "drafts", mode: "rw", approval: { write: "pre_approved", delete: "ask" } },
      { name: "final", approval: { write: "ask", delete: "blocked" } },
    ]);
  });

  it.each([
    ["", null],
    ["dynamic: false", null],
    ["dynamic: true", { within: null, max: 8 }],
    ["dynamic: { within: [./src, ../docs] }", { within: ["./src", "../docs"], max: 8 }],
    ["dynamic: { within: [], max: 64 }", { within: [], max: 64 }],
    ["dynamic: { max: 2 }", { within: null, max: 2 }],
  ])("with { %s } may be granted this at run time", (text, dynamic) => {
    expect(worker(`command: [ls]\nsandbox: { ${text} }`).dynamic).toEqual(dynamic);
  });

  it("keeps Windows line ends and a byte order mark out of the way", () => {
    expect(parseWorker("\uFEFF---\r\ncommand: [a]\r\n---\r\nHello\r\n", "w.worker").instructions).toBe("Hello");
  });
});

describe("problems of a worker file", () => {
  it("come all at once, at lines of the whole file", () => {
    const text = `name: other
comand: [ls]
image: Bad Image
limits: { timeout: 30, memory: 64 MB }
sandbox:
  zones: [{ name: data, mode: wr }, { name: etc }]
env: { CORRAL_SOCKET: x, 1A: y, OK: 5 }
output: xml`;
    expect(problemsIn(text)).toEqual([
      "2:7 name must be `w`, the name of its file",
      "3:1 comand unknown key `comand`, did you mean `command`?",
      "4:8 image must be the name of an image such as `corral/base`",
      "5:20 limits.timeout must be a duration such as `500ms`, `30s`, `5m` or `1h`",
      "5:32 limits.memory must be a size such as `512k`, `64m`, `1g`, or a number of bytes",
      '7:31 sandbox.zones.0.mode must be "ro" or "rw", not "wr"',
      "7:45 sandbox.zones.1.name is reserved: it would hide a system directory of the cell",
      "8:8 env.CORRAL_SOCKET is reserved: names that begin with CORRAL_ are Corral's own",
      "8:26 env.1A must be letters, digits and `_`, and not begin with a digit",
      '8:37 env.OK must be a text, not 5; write it in quotes: "5"',
      '9:9 output must be "text" or "json", not "xml"',
    ]);
  });

  it.each([
    ["command: pdftotext in.pdf -", "2:10 command must be a list of words; write it as [pdftotext, in.pdf, -]"],
    ["command: []", "2:10 command must not be empty"],
    ["command: [sleep, 5]", '2:18 command.1 must be a text, not 5; write it in quotes: "5"'],
    ['command: [""]', "2:11 command.0 must name a program"],
    [
      "command: [a]\nmodel: p/m",
      "3:1 model `command` and `model` cannot be used together; a worker is a command or an agent",
    ],
    ["command: [a]\ncalls: [../b]", /^3:9 calls\.0 must be 1 to 64 letters/],
    ["command: [a]\nsandbox: { require_os_sandbox: maybe }", /^3:32 sandbox\.require_os_sandbox must be/],
    [
      "command: [a]\nsandbox: { network: { allow: [example.org] } }",
      /^3:31 sandbox\.network\.allow\.0 .*port is missing/,
    ],
    ["command: [a]\nsandbox: { allow_read: [/a, /../b] }", /^3:29 sandbox\.allow_read\.1 `\.\.` would leave/],
    ["command: [a]\nsandbox: { allow_read: 'C:\\x' }", /^3:24 sandbox\.allow_read backslashes/],
    ["command: [a]\nsandbox: { zones: [{ name: a }, { name: a }] }", "3:41 sandbox.zones.1.name `a` is listed twice"],
    ["command: [a]\nsandbox: { zones: { a: rw } }", "3:19 sandbox.zones must be a list, not a map"],
    [
      "command: [a]\nsandbox: { approval: sure }",
      '3:22 sandbox.approval must be "pre_approved", "ask" or "blocked", not "sure"',
    ],
    [
      "command: [a]\nsandbox: { dynamic: everywhere }",
      "3:21 sandbox.dynamic must be `true`, `false` or `{ within: [folders], max: 8 }`",
    ],
    ["command: [a]\nsandbox: { dynamic: { max: 65 } }", "3:28 sandbox.dynamic.max must be at most 64"],
    ["command: [a]\nsandbox: { dynamic: { in: [.] } }", /^3:23 sandbox\.dynamic\.in unknown key `in`/],
    ["command: [a]\nlimits: { pids: 0, cpus: 1.5, memory: 1t }", "3:17 limits.pids must be at least 1"],
  ])("%j is refused at its place", (text, expected) => {
    const [first] = problemsIn(text);
    if (typeof expected === "string") expect(first).toBe(expected);
    else expect(first).toMatch(expected);
  });

  it.each([
    ["zones: [], paths: {}", "zones", "paths"],
    ["inherit: true, zones: []", "zones", "inherit"],
    ["allow_write: [/a], paths: {}", "paths", "allow_write"],
  ])("{ %s } mixes two ways of asking, and both are named", (sandbox, one, other) => {
    const problems = problemsIn(`command: [a]\nsandbox: { ${sandbox} }`);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(`\`${one}\` and \`${other}\` cannot be used together`);
  });

  it("say what is wrong with the front matter's own lines, and with the file's name", () => {
    expect(() => parseWorker("command: [a]", "w.worker")).toThrow("w.worker:1:1: must begin with a line `---`");
    expect(() => parseWorker("---\ncommand: [a]\n", "w.worker")).toThrow("w.worker:1:1: has no second line `---`");
    expect(problemsIn("command: [a]", "workers/a b.worker")[0]).toContain(
      "the file's name without .worker must be 1 to 64",
    );
  });
});
