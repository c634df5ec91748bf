import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "yaml";
import type { BranchJob, Step } from "../attacks/ci/branch-job.ts";

interface ActionStep {
  readonly id?: string;
  readonly name?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly if?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly with?: Readonly<Record<string, string>>;
}

export interface Action {
  readonly inputs: Readonly<Record<string, { readonly default: string }>>;
  readonly outputs: Readonly<Record<string, { readonly value: string }>>;
  readonly runs: { readonly using: string; readonly steps: readonly ActionStep[] };
}

export async function readAction(path: string): Promise<Action> {
  return parse(await readFile(path, "utf8")) as Action;
}

export interface GithubRun {
  /** Of each script, by the name of its step. */
  readonly scripts: Readonly<Record<string, Step>>;
  readonly outputs: Readonly<Record<string, string>>;
  /** The other actions that ran, without their versions, with what they got. */
  readonly others: readonly (readonly [name: string, given: Readonly<Record<string, string>>])[];
}

/**
 * The steps of a composite action as the runner takes them for one event: conditions, expressions, files of commands, and a cache
 * in the folder `kept`.
 */
export async function runAction(
  { inputs, outputs, runs }: Action,
  {
    job,
    kept,
    place,
    event: { name, payload, sha, ref },
    given,
    env = {},
  }: {
    readonly job: BranchJob;
    readonly kept: string;
    /** The folder of the action. */
    readonly place: string;
    readonly event: { readonly name: string; readonly payload: object; readonly sha: string; readonly ref: string };
    readonly given: Readonly<Record<string, string>>;
    readonly env?: Readonly<Record<string, string>>;
  },
): Promise<GithubRun> {
  const temp = await mkdtemp(join(tmpdir(), "corral-runner-"));
  try {
    const file = async (named: string, content = "") => {
      await writeFile(join(temp, named), content);
      return join(temp, named);
    };
    const values: Record<string, string> = {
      "github.sha": sha,
      "github.job": "test",
      "strategy.job-index": "0",
      ...Object.fromEntries(
        Object.entries(inputs).map(([key, input]) => [`inputs.${key}`, given[key] ?? input.default]),
      ),
    };
    const filled = (text: string): string =>
      text.replaceAll(/\$\{\{ (.+?) \}\}/g, (_, key: string) => {
        // Those of a step that did not run are empty.
        const value = values[key] ?? (key.startsWith("steps.") ? "" : undefined);
        if (value === undefined) throw new Error(`the harness does not know ${key}`);
        return value;
      });
    const common = {
      GITHUB_ACTIONS: "true",
      GITHUB_EVENT_NAME: name,
      GITHUB_EVENT_PATH: await file("event.json", JSON.stringify(payload)),
      GITHUB_SHA: sha,
      GITHUB_REF: ref,
      GITHUB_WORKSPACE: job.dir,
      GITHUB_ACTION_PATH: place,
      RUNNER_TEMP: temp,
    };
    const scripts: Record<string, Step> = {};
    const others: [string, Readonly<Record<string, string>>][] = [];
    let failed = false;
    for (const [index, step] of runs.steps.entries()) {
      const conditions = (step.if ?? "success()").split(" && ").map((one) => {
        if (one === "success()") return !failed;
        if (one === "always()") return true;
        if (one === "github.event_name == 'push'") return name === "push";
        throw new Error(`the harness does not know ${one}`);
      });
      if (conditions.includes(false)) continue;
      const all = (texts: Readonly<Record<string, string>> = {}) =>
        Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, filled(String(text))]));
      if (step.run !== undefined) {
        const output = await file(`output-${index}`);
        const script = await file(`script-${index}.sh`, step.run);
        const files = { GITHUB_OUTPUT: output, GITHUB_STEP_SUMMARY: await file(`summary-${index}`) };
        const ran = await job.step(`bash --noprofile --norc -eo pipefail '${script}'`, {
          ...common,
          ...files,
          ...env,
          ...all(step.env),
        });
        scripts[step.name ?? String(index)] = ran;
        failed ||= ran.status !== 0;
        for (const line of (await readFile(output, "utf8")).trim().split("\n")) {
          const [key = "", ...rest] = line.split("=");
          if (step.id !== undefined && key !== "") values[`steps.${step.id}.outputs.${key}`] = rest.join("=");
        }
        continue;
      }
      const [used = ""] = (step.uses ?? "").split("@");
      const options = all(step.with);
      others.push([used, options]);
      const path = join(job.dir, options.path ?? "");
      if (used === "actions/cache/restore") await cp(kept, path, { recursive: true });
      if (used === "actions/cache/save") await cp(path, kept, { recursive: true }).catch(() => {});
    }
    const told = Object.entries(outputs).map(([key, { value }]) => [key, filled(value)]);
    return { scripts, others, outputs: Object.fromEntries(told) };
  } finally {
    await rm(temp, { recursive: true, force: true });
  }
}
