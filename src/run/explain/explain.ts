import { type ApprovalRule, mayApprove } from "../../approval/rules.ts";
import { lendings } from "../../changes/view/lending.ts";
import { skippedRegistries } from "../../declarations/network/package-rules.ts";
import type { RegistryMap } from "../../declarations/network/registries/read-registries.ts";
import { isMissing, ownerOfNewZone, stillMissing } from "../../declarations/place/zone-folder.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { type AgentBudget, type ServiceDefinition, toolNameOf } from "../../declarations/worker/worker-yaml.ts";
import { describeProblem } from "../../declarations/yaml/problem.ts";
import { type PlannedSource, sandboxAnchors } from "../../isolation/plan/mounts.ts";
import { HOST_IMAGE, networkFiles, type Plan } from "../../isolation/plan/plan.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import type { Driving } from "../../isolation/port/engine.ts";
import { isWritableDirectly } from "../../isolation/sources/host-executed.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { APPROVAL_MODES, type ApprovalMode, CHANGES } from "../../sandbox/approval.ts";
import { asIfStaged, askedOnApplying, comesBack, deliveryOf } from "../../sandbox/expand.ts";
import { asksForHostExecuted } from "../../sandbox/host-executed.ts";
import { type ShownNetwork, shownNetwork } from "../../sandbox/network/rule.ts";
import { readAfterApproval, type Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type ShownNarrowing, shownNarrowing } from "../../sandbox/wording.ts";
import { counted } from "../../text/amounts.ts";
import { callConsent, callViolations } from "../calls/call.ts";
import { type Plumbing, prepare } from "../cell/prepare.ts";
import { CallTree, type Job } from "../model/job.ts";
import { permissionOf, rootSandbox } from "../model/permission.ts";
import { type DescribedViolation, describeAll } from "../model/result.ts";
import { madeAtFirstUse, NO_ASK, unmadeViolation, type WorkerImages } from "../model/worker-images.ts";
import { NO_GATE, type Preview } from "../open/preview.ts";
import { usefulTools } from "../session/offered-tools.ts";

/** What a worker would get, run by itself, and what each worker below it would get through the calls that it may make. */
export interface Explanation {
  readonly worker: string;
  readonly tree: ExplainedRun;
  /** What would make the containers, and why: `engine`, `runc`, or null if the one that was asked for cannot. Null without an Engine. */
  readonly driving: Driving | null;
  /** The same of the fresh cells of a fleet's items. */
  readonly drivingItems: Driving | null;
  /** What holds for the whole of it. */
  readonly notes: readonly string[];
}

/** More runs than a person reads; a tree of calls can branch without end. */
const MAX_RUNS = 10_000;

/** Starts no container and asks no question. `policy`: in place of the project's. */
export async function explain(worker: WorkerDefinition, policy: string | null, preview: Preview): Promise<Explanation> {
  const budget = new Budget(MAX_RUNS);
  const tree = await explainRoot(worker, policy, { preview, budget });
  const notes = [
    "Attachments, and what a caller takes away for one call, are not known before a run. Each attachment is one more read-only file below /attachments.",
  ];
  if (preview.unavailable !== null)
    notes.push(`There are no plans, since no container can be made: ${preview.unavailable}`);
  if (budget.cut) notes.push(`Only the first ${MAX_RUNS} runs are shown.`);
  const demanded = tree.sandbox?.policy.hardening.driver;
  const driving = (await preview.driving?.("runs", demanded)) ?? null;
  const drivingItems = (await preview.driving?.("items", demanded)) ?? null;
  if (driving?.driver === null) notes.push(`No container can be made: ${driving.why}`);
  else if (driving !== null) notes.push(`The driver is ${driving.driver}: ${driving.why}.`);
  if (drivingItems !== null && drivingItems.driver !== driving?.driver)
    notes.push(
      `The driver of fresh items of a fleet is ${drivingItems.driver}: ${drivingItems.why.replace(/\.$/, "")}.`,
    );
  return { worker: worker.name, tree, driving, drivingItems, notes };
}

