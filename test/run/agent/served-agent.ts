import type { AgentEvent } from "../../../src/agent/events.ts";
import type { RunResult } from "../../../src/index.ts";
import { run } from "../../../src/run/run.ts";
import type { SpokenApi } from "../../agent/provider-apis.ts";
import type { Behaviours, ModelServer } from "../../agent/servers/model-server.ts";
import { openProject, type ProjectFixture, type ProjectSpec, type RunOptions } from "../project-fixture.ts";

/** What the agents' server is sent as their key. */
export const KEY = 'sk-canary-51c0ffee/+quoted"key';

/** As patient as anybody is, and a thousand times as quick. */
const QUICK = { attempts: 3, firstWaitMs: 2, maxWaitMs: 1000, maxSilenceMs: 1000 };

export interface ServedSpec extends Omit<Partial<ProjectSpec>, "workers"> {
  /** Front matter of the agent `a`, but for its model. */
  readonly agent?: Readonly<Record<string, unknown>>;
  readonly workers?: ProjectSpec["workers"];
  /** Absent: {@link KEY}. */
  readonly key?: string;
  /** How long its server may send nothing, if that is longer than usual here. */
  readonly maxSilenceMs?: number;
  /** Other fields of the provider. */
  readonly provider?: Readonly<Record<string, unknown>>;
}

/** A project whose agents' models are at a local server. */
export interface ServedAgents extends AsyncDisposable {
  readonly project: ProjectFixture;
  readonly server: ModelServer;
  run(worker?: string, options?: RunOptions): Promise<RunResult>;
  /** Ends all but the files: whatever was yet to be written is written. Nothing runs after that. */
  close(): Promise<void>;
  /** What agents did, in order; without the pieces of text. */
  acts(): AgentEvent[];
  /** The refusals that tools answered with, by tool; null where one did what it was asked. */
  codes(): [tool: string, code: string | null][];
}

/** The name of the model of every agent here. */
export const modelAt = ({ model }: SpokenApi): string => `here/${model}`;

export async function servedAgents(
  spoken: SpokenApi,
  behaviours: Behaviours,
  {
    agent = {},
    workers = {},
    key = KEY,
    maxSilenceMs = QUICK.maxSilenceMs,
    provider = {},
    yaml = {},
    ...spec
  }: ServedSpec = {},
): Promise<ServedAgents> {
  const stack = new AsyncDisposableStack();
  const server = stack.use(await spoken.serve(behaviours));
  const here = { api: spoken.api, url: server.url, key: { env: "TEST_MODEL_KEY" }, ...provider };
  const project = stack.use(
    await openProject(
      {
        zones: { in: "ro", out: "rw" },
        ...spec,
        yaml: { ...yaml, models: { here, ...(yaml.models ?? {}) } },
        workers: { a: { model: modelAt(spoken), ...agent }, ...workers },
      },
      { engineEnv: { ...process.env, TEST_MODEL_KEY: key } },
    ),
  );
  const { environment } = project.corral;
  const quick = { ...environment, models: { ...environment.models, patience: { ...QUICK, maxSilenceMs } } };
  const acts = (): AgentEvent[] =>
    project.events.flatMap((event) => (event.type === "agent" && event.act.kind !== "text" ? [event.act] : []));
  return {
    project,
    server,
    acts,
    close: async () => await project.corral[Symbol.asyncDispose](),
    codes: () => acts().flatMap((act) => (act.kind === "called" ? [[act.tool, act.code] as const] : [])) as never,
    async run(name = "a", { signal = new AbortController().signal, ...options } = {}) {
      const worker = environment.project.workers.get(name);
      if (worker === undefined) throw new Error(`there is no worker ${name}`);
      return await run({ worker, ...options, signal }, quick);
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
