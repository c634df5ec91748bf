import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { corralYaml } from "../../src/declarations/corral-file.ts";
import { parseWorker } from "../../src/declarations/worker/worker.ts";
import { checkShape, parseYaml } from "../../src/declarations/yaml/document.ts";
import { type ImpliedProject, impliedName, impliedTexts } from "../../src/operations/implied-project.ts";

const BASIC: ImpliedProject = {
  name: "pdftotext",
  image: "corral/documents",
  command: ["pdftotext", "/inbox/a.pdf", "/out/a.txt"],
  paths: [
    { name: "inbox", place: "/inbox", path: "./inbox", mode: "ro", create: false, file: null },
    { name: "out", place: "/out", path: "./out", mode: "rw", create: true, file: null },
  ],
  allow: [],
  packages: [],
  environment: {},
  addresses: [],
  limits: {},
  env: {},
  workdir: null,
  policy: "untrusted",
  isDynamic: false,
  approval: "interactive",
  runsCommands: false,
};

function read(project: ImpliedProject) {
  const { corral, workers } = impliedTexts(project);
  const parsed = parseYaml(corral, "corral.yaml");
  if (!parsed.ok) throw new Error(parsed.problems[0]?.message);
  const checked = checkShape(parsed.document, corralYaml);
  if (!checked.ok) throw new Error(checked.problems[0]?.message);
  return { yaml: checked.value, worker: parseWorker(workers.get(project.name) ?? "", `${project.name}.worker`) };
}

describe("the texts of a project that a command line implies", () => {
  it("say what was asked for and nothing more: writing is staged and asked about, and there is no network", () => {
    const { yaml, worker } = read(BASIC);
    expect(yaml).toMatchObject({ policy: "untrusted", approval: { mode: "interactive" } });
    expect(yaml.sandbox?.paths).toEqual(
      new Map([
        ["inbox", { root: "./inbox", mode: "ro" }],
        ["out", { root: "./out", mode: "rw", create: true, stage: true }],
      ]),
    );
    expect(yaml.sandbox?.network).toBeUndefined();
    expect(worker).toMatchObject({ image: "corral/documents", command: BASIC.command, needs: { inherit: true } });
    expect(worker.shellRules.default).toBe("ask");
    expect(worker.dynamic).toBeNull();
    expect(read({ ...BASIC, isDynamic: true }).worker).toMatchObject({
      dynamic: { within: null },
      needs: { inherit: true },
    });
  });

  it("ask for the network twice: the project gives it, and the worker takes it", () => {
    const { yaml, worker } = read({ ...BASIC, allow: ["files.example.org:443"], packages: ["npm"] });
    expect(yaml.sandbox?.network).toMatchObject({ packages: [{ kind: "npm" }] });
    expect(worker.needs.network).toEqual(yaml.sandbox?.network);
  });

  it("keep every word of a command and every path as they were typed", () => {
    const word = fc.string({ unit: "binary", maxLength: 40 }).filter((text) => !text.includes("\0"));
    fc.assert(
      fc.property(fc.array(word, { maxLength: 5 }), word, (words, path) => {
        const command = ["sh", ...words];
        const root = `./${path}`;
        const { yaml, worker } = read({
          ...BASIC,
          command,
          paths: [{ name: "in", place: "/in", path: root, mode: "ro", create: false, file: null }],
        });
        expect(worker.command).toEqual(command.map((one) => one.toWellFormed()));
        expect(yaml.sandbox?.paths?.get("in")?.root).toBe(root);
      }),
      { numRuns: 50 },
    );
  });

  it("have limits, variables, packages, and a folder with any name at its place", () => {
    const { yaml, worker } = read({
      ...BASIC,
      environment: { apt: ["jq"], pip: ["lxml==5.3.0", "requests[socks]>=2,<3"], npm: ["@acme/demo", "cowsay@^1.6.0"] },
      addresses: ["10.0.0.0/8"],
      packages: ["npm"],
      allow: ["a.example.org:443", "127.0.0.1:80=127.0.0.1/32"],
      limits: { timeout: "10m", cpus: "0.5", pids: "9" },
      env: { A: "1", B: "x: {y}\n---" },
      workdir: "/My Documents",
      paths: [
        { name: "My-Documents", place: "/My Documents", path: "My Documents", mode: "rw", create: true, file: null },
      ],
    });
    expect(yaml.sandbox?.paths?.get("My-Documents")).toMatchObject({ root: "My Documents", at: "/My Documents" });
    expect(yaml.sandbox?.network).toMatchObject({
      packages: [{ kind: "npm", addresses: ["10.0.0.0/8"] }],
      allow: [{ to: "a.example.org:443" }, { to: "127.0.0.1:80", addresses: ["127.0.0.1/32"] }],
    });
    expect(yaml.approval.rules).toMatchObject([{ paths: ["/My Documents/corral.yaml"] }]);
    expect(worker).toMatchObject({
      env: { A: "1", B: "x: {y}\n---" },
      environment: {
        apt: ["jq"],
        pip: ["lxml==5.3.0", "requests[socks]>=2,<3"],
        npm: ["@acme/demo", "cowsay@^1.6.0"],
        addresses: ["10.0.0.0/8"],
      },
      needs: { limits: { timeoutMs: 600_000, cpus: 0.5, pids: 9 }, workingDir: "/My Documents" },
    });
  });

  it("end the front matter where it ends, whatever a command says", () => {
    const command = ["sh", "-c", "a\n---\nimage: evil\n---\n# b\n"];
    expect(read({ ...BASIC, command }).worker).toMatchObject({ command, image: "corral/documents", instructions: "" });
  });

  it("deny a corral.yaml at the top of what the command may write", () => {
    expect(read(BASIC).yaml.approval.rules).toMatchObject([{ decide: "deny", paths: ["/out/corral.yaml"] }]);
    const one = (file: string) =>
      read({ ...BASIC, paths: [{ name: "f", place: "/f", path: file, mode: "rw", create: false, file }] });
    expect(one("corral.yaml").yaml.approval.rules).toMatchObject([{ decide: "deny", paths: ["/f"] }]);
    expect(one("notes.txt").yaml.approval.rules).toEqual([]);
  });
});

describe("the name of such a worker", () => {
  it.each([
    [["/usr/bin/pdftotext", "a"], "pdftotext"],
    [["sh"], "sh"],
    [["./a b"], "command"],
    [["\u001b[2J"], "command"],
    [["/"], "command"],
  ])("of %j is %s", (command, name) => {
    expect(impliedName(command)).toBe(name);
  });
});