/** One run as it would be: the same steps as `run.ts` takes, up to the container that it would start. */
export interface ExplainedRun {
  readonly worker: string;
  /** Names of the workers from the root run to this one. */
  readonly path: readonly string[];
  /** Null if it is refused before there is one. */
  readonly sandbox:
    | (Omit<Sandbox, "narrowings" | "network" | "commandNetwork"> & {
        readonly network: ShownNetwork;
        readonly commandNetwork?: ShownNetwork;
      })
    | null;
  /** What each ancestor and the worker itself took away, oldest first. */
  readonly narrowings: readonly ShownNarrowing[];
  /** Null if no consent is needed. */
  readonly consent: ExplainedConsent | null;
  /** Null if it is refused, or if there is no Engine. */
  readonly plan: Plan | null;
  /** Everything that is wrong with it; null if it would run. */
  readonly refused: readonly DescribedViolation[] | null;
  /** Of an agent: its model, its tools, and how much it may use. */
  readonly agent: ExplainedAgent | null;
  readonly notes: readonly string[];
  /** What would run beside it. */
  readonly services: readonly ExplainedService[];
  readonly calls: readonly ExplainedRun[];
}

export interface ExplainedService extends Pick<ServiceDefinition, "name" | "ports" | "readyWithinMs"> {
  /** The command that says whether it is ready; null: its ports do. */
  readonly ready: readonly string[] | null;
  readonly run: ExplainedRun;
}

export interface ExplainedAgent {
  readonly model: string;
  readonly tools: readonly string[];
  readonly budget: AgentBudget;
}

interface Walk {
  readonly preview: Preview;
  readonly budget: Budget;
}

/** A worker as a person would run it. */
export async function explainRoot(worker: WorkerDefinition, policy: string | null, walk: Walk): Promise<ExplainedRun> {
  walk.budget.take();
  const project = await rootSandbox(walk.preview.environment, policy, worker);
  return await explainRun(jobOf(worker, project, [worker.name], walk), [], walk);
}

async function explainCalls(caller: Job, sandbox: Sandbox, walk: Walk): Promise<ExplainedRun[]> {
  const { workers } = walk.preview.project;
  const explained: ExplainedRun[] = [];
  for (const name of caller.worker.calls) {
    if (!walk.budget.take()) break;
    const path = [...caller.path, name];
    const violations = callViolations(name, { job: caller }, workers);
    if (caller.tree.maxCalls === 0) violations.push({ code: "CALL_LIMIT", max: 0 });
    const worker = workers.get(name);
    if (worker === undefined) explained.push(refused(path, violations));
    else explained.push(await explainRun(jobOf(worker, sandbox, path, walk), violations, walk));
  }
  return explained;
}

async function explainServices(job: Job, sandbox: Sandbox, walk: Walk): Promise<ExplainedService[]> {
  const { services = [] } = job.worker;
  if (services.length === 0) return [];
  const { judgeService } = await import("../services/services.ts");
  const explained: ExplainedService[] = [];
  for (const definition of services) {
    if (!walk.budget.take()) break;
    const { name, ports, readyWithinMs, ready = null } = definition;
    const path = [...job.path, definition.worker];
    const judged = await judgeService(definition, job, { sandbox }, walk.preview.environment);
    const worker = walk.preview.project.workers.get(definition.worker);
    const run =
      judged.ok && worker !== undefined
        ? await explainRun(jobOf(worker, sandbox, path, walk), [], walk)
        : refused(path, judged.ok ? [] : judged.violations);
    explained.push({ name, ports, readyWithinMs, ready, run });
  }
  return explained;
}

/** `objections`: what is wrong with the call itself. If there is any, nothing below it is checked. */
async function explainRun(job: Job, objections: readonly Violation[], walk: Walk): Promise<ExplainedRun> {
  const { environment, project, approvalMode } = walk.preview;
  const derivation = await permissionOf(job.worker, job.callerSandbox, null, environment);
  if (!derivation.ok) return refused(job.path, [...objections, ...derivation.violations]);
  if (objections.length > 0) return refused(job.path, objections);

  const { sandbox } = derivation;
  const consent = explainConsent(job.worker.name, sandbox, approvalMode, project.approval.rules);
  const planning = await explainPlan(job, sandbox, walk.preview);
  const { violations } = planning;
  const { narrowings, network, commandNetwork, ...shown } = sandbox;
  return {
    worker: job.worker.name,
    path: job.path,
    sandbox: {
      ...shown,
      network: shownNetwork(network),
      ...(commandNetwork === undefined ? {} : { commandNetwork: shownNetwork(commandNetwork) }),
    },
    narrowings: narrowings.map(shownNarrowing),
    consent,
    plan: violations.length > 0 ? null : planning.plan,
    refused: violations.length > 0 ? describeAll(violations) : null,
    agent: agentOf(job.worker),
    notes: [
      ...(consent === null ? [] : [consent.note]),
      ...consentNotes(job.worker, sandbox),
      ...furtherNotes(job.worker),
      ...secretNotes(sandbox),
      ...skippedFor(job.worker, project.registries),
      ...planning.notes,
      ...[directNote(job.worker.name, sandbox)].filter((note) => note !== null),
    ],
    services: await explainServices(job, asIfStaged(sandbox), walk),
    // Checked even if this run is refused, so that a user can fix everything at once.
    calls: await explainCalls(job, asIfStaged(sandbox), walk),
  };
}

