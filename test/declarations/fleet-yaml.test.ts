import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fleetNamed, fleetNames, parseFleet } from "../../src/declarations/fleet.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { parseTemplate } from "../../src/declarations/terms/sandbox-form.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

const LEAST = "version: 1\nworker: w\nover: inbox/*.pdf\n";

function problemsIn(text: string, file = "fleets/f.yaml"): string[] {
  try {
    parseFleet(text, file);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
  }
}

describe("a fleet's file", () => {
  it("is read whole", () => {
    const text = `version: 1
description: Every PDF as text
worker: extract-text
manifest: ./items.jsonl
format: jsonl
within: [/data]
attach: ["{path}=in.pdf"]
allow_read: "/shared"
allow_write: ["/text/{stem}"]
input: { lang: "{lang}", pages: ["{meta.first}", 3], strict: true, none: null }
key: "{id}"
concurrency: 8
reuse: scrubbed
retries: 2
max_failures: 0
cache: false
policy: batch
timeout: 30s
`;
    expect(parseFleet(text, "fleets/all.yaml")).toEqual({
      name: "all",
      file: "fleets/all.yaml",
      description: "Every PDF as text",
      worker: "extract-text",
      items: { kind: "manifest", path: "./items.jsonl", format: "jsonl", within: ["/data"] },
      template: {
        attach: ["{path}=in.pdf"],
        allowRead: ["/shared"],
        allowWrite: ["/text/{stem}"],
        input: { lang: "{lang}", pages: ["{meta.first}", 3], strict: true, none: null },
        key: "{id}",
      },
      concurrency: 8,
      reuse: "scrubbed",
      retries: 2,
      machines: null,
      maxFailures: 0,
      cache: false,
      policyName: "batch",
      timeoutMs: 30_000,
      allowEmpty: false,
    });
  });

  it("needs a worker and its items, and leaves the rest to what is safe", () => {
    expect(parseFleet(LEAST, "f.yaml")).toEqual({
      name: "f",
      file: "f.yaml",
      description: "",
      worker: "w",
      items: { kind: "glob", pattern: "inbox/*.pdf" },
      template: { attach: [] },
      concurrency: "auto",
      reuse: "fresh",
      retries: 0,
      machines: null,
      maxFailures: null,
      cache: true,
      policyName: null,
      timeoutMs: null,
      allowEmpty: false,
    });
    expect(parseFleet(LEAST.replace("over: inbox/*.pdf", "manifest: a.csv"), "f.yaml").items).toEqual({
      kind: "manifest",
      path: "a.csv",
      format: null,
      within: [],
    });
  });

  it("hands a text for input on as JSON, since that is what it is on the command line", () => {
    expect(parseFleet(`${LEAST}input: "{lang}"`, "f.yaml").template.input).toBe('"{lang}"');
    expect(parseFleet(`${LEAST}input: null`, "f.yaml").template.input).toBeNull();
  });

  it("has every problem told at its line and column", () => {
    const text = `version: 2
worker: ../w
attach: [{path}]
allow_writes: [/text]
allow_write: ["/text/{stem"]
input:
  lang: ["{lang}", "{}"]
  size: .inf
reuse: warm
retries: -1
concurrency: many
timeout: 30
`;
    expect(problemsIn(text)).toEqual([
      "1:1  needs `over` (files that match a pattern) or `manifest` (a file with one item a line)",
      "1:10 version must be 1, not 2",
      "2:9 worker must be 1 to 64 letters, digits, `.`, `_` or `-`, and not begin with a dot",
      '3:10 attach.0 must be a text; put a text with braces in quotes, such as "/text/{stem}"',
      "4:1 allow_writes unknown key `allow_writes`, did you mean `allow_write`?",
      "5:15 allow_write.0 has a single `{`; `{name}` is a field; write `{{` and `}}` for braces",
      "7:20 input.lang.1 has braces without a field's name; `{name}` is a field; write `{{` and `}}` for braces",
      "8:9 input.size is a number that JSON cannot express",
      '9:8 reuse must be "fresh" or "scrubbed", not "warm"',
      "10:10 retries must be at least 0",
      '11:14 concurrency must be "auto", not "many"',
      "12:10 timeout must be a duration such as `500ms`, `30s`, `5m` or `1h`",
    ]);
  });

  it("takes its items from one place, and says how a manifest is to be read only of one", () => {
    expect(problemsIn(`${LEAST}manifest: a.csv`)).toEqual([
      "4:1 manifest `over` and `manifest` cannot be used together; items come from one source",
    ]);
    expect(problemsIn(`${LEAST}format: csv\nwithin: [/data]`)).toEqual([
      "4:1 format is only for `manifest`",
      "5:1 within is only for `manifest`",
    ]);
  });

  it("is called so that it can be named on a command line", () => {
    expect(problemsIn(LEAST, "fleets/a b.yaml")).toEqual([
      "1:1  the file's name without .yaml must be 1 to 64 letters, digits, `.`, `_` or `-`, and not begin with a dot",
    ]);
  });
});

