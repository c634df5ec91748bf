import { readdir, readFile } from "node:fs/promises";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";

/** It imports JSON without saying so, as bundlers allow and Node does not. */
const hooks = registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    return resolved.url.endsWith(".json") ? { ...resolved, importAttributes: { type: "json" } } : resolved;
  },
});
const { convertWorkflowTemplate, NoOperationTraceWriter, parseWorkflow } = await import("@actions/workflow-parser");
hooks.deregister();

const ROOT = join(import.meta.dirname, "..");
const DIR = join(ROOT, ".github/workflows");

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<
    Record<
      string,
      {
        readonly permissions?: Readonly<Record<string, string>>;
        readonly steps: readonly Step[];
        readonly "timeout-minutes"?: number;
      }
    >
  >;
}

/** What a job may do beside reading, and what for; in `release.yml`, the description of each is beside it. */
const MAY_WRITE = ["release publish id-token", "release files contents"];

const files = await readdir(DIR);
const texts = await Promise.all(files.map((file) => readFile(join(DIR, file), "utf8")));

/** What GitHub's own parser objects to. */
async function faultsOf(name: string, content: string): Promise<string[]> {
  const { context, value } = parseWorkflow({ name, content }, new NoOperationTraceWriter());
  const faults = context.errors.getErrors().map(String);
  if (value === undefined) return faults.length > 0 ? faults : ["it has no content"];
  const template = await convertWorkflowTemplate(context, value);
  return [...faults, ...(template.errors ?? []).map(({ Message }) => Message)];
}

describe.each(files.map((file, at) => [file, texts[at] ?? ""] as const))("%s", (file, text) => {
  const workflow = parse(text) as Workflow;
  const jobs = Object.entries(workflow.jobs);
  const steps = jobs.flatMap(([, job]) => job.steps);

  it("is a workflow for GitHub's own parser", async () => {
    expect(await faultsOf(file, text)).toEqual([]);
  });

  it("may do no more than it needs, and its token stays out of the work tree", () => {
    expect(workflow.permissions).toBeDefined();
    const all = [["", workflow] as const, ...jobs].flatMap(([job, { permissions = {} }]) =>
      Object.entries(permissions).map(([what, access]) => ({
        who: `${file.replace(".yml", "")} ${job} ${what}`,
        access,
      })),
    );
    expect(all.filter(({ access }) => access !== "read").map(({ who }) => who)).toEqual(
      MAY_WRITE.filter((who) => who.startsWith(file.replace(".yml", " "))),
    );
    expect(Object.keys(workflow.on)).not.toContain("pull_request_target");
    const checkouts = steps.filter(({ uses = "" }) => uses.startsWith("actions/checkout@"));
    expect(checkouts.map((step) => step.with?.["persist-credentials"])).toEqual(checkouts.map(() => false));
  });

  it("names each action by its commit, with the version, and puts nothing of an event into a script", () => {
    const uses = text.split("\n").filter((line) => line.includes("uses:"));
    expect(uses.filter((line) => !/uses: actions\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([]);
    expect(steps.filter(({ run = "" }) => run.includes("${{"))).toEqual([]);
    expect(jobs.filter(([, job]) => job["timeout-minutes"] === undefined)).toEqual([]);
  });

  it("runs scripts of npm that there are", async () => {
    const { scripts } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
    const named = steps.flatMap(({ run = "" }) =>
      [...run.matchAll(/npm (?:run )?(test\b[\w:]*|(?<=run )[\w:-]+)/g)].map(([, name = ""]) => name),
    );
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => scripts[name] === undefined)).toEqual([]);
  });
});

describe("what corral init ci writes for GitHub", () => {
  const pinned = /uses: actions\/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+(:.*)?$/;
  const usesIn = (text: string) => text.split("\n").filter((line) => /^ +(- )?uses:/.test(line));

  it("is a workflow for GitHub's own parser, which checks out the base alone, reads, and has the action beside it", async () => {
    const text = await readFile(join(ROOT, "templates/ci/github/workflow.yml"), "utf8");
    expect(await faultsOf("corral.yml", text)).toEqual([]);
    const { on, permissions, jobs } = parse(text) as Workflow;
    expect(Object.keys(on)).toEqual(["pull_request_target", "push"]);
    expect(permissions).toEqual({ contents: "read" });
    const [checkout, action, ...more] = Object.values(jobs).flatMap(({ steps }) => steps);
    expect([Object.keys(checkout ?? {}), action?.uses, more]).toEqual([["uses"], "./.github/corral", []]);
    expect(usesIn(text).filter((line) => !pinned.test(line) && !line.includes("./.github/corral"))).toEqual([]);
  });

  it("and the action name others by their commits, and put nothing of an event or an input into a script", async () => {
    const text = await readFile(join(ROOT, "action.yml"), "utf8");
    const { runs, inputs } = parse(text) as { runs: { steps: Step[] }; inputs: object };
    expect(usesIn(text).length).toBeGreaterThan(3);
    expect(usesIn(text).filter((line) => !pinned.test(line))).toEqual([]);
    expect(runs.steps.filter(({ run = "" }) => run.includes("${{"))).toEqual([]);
    const used = [...text.matchAll(/\$\{\{ inputs\.(\w+) \}\}/g)].map(([, name = ""]) => name);
    expect([...new Set(used)].toSorted()).toEqual(Object.keys(inputs).toSorted());
  });
});

it.each([
  ["an unknown key", "on: push\njobs:\n  a:\n    runs-on: x\n    step: []\n", /step/],
  [
    "a job that needs one which does not exist",
    "on: push\njobs:\n  a:\n    runs-on: x\n    needs: b\n    steps: [{ run: 'true' }]\n",
    /no dependencies/,
  ],
  [
    "a permission that does not exist",
    "on: push\npermissions: { content: read }\njobs:\n  a:\n    runs-on: x\n    steps: [{ run: 'true' }]\n",
    /content/,
  ],
])("the parser finds %s", async (_, content, fault) => {
  expect((await faultsOf("x.yml", content)).join("\n")).toMatch(fault);
});