function agentOf(worker: WorkerDefinition): ExplainedAgent | null {
  const { agent, model, calls } = worker;
  if (agent === undefined) return null;
  return { model: model ?? "", tools: [...usefulTools(worker), ...calls.map(toolNameOf)], budget: agent.budget };
}

/** What it does not see, or may not do, before the user agreed. */
function consentNotes(worker: WorkerDefinition, sandbox: Sandbox): string[] {
  const waiting = readAfterApproval(sandbox);
  const blocked = (sandbox.withheld ?? []).map(({ path }) => path).filter((path) => !waiting.includes(path));
  const call = callConsent(worker, sandbox);
  const when = worker.agent === undefined ? "before it starts" : "when a tool uses it";
  return [
    ...(waiting.length === 0
      ? []
      : [`Reading ${waiting.join(", ")} needs approval, ${when}; nothing shows it before.`]),
    ...(blocked.length === 0 ? [] : [`Reading ${blocked.join(", ")} is blocked: it is not shown.`]),
    ...(call.consent === "ask" && worker.calls.length > 0 ? ["Each call of another worker needs approval."] : []),
    ...(call.consent === "blocked" && worker.calls.length > 0 ? ["Calls of other workers are blocked."] : []),
  ];
}

/** What its file says without effect, and what it lets it ask for beyond its sandbox. */
function furtherNotes({ dynamic, git = [], withoutEffect = [] }: WorkerDefinition): string[] {
  const notes = withoutEffect.map(describeProblem);
  if (dynamic !== null) {
    const where = dynamic.within === null ? "" : ` in ${dynamic.within.join(", ")}`;
    const count = counted(dynamic.max, "directory", "directories");
    notes.push(`While it runs, it may be granted up to ${count}${where}, if a rule or a person approves.`);
  }
  if (git.length > 0) notes.push(`It may use these git repositories, as far as its callers may: ${git.join(", ")}.`);
  return notes;
}

function secretNotes({ secrets = [] }: Sandbox): string[] {
  if (secrets.length === 0) return [];
  const what = secrets.length === 1 ? "the value of a secret" : `the values of ${secrets.length} secrets`;
  return [
    `Its programs have ${what}, and can write it wherever they can write. If it only goes to a host, \`set\` in \`network\` keeps it outside.`,
  ];
}

/** Registries of this machine that the presets of its network would mean, and that are not used. */
function skippedFor({ needs }: WorkerDefinition, registries: RegistryMap): string[] {
  return typeof needs.network === "object" ? skippedRegistries(needs.network, registries) : [];
}

function refused(path: readonly string[], violations: readonly Violation[]): ExplainedRun {
  const worker = path.at(-1) ?? "";
  const nothing = {
    sandbox: null,
    narrowings: [],
    consent: null,
    plan: null,
    agent: null,
    notes: [],
    services: [],
    calls: [],
  };
  return { worker, path, refused: describeAll(violations), ...nothing };
}

/** Stands for a run that does not exist; its ids are placeholders that no run can have. */
function jobOf(worker: WorkerDefinition, callerSandbox: Sandbox, path: readonly string[], { preview }: Walk): Job {
  const isRoot = path.length === 1;
  return {
    run: "RUN",
    root: isRoot ? "RUN" : "ROOT",
    parent: isRoot ? null : "PARENT",
    worker,
    callerSandbox,
    caller: null,
    path,
    input: undefined,
    attachments: [],
    narrow: null,
    deadline: Number.POSITIVE_INFINITY,
    signal: new AbortController().signal,
    spending: null,
    callerMeter: null,
    tree: new CallTree(preview.project.delegation),
  };
}

/** How many runs may still be visited. Shared by a whole walk, since calls can branch at every level. */
export class Budget {
  readonly #max: number;
  spent = 0;
  /** True if more was wanted than there was. */
  cut = false;