describe("a fleet of a project", () => {
  const FILES = {
    "corral.yaml": "version: 1",
    "workers/extract.worker": "---\ncommand: [date]\n---\n",
    "fleets/pages.yaml": "version: 1\nworker: extract\nover: '*.pdf'\n",
    "fleets/typo.yaml": "version: 1\nworker: extrakt\nover: '*.pdf'\n",
    "fleets/.hidden.yaml": "",
    "fleets/notes.txt": "",
  };

  it("is found by its name", async () => {
    const dir = await projectFolder(FILES);
    const project = await loadProject(dir);
    expect(await fleetNames(join(dir, "fleets"))).toEqual(["pages", "typo"]);
    const fleet = await fleetNamed(project, "pages", "shown");
    expect(fleet).toMatchObject({ name: "pages", file: "shown/fleets/pages.yaml", worker: "extract" });
  });

  it("is run as corral.yaml says, where its own file does not", async () => {
    const files = {
      ...FILES,
      "corral.yaml": "version: 1\nfleet: { concurrency: 2, retries: 3, timeout: 1m, cache: false }",
      "fleets/own.yaml": "version: 1\nworker: extract\nover: '*.pdf'\nconcurrency: auto\nretries: 0\n",
    };
    const project = await loadProject(await projectFolder(files));
    const silent = { concurrency: 2, retries: 3, timeoutMs: 60_000, cache: false, reuse: "fresh", maxFailures: null };
    expect(await fleetNamed(project, "pages")).toMatchObject(silent);
    expect(await fleetNamed(project, "own")).toMatchObject({ ...silent, concurrency: "auto", retries: 0 });
  });

  it("is told what is wrong with what corral.yaml says of all fleets", async () => {
    const dir = await projectFolder({ "corral.yaml": "version: 1\nfleet: { concurency: 2, retries: -1 }" });
    await expect(loadProject(dir)).rejects.toThrow(
      /fleet\.concurency: unknown key `concurency`, did you mean `concurrency`\?[\s\S]*fleet\.retries: /,
    );
  });

  it.each([
    ["page", "shown/fleets/page.yaml:1:1: does not exist, did you mean `pages`?"],
    ["else", "shown/fleets/else.yaml:1:1: does not exist; there are: folder, loop, pages, typo"],
    ["../x", /a fleet's name must be 1 to 64 letters/],
    ["folder", "shown/fleets/folder.yaml:1:1: is a folder, not a file"],
    ["loop", "shown/fleets/loop.yaml:1:1: cannot be opened: too many symbolic links"],
    [
      "typo",
      /^shown\/fleets\/typo\.yaml:2:9: worker: there is no worker `extrakt` in this project, did you mean `extract`\?/,
    ],
  ])("is refused where there is no such, or its worker is none: %s", async (name, message) => {
    const dir = await projectFolder(FILES);
    await mkdir(join(dir, "fleets/folder.yaml"));
    await symlink("loop.yaml", join(dir, "fleets/loop.yaml"));
    await expect(fleetNamed(await loadProject(dir), name, "shown")).rejects.toThrow(message);
  });

  it("is none that a worker could have made: where one may write, the folder has to be named, and is then read-only", async () => {
    const files = { ...FILES, "corral.yaml": "version: 1\nsandbox: { root: { root: . } }" };
    const unnamed = await loadProject(await projectFolder(files));
    await expect(fleetNamed(unnamed, "pages", "shown")).rejects.toThrow(
      /^shown\/corral\.yaml:1:1: fleets: workers may/,
    );
    const named = { ...files, "corral.yaml": `${files["corral.yaml"]}\nfleets: ./fleets` };
    const project = await loadProject(await projectFolder(named));
    expect(await fleetNamed(project, "pages", "shown")).toMatchObject({ name: "pages" });
    expect(project.declaration.mounts).toContainEqual(expect.objectContaining({ path: "/fleets", mode: "ro" }));
  });

  it("is none where the project has no fleets", async () => {
    const dir = await projectFolder({ "corral.yaml": "version: 1" });
    await expect(fleetNamed(await loadProject(dir), "x", "")).rejects.toThrow(
      "fleets/x.yaml:1:1: does not exist; the project has no fleets",
    );
  });
});

describe("the text of a template", () => {
  it("is text and fields, with doubled braces for braces", () => {
    expect(parseTemplate("a{b}{ c.d }{{e}}{{{f}}}")).toEqual({
      ok: true,
      parts: [{ text: "a" }, { field: "b" }, { field: "c.d" }, { text: "{e}{" }, { field: "f" }, { text: "}" }],
    });
    expect(parseTemplate("")).toEqual({ ok: true, parts: [] });
  });

  it.each(["{", "}", "{a", "a}", "{{}", "{}", "{ }", "{a{b}}", "{a}}", `{${"x".repeat(257)}}`, "x".repeat(65_537)])(
    "is refused where nobody could say what is meant: %#",
    (raw) => {
      expect(parseTemplate(raw).ok).toBe(false);
    },
  );
});
