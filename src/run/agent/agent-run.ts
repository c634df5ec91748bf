import type { OnAsking } from "../../agent/asked-again.ts";
import { ModelFailure } from "../../agent/events.ts";
import { type AgentEnding, runAgent } from "../../agent/loop.ts";
import { openModel } from "../../agent/open-model.ts";
import { Spending } from "../../agent/spending.ts";
import { Transcript } from "../../agent/transcript.ts";
import type { Stage } from "../../changes/stage.ts";
import type { AgentDefinition } from "../../declarations/worker/worker.ts";
import type { Meter } from "../../egress/traffic/traffic.ts";
import { planLimits } from "../../isolation/plan/plan-for.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { currentOwner, formatOwner } from "../../state/owner.ts";
import { Calls, type Perform } from "../calls/calls.ts";
import { pinAttachments } from "../cell/attachment-pins.ts";
import { refusedMounts } from "../changes/open-stage.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Grantee } from "../model/grantee.ts";
import { identityOf, type Job } from "../model/job.ts";
import { BoundedOutput } from "../model/output.ts";
import { type RunResult, refusedResult } from "../model/result.ts";
import { AgentEnd } from "./agent-end.ts";
import { agentReport, agentResult } from "./agent-result.ts";
import { agentTools, type ToolSession } from "./agent-tools.ts";
import { systemPrompt, taskText } from "./prompt.ts";

export interface AgentSurroundings {
  readonly grantee: Grantee;
  readonly stage: Stage;
  readonly env: RunEnvironment;
  /** The budget for the network of the workers that it calls. */
  readonly meter: Meter | null;
  /** Runs the workers that it calls. */
  readonly perform: Perform;
  readonly openSession: (job: Job, call: Calls["call"]) => Promise<AgentSession>;
}

/** What an agent needs of a session. */
export interface AgentSession extends ToolSession, AsyncDisposable {
  readonly sandbox: Sandbox;
  recordUnmet(name: string, rawInput: unknown, code: string, message: string): void;
}

/**
 * Runs one agent: a model on the host, whose tools act on the run's sandbox and in a cell of its own. The model, its key
 * and the network stay outside every cell. What it writes is handled as for a command.
 */
export async function agentRun(
  job: Job,
  agent: AgentDefinition,
  { grantee, stage, env, meter, perform, openSession }: AgentSurroundings,
): Promise<RunResult> {
  const { sandbox } = stage;
  const who = { run: job.run, worker: job.worker.name };
  const refused = refusedMounts(sandbox, env);
  if (refused.length > 0) return refusedResult(who, refused);
  await using attached = await pinAttachments(job, sandbox, env);
  if (!attached.ok) return refusedResult(who, attached.violations);

  await job.turn?.();
  const limits = planLimits(sandbox);
  const begunAt = env.now();
  const deadline = Math.min(job.deadline, begunAt + limits.timeoutMs);
  using end = new AgentEnd(job.worker.name, deadline - begunAt, job.signal);
  const spending = new Spending(job.worker.name, agent.budget, job.spending);
  const own: Job = { ...job, deadline, signal: end.signal, spending };
  await using calls = new Calls({ job: own, grantee, pins: attached.pins, deadline, meter, env, perform });
  await using session = await openSession(own, (request, signal) => calls.call(request, signal));

  const ending = await worked(own, agent, spending, session, env);
  const made = await calls.end();
  const output = new BoundedOutput(
    limits.outputBytes,
    (stream, chunk) => env.emit({ type: "output", ...identityOf(job), stream, chunk }),
    () => {},
  );
  output.add("stdout", Buffer.from(printed(ending.text)));
  const earlier = job.continues === undefined ? {} : { continues: job.continues.run };
  const report = { ...agentReport(job.worker.model ?? "", spending), ...earlier };
  const said = { text: output.text("stdout"), truncated: output.truncated };
  return agentResult(job, { ending, said, stopped: end.stopped }, limits.outputBytes, { agent: report, calls: made });
}

/** The loop, from opening the model to the agent's end, recorded in the transcript. */
async function worked(
  job: Job,
  { model }: AgentDefinition,
  spending: Spending,
  session: AgentSession,
  env: RunEnvironment,
): Promise<AgentEnding> {
  const { worker, run, root, signal } = job;
  try {
    const opened = await openModel(model, env.models, signal);
    if (opened.price === null && spending.limitsCost) throw priceless(opened.name);
    const tools = agentTools(worker, env.project.workers, session);
    const names = tools.map(({ name }) => name);
    env.emit({ type: "agent_started", ...identityOf(job), ...startOf(job, session), tools: names });
    await using sink = await env.transcripts.open(run);
    const masked = (text: string): string => env.masking.text(root, text);
    const transcript = new Transcript(sink.write, (text) => masked(opened.redact(text)));
    const system = systemPrompt(job, session.sandbox);
    // A worker that has a secret may have called it with that.
    const task = masked(taskText(job));
    const owner = formatOwner(currentOwner());
    const earlier = job.continues === undefined ? {} : { continues: job.continues.run };
    await transcript.begin({ run, root, worker: worker.name, model: opened.name, owner, ...earlier }, new Date());
    await transcript.system(system);
    await transcript.told(task);
    const ending = await runAgent(
      {
        opened,
        system,
        messages: [...(job.continues?.messages ?? []), { role: "user", content: task }],
        tools,
        spending,
        mismatch: worker.output === "json" ? (env.schemas.by(worker.outputSchema) ?? (() => null)) : null,
        transcript,
        emit: (act) => env.emit({ type: "agent", ...identityOf(job), act }),
        ...(env.models.patience === undefined ? {} : { patience: env.models.patience }),
        asking: () => measuredAsk(job, env),
        unmet: ({ tool, input }, { code, text }) => session.recordUnmet(tool, input, code ?? "", text),
      },
      signal,
    ).catch(async (error: unknown) => {
      await transcript.end(signal.aborted ? "stopped" : "broken", null);
      throw error;
    });
    await transcript.end(ending.failure === null ? "succeeded" : "failed", ending.failure);
    return ending;
  } catch (error) {
    if (signal.aborted) return NOTHING;
    if (!(error instanceof ModelFailure)) throw error;
    return { ...NOTHING, failure: { code: error.code, message: error.message } };
  }
}

/** Reports one request to the model when it is over. */
function measuredAsk(job: Job, { emit, now }: RunEnvironment): ReturnType<OnAsking> {
  const begunAt = now();
  const model = job.worker.model ?? "";
  return ({ input, output }, code) =>
    emit({
      type: "measured",
      ...identityOf(job),
      measure: { what: "model", model, input, output, ms: now() - begunAt, code },
    });
}

/** An agent above has a cost limit: calls to a model without a known price would get round it. */
function priceless(model: string): ModelFailure {
  const message = `The price of ${model} is not known, and an agent above it has a cost limit. Set the price under \`models\` in corral.yaml.`;
  return new ModelFailure("COST_LIMIT", message);
}

const NOTHING: AgentEnding = { text: "", output: null, failure: null };

function startOf({ worker, attachments }: Job, { sandbox }: AgentSession) {
  const files = attachments.map(({ name }) => ({ path: `/attachments/${name}`, mode: "ro" as const }));
  const mounts = [...sandbox.mounts.map(({ path, mode }) => ({ path, mode })), ...files];
  return { model: worker.model ?? "", policy: sandbox.policy.name, mounts };
}

/** Output that people read ends with a newline. */
function printed(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}