  constructor(max: number) {
    this.#max = max;
  }

  /** False if nothing is left. */
  take(): boolean {
    this.cut ||= this.spent >= this.#max;
    if (!this.cut) this.spent += 1;
    return !this.cut;
  }
}

export interface ExplainedPlan {
  readonly plan: Plan | null;
  readonly violations: readonly Violation[];
  readonly notes: readonly string[];
}

/** The plan of a run, made by the same step as the run's own. */
async function explainPlan(job: Job, sandbox: Sandbox, preview: Preview): Promise<ExplainedPlan> {
  const { environment } = preview;
  if (preview.unavailable !== null) {
    return { plan: null, violations: await violationsWithoutImage(job, sandbox, preview), notes: [] };
  }
  const { violations, notes } = await imageFindings(job, environment, preview.project);
  if (violations.length + notes.length > 0) {
    const others = await violationsWithoutImage(job, sandbox, preview);
    return { plan: null, violations: [...violations, ...others], notes };
  }
  const plumbing = await plumbingOf(preview, sandbox, job.worker);
  await using preparation = await prepare(job, sandbox, plumbing, environment, NO_ASK);
  if (!preparation.ok) return { plan: null, violations: preparation.violations, notes: [] };
  const { plan, notes: partly } = preparation;
  return { plan, violations: [], notes: [...partly, ...mountNotes(plan, sandbox, plumbing), ...networkNotes(plan)] };
}

/** What the first run makes is no reason to refuse it. */
async function imageFindings(
  { worker }: Job,
  { images, driver }: Preview["environment"],
  { isImplied }: Preview["project"],
): Promise<Pick<ExplainedPlan, "violations" | "notes">> {
  const ready = await images.ready(worker, NO_ASK);
  if (ready.state === "refused") return { violations: ready.violations, notes: [] };
  if (ready.state === "ready") {
    const found = (await driver.imageFacts(ready.name)) !== null;
    return { violations: found ? [] : [{ code: "IMAGE_MISSING", image: worker.image }], notes: [] };
  }
  const named = ready.parts.filter(({ kind }) => kind === "named");
  const made = ready.parts.filter(({ kind }) => kind !== "named");
  return { violations: named.map(unmadeViolation), notes: made.map((part) => madeAtFirstUse(part, isImplied)) };
}

/** bubblewrap, whose cells have this machine's programs, needs none. */
function networkNotes({ network, image }: Plan): string[] {
  if (typeof network === "string" || process.getuid?.() === 0 || image.name === HOST_IMAGE) return [];
  return [
    "Corral does not run as root: for its allow list each start makes a second container, of the image corral/node.",
  ];
}

/** A run's socket is made with the run, and so is what else is missing. Nothing else in the plan depends on it. */
async function plumbingOf({ project, environment }: Preview, sandbox: Sandbox, worker: WorkerDefinition) {
  const { network, commandNetwork = network, mounts } = sandbox;
  const names = (worker.services ?? []).map(({ name }) => name);
  const nowhere = { device: "0", inode: "0" };
  const owner = await ownerOfNewZone(project.dir);
  const missing = await stillMissing(project.newZones);
  const isRefused = (host: string) => missing.includes(host) || refusalOf(host, environment.refusedSources) !== null;
  const lent = lendings(sandbox, isRefused);
  const between = sandboxAnchors(sandbox).filter(({ host }) =>
    missing.some((zone) => zone.startsWith(`${host}/`) || host.startsWith(`${zone}/`)),
  );
  for (const { host } of between) if (await isMissing(host)) missing.push(host);
  const zones = missing.map((host) => [host, { ...nowhere, ...owner, kind: "directory" }] as const);
  return {
    socket: { path: "SOCKET", source: { ...nowhere, uid: 0, gid: 0, kind: "socket" } },
    services: names,
    files: Object.keys(networkFiles(commandNetwork, names)).map((path) => ({
      path,
      host: "FILE",
      source: { ...nowhere, uid: 0, gid: 0, kind: "file" as const },
    })),
    views: "would-be",
    lent: new Map([...lent].map(([path, to]) => [mounts.find((mount) => mount.path === path)?.host ?? "", to])),
    wouldBe: new Map<string, PlannedSource>([...zones, [NO_GATE, { ...nowhere, uid: 0, gid: 0, kind: "file" }]]),
  } satisfies Plumbing;
}

/** What would be refused whatever the image is: an image without any facts, and no gate yet. */
async function violationsWithoutImage(job: Job, sandbox: Sandbox, preview: Preview): Promise<readonly Violation[]> {
  const { environment } = preview;
  const imageFacts = async (name: string): Promise<ImageFacts> => ({ name, id: "", env: [], volumes: [] });
  const driver = { ...environment.driver, imageFacts };
  const ready: WorkerImages["ready"] = async ({ image: name }) => ({ state: "ready", name, environments: [] });
  const imageless = { ...environment, driver, images: { ready }, gate: async () => NO_GATE };
  await using preparation = await prepare(
    job,
    sandbox,
    await plumbingOf(preview, sandbox, job.worker),
    imageless,
    NO_ASK,
  );
  return preparation.ok ? [] : preparation.violations;
}

function mountNotes(
  { mounts }: Plan,
  sandbox: Sandbox,
  { wouldBe, lent }: Required<Pick<Plumbing, "wouldBe" | "lent">>,
): string[] {
  const missing = sandbox.mounts.filter(({ host }) => wouldBe.has(host));
  const borrowed = sandbox.mounts.filter(({ host }) => lent.has(host));
  const heldBack = mounts.filter((mount) => mount.heldBack !== undefined);
  const kept = sandbox.mounts.filter((mount) => deliveryOf(mount) === "view" && mount.discard && mount.mode === "rw");
  return [
    ...missing.map(({ path }) => `The folder of ${path} does not exist yet: the first run makes it.`),
    ...borrowed.map(
      ({ path }) =>
        `The worker gets a copy of ${path}: it belongs to another user than the worker's, which could not use it.`,
    ),
    ...heldBack.map(
      ({ path }) => `${path} is read-only in the container, since writing and deleting are blocked there.`,
    ),
    ...kept.map(({ path }) => `What is written in ${path} is discarded when the run has ended.`),
  ];
}

/** A person's agreement that a run would need for what it changes to come back. */
export interface ExplainedConsent {
  /** Where it would write or delete. Virtual. */
  readonly paths: readonly string[];
  /** What the approval mode would do if no rule of the project decides. */
  readonly decision: "approved" | "asked" | "denied";
  /** True if a rule of the project may approve some of it, whatever the mode says. */
  readonly ruled: boolean;
  readonly note: string;
}

/** Null if nothing that it may change has to be asked for. */
function explainConsent(
  worker: string,
  sandbox: Sandbox,
  mode: ApprovalMode,
  rules: readonly ApprovalRule[],
): ExplainedConsent | null {
  const asking = sandbox.mounts.flatMap((mount) => {
    const asked = askedOnApplying(mount);
    const operations = CHANGES.filter((operation) => asked[operation] === "ask");
    const waits = comesBack(mount) && deliveryOf(mount) === "view" && operations.length > 0;
    return waits ? [{ path: mount.path, operations }] : [];
  });
  if (asking.length === 0) return null;
  const paths = asking.map(({ path }) => path);
  const ruled = asking.some(({ path, operations }) => mayApprove(rules, { worker, operations, directory: path }));
  const { decision } = APPROVAL_MODES[mode];
  const outcome = `${ruled ? "a rule of the project may decide it, else " : ""}${outcomeOf(mode)}`;
  const note = `Changes of ${worker} in ${paths.join(", ")} wait until it has ended and need approval then: ${outcome}`;
  return { paths, decision, ruled, note };
}

/** What a mount that is bound into the cell cannot keep apart; null: nothing is written directly, or the policy allows it. */
export function directNote(worker: string, sandbox: Pick<Sandbox, "mounts" | "policy">): string | null {
  const paths = sandbox.mounts.filter(isWritableDirectly).map(({ path }) => path);
  if (paths.length === 0 || !asksForHostExecuted(sandbox)) return null;
  const what = "what programs of the host would execute there, such as .git/config or .vscode";
  return `Worker ${worker} writes in ${paths.join(", ")} directly: ${what}, is read-only to it if it exists when the container starts, unless it is deep in a very large folder, and can be made if it does not. \`stage: true\` closes this.`;
}

function outcomeOf(mode: ApprovalMode): string {
  const { decision } = APPROVAL_MODES[mode];
  if (decision === "asked") return "a person is asked, with a diff.";
  if (decision === "approved") return `the approval mode ${mode} approves it.`;
  return `the approval mode ${mode} denies it, so nothing of it would be applied.`;
}
