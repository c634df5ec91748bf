import type Docker from "dockerode";
import PQueue from "p-queue";
import { z } from "zod";
import { within } from "../../platform/within.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { formatOwner } from "../../state/owner.ts";
import {
  CELL_END_MS,
  knownProcess,
  OOM_KILLS_SCRIPT,
  parseOomKills,
  releasedSession,
  SCRIPT_MS,
  SIGNAL_ALL_SCRIPT,
  type StartedCell,
  signalArguments,
  startCommandCell,
  startServingCell,
} from "../commands/command-cell.ts";
import type { CommandServer } from "../commands/command-server.ts";
import { reportWithin } from "../gate/gate-streams.ts";
import { gateSecrets, parseGateReport, secretLines } from "../gate/report.ts";
import { verifyCell } from "../gate/verify.ts";
import { isContainerId } from "../kernel/first-process.ts";
import { CellNetwork, enterFromOutside } from "../network/listen-in.ts";
import { NameFileSet } from "../network/name-files.ts";
import { GATE_PATH, type Plan, type PlannedUser } from "../plan/plan.ts";
import { refusalFrom } from "../plan/plan-for.ts";
import { type Cell, type Exec, type ExecExit, type ExecRequest, KILLED, type SessionCell } from "../port/cell.ts";
import { type Driver, EngineTrouble, type Reaped, type Start, type StartRequest } from "../port/driver.ts";
import { containerName, labelsFor, readLabels } from "../port/labels.ts";
import { misplacedMounts } from "../sources/pin.ts";
import { asked, engineMessage, engineTrouble, inTime, isConflict, statusCodeOf, told } from "./answers/asked.ts";
import { type AttachedStreams, attach } from "./attachment.ts";
import { capabilities } from "./capabilities.ts";
import { dockerCell, type EngineExec, execIn, type RawExit } from "./cell.ts";
import { CellRemains, StartedContainers, Unremoved } from "./cell-remains.ts";
import {
  containerConfig,
  controlGroupOf,
  pinnedVolumes,
  type SeccompProfiles,
  socketMemoryOf,
  usageNow,
} from "./container-config.ts";
import { imageFacts } from "./images/catalog.ts";
import { enterByContainer } from "./listening-container.ts";
import { chosenRuntime, notForRuntime, planWithKernel, seenFromOutside } from "./own-kernel.ts";
import { listEngineCells, type ReapScope, reap, startSteward } from "./reap.ts";

/** A container whose first process only waits, and in which commands run one after another as the worker's user. */
function dockerSession(cell: Cell, container: Docker.Container, { user, keeper = user }: Plan): SessionCell {
  /** A command can stop a script of its own user before that does anything: then the whole cell is ended from outside. */
  const script = async (as: PlannedUser, text: string, ...args: string[]): Promise<ScriptEnd> => {
    const argv = [GATE_PATH, "sh", "-c", text, GATE_PATH, ...args];
    const end = await within(scripted(container, as, argv), SCRIPT_MS);
    if (end !== null) return end;
    await within(
      cell.kill("SIGKILL").catch(() => {}),
      CELL_END_MS,
    );
    return { code: null, output: "" };
  };
  // The keeper's user: no command can signal a process of it.
  const askOomKills = async (): Promise<OomKills> => {
    const { code, output } = await script(keeper, OOM_KILLS_SCRIPT);
    return code === 0 ? { oomKills: parseOomKills(output) } : null;
  };
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async exec(request: ExecRequest) {
      const exec = await execIn(container, user, request);
      const signal = signalOf(exec, (argv) => scripted(container, user, argv));
      return { ...exec, signal, exit: exec.exit.then((exit) => judged(exit, cell, askOomKills)) };
    },
    async signalAll(signal) {
      const end = await script(user, SIGNAL_ALL_SCRIPT, signal.replace(/^SIG/, ""));
      return end.code === 0;
    },
  };
}

/** A command at a terminal, beside those that the first process starts. */
async function execAtTerminal(
  cell: Cell,
  container: Docker.Container,
  { user }: Plan,
  server: CommandServer,
  request: ExecRequest,
): Promise<Exec> {
  const exec = await execIn(container, user, request);
  const signal = signalOf(
    exec,
    (argv) => scripted(container, user, argv),
    (act) => server.whileNoneBegins(act),
  );
  return { ...exec, signal, exit: exec.exit.then((exit) => judged(exit, cell, () => server.oomKills())) };
}

/** A command can stop a script of its own user before that does anything: false then. */
function signalOf(
  exec: EngineExec,
  script: (argv: string[]) => Promise<ScriptEnd>,
  whileNoneBegins: CommandServer["whileNoneBegins"] = async (act) => await act([]),
): Exec["signal"] {
  const known = knownProcess(exec);
  return async (signal) => {
    const process = await known();
    if (process === null) return false;
    return await whileNoneBegins(
      async (others) => (await within(script(signalArguments(signal, process, others)), SCRIPT_MS))?.code === 0,
    );
  };
}

/** Null if the cell did not answer. */
type OomKills = { readonly oomKills: number | null } | null;

/**
 * A command that was killed may end before the Engine reports the end of its whole cell, so Corral asks the cell itself.
 * Only kills for memory since the command's own start count: an earlier command may have lost a child and continued
 * (docs/facts.md, fact: oom-of-a-child).
 */
async function judged(exit: RawExit, cell: Cell, askOomKills: () => Promise<OomKills>): Promise<ExecExit> {
  if (exit.kind === "lost") return exit;
  const { oomKillsBefore, ...rest } = exit;
  if (exit.cellAlive && exit.code !== KILLED) return { ...rest, outOfMemory: false };
  const told = exit.cellAlive ? await askOomKills() : null;
  if (told !== null) {
    const { oomKills } = told;
    return { ...rest, outOfMemory: oomKills !== null && oomKillsBefore !== null && oomKills > oomKillsBefore };
  }
  const end = await within(cell.exit, CELL_END_MS);
  if (end?.kind === "lost") return end;
  return { ...rest, cellAlive: false, outOfMemory: end?.outOfMemory ?? false };
}

interface ScriptEnd {
  readonly code: number | null;
  readonly output: string;
}

/** Runs one of Corral's own scripts in a cell. `code` is null if the Engine or the cell could not start it. */
async function scripted(container: Docker.Container, user: PlannedUser, argv: string[]): Promise<ScriptEnd> {
  let output = "";
  try {
    const stdin = Buffer.alloc(0);
    const onOutput = (_: string, chunk: Buffer): void => {
      output += chunk.toString("latin1");
    };
    const exec = await execIn(container, user, { argv, cwd: "/", env: {}, stdin, onOutput });
    const exit = await exec.exit;
    return { code: exit.kind === "exited" ? exit.code : null, output };
  } catch {
    return { code: null, output };
  }
}

/** More starts at once do not end sooner: the Engine is the limit (docs/facts.md, fact: engine-start-ceiling). */
const MAX_CONCURRENT_STARTS = 4;
/** How often a cell is made before its start has failed. */
const MAX_ATTEMPTS = 3;

export interface DockerDriverOptions extends ReapScope {
  readonly seccomp: SeccompProfiles;
  /** The directory of `hosts`, `resolv.conf` and `hostname` for cells without a network; no worker can write there. */
  readonly namesDir: string;
  /** True if this process may not enter the network of a cell: a second container listens there for it. */
  readonly listensByContainer?: boolean;
}

interface StartOptions extends DockerDriverOptions {
  readonly nameFiles: NameFileSet;
  readonly unremoved: Unremoved;
  readonly startedContainers: StartedContainers;
}

/** Cells on a Docker Engine that runs on this machine. */
export function dockerDriver(given: DockerDriverOptions): Driver {
  const unremoved = new Unremoved();
  const startedContainers = new StartedContainers(given.startedDir, given.maker.owner);
  const nameFiles = new NameFileSet(given.namesDir);
  const options: StartOptions = { ...given, nameFiles, unremoved, startedContainers };
  const starts = new PQueue({ concurrency: MAX_CONCURRENT_STARTS });
  return {
    name: "engine",
    capabilities: () => told(capabilities(options.docker)),
    imageFacts: (image) => told(imageFacts(options.docker, image)),
    start: (request) => starts.add(() => start(options, request)),
    startSession: (request) =>
      request.plan.startsCommands === true
        ? starts.add(() => startServer(options, request))
        : starts
            .add(() => start(options, request))
            .then((started) => (started.ok ? releasedSession(started.cell, request) : started)),
    startServing: (request) =>
      starts.add(() => startServingCell(request, (asked) => started(options, asked, "lasting"), writeTo)),
    startSteward: (request) => startSteward({ ...options, unremoved }, request),
    list: () => told(listEngineCells(options.docker, options.maker)),
    usage: ({ id }) => told(usageNow(options.docker.getContainer(id))),
    reap: (after) => told(reapedAtLast(options, after)),
    removeLeft: async () => {
      // What is left then is ended by the next process that finds this one dead.
      if (await unremoved.tryAtEnd()) startedContainers.remove();
    },
  };
}

/** What an Engine that fails meanwhile leaves is removed later, beside everything else. */
async function reapedAtLast(options: StartOptions, after: Promise<unknown> | undefined): Promise<Reaped> {
  try {
    return await reap(options, after);
  } catch (error) {
    options.unremoved.add("of dead owners", async () => void (await reap(options)));
    throw error;
  }
}

/** Beside the verified cell, what each kind of cell is made from. */
interface VerifiedParts {
  readonly container: Docker.Container;
  readonly attachment: AttachedStreams;
}

function writeTo({ attachment }: VerifiedParts, text: string): void {
  attachment.write(text);
}

function startServer(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  return startCommandCell(request, {
    start: (asked) => started(options, asked, "lasting"),
    write: writeTo,
    execAtTerminal:
      ({ cell, container }, server) =>
      (asked) =>
        execAtTerminal(cell, container, request.plan, server, asked),
  });
}

/** Every cell could run commands; only a cell whose plan has a keeper waits for them. */
async function start(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  const parts = await started(options, request, request.plan.keeper === undefined ? "at-once" : "lasting");
  return parts.ok ? { ok: true, cell: dockerSession(parts.cell, parts.container, request.plan) } : parts;
}

type Input = Parameters<typeof attach>[2]["input"];

/**
 * Nothing of the worker has run before its cell is verified. So a start that failed is undone and made again, whatever
 * failed: a lost answer, a broken connection, a report that cannot be read.
 */
async function started(
  options: StartOptions,
  request: StartRequest,
  input: Input,
): Promise<StartedCell<VerifiedParts>> {
  for (let attempt = 1; ; attempt += 1) {
    const remains = new CellRemains(options, request.plan.run);
    let made: StartedCell<VerifiedParts>;
    try {
      made = await startVerified(options, request, input, remains);
    } catch (error) {
      const refused = await failed(error, request, remains);
      if (refused !== null) return refused;
      if (attempt === MAX_ATTEMPTS) throw engineTrouble(error);
      continue;
    }
    if (!made.ok) await remains.remove();
    return made;
  }
}

/** Cleans up after a start that failed. Null if it may be made again. */
async function failed(
  error: unknown,
  request: StartRequest,
  remains: CellRemains,
): Promise<StartedCell<VerifiedParts> | null> {
  const isRefusal = (statusCodeOf(error) ?? 500) < 500;
  if (isRefusal || request.signal.aborted) remains.isDoubtful = true;
  else remains.doubt();
  const left = await remains.remove().then(
    () => null,
    (trouble: EngineTrouble) => trouble,
  );
  request.signal.throwIfAborted();
  if (left !== null) throw new EngineTrouble(`${engineMessage(error)}; and ${left.message}`, { cause: error });
  const violation = violationFrom(error, request);
  return violation === null ? null : { ok: false, violations: [violation] };
}

async function startVerified(
  {
    docker,
    maker,
    seccomp,
    nameFiles,
    liveDir,
    unremoved,
    startedContainers,
    listensByContainer = false,
  }: StartOptions,
  request: StartRequest,
  input: Input,
  remains: CellRemains,
): Promise<StartedCell<VerifiedParts>> {
  const { signal } = request;
  const name = containerName(request.plan);
  signal.throwIfAborted();
  const runtime = await chosenRuntime(docker, request.plan);
  const missing = notForRuntime(request.plan, runtime);
  if (missing.length > 0) return { ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing }] };
  const plan = planWithKernel(request.plan, runtime);
  const sources = {
    runtime,
    volumes: pinnedVolumes(plan, request.pins, maker),
    names: plan.network === "open" ? null : await nameFiles.files(),
  };

  // Known by their names before they are created, so that a creation that fails half way is removed too.
  remains.volumes = [...sources.volumes.values()].map((volume) => volume.name);
  remains.container = docker.getContainer(name);
  const labels = labelsFor(maker, "container", name, plan);
  const config = containerConfig(plan, name, labels, sources, seccomp);
  const container = await inTime(docker.createContainer(config)).catch(async (error: unknown) => {
    // A container that this process did not make for this run must not be removed, even if its name is taken.
    if (isConflict(error) && !(await isOwn(docker, maker, name, plan.run))) remains.container = null;
    throw error;
  });
  if (!isContainerId(container.id ?? "")) throw new EngineTrouble("the Engine sent no id of the cell that it made");
  remains.container = container;
  signal.throwIfAborted();

  const attachment = await inTime(attach(container, request.onOutput, { input }));
  remains.attachment = attachment;
  const wait: Promise<unknown> = container.wait({ condition: "next-exit" });
  // Awaited when the cell ends; until then a broken connection must not be an unhandled rejection.
  wait.catch(() => {});
  startedContainers.add(container.id);
  await inTime(container.start());
  const network = new CellNetwork((places) =>
    listensByContainer
      ? enterByContainer({ docker, maker, liveDir, seccomp, plan, cell: container.id, unremoved }, places)
      : pidOf(container).then((pid) => enterFromOutside(pid, places)),
  );
  remains.network = network;
  if (typeof plan.network !== "string") network.openAhead(plan.network.listeners);
  const group = controlGroupOf(container.id);
  const told = parseGateReport(await reportWithin(attachment.report, signal));
  const report = seenFromOutside(told, { plan, group, runtime });

  const verified = verifyCell(plan, report, "engine");
  const refusals = [...verified.violations, ...misplacedMounts(plan.mounts, request.pins)];
  if (refusals.length > 0) return { ok: false, violations: refusals };
  const enforcement = { ...verified.enforcement, ...socketMemoryOf(container.id, plan.limits.memoryBytes) };
  const namespace = report.namespaces.get("/proc/self/ns/net") ?? "";
  const listen: Cell["listen"] = (places, accept) => network.listen(namespace, places, accept);
  const remove = (): Promise<void> => remains.remove();
  const ahead = secretLines(gateSecrets(plan), request.secrets ?? NO_SECRETS);
  const cell = dockerCell({ docker, container, attachment, wait, enforcement, ahead, listen, remove });
  void cell.exit.then(({ kind }) => {
    if (kind === "lost") remains.lost();
  });
  return { ok: true, cell, container, attachment };
}

const Running = z.object({ State: z.object({ Pid: z.int().positive() }) });

async function pidOf(container: Docker.Container): Promise<number> {
  return (await told(asked(() => container.inspect(), Running))).State.Pid;
}

const NO_SECRETS: ReadonlyMap<string, string> = new Map();

/**
 * True if an earlier call of this very process made the container and seemed to fail: it was made for this run, and
 * was never started.
 */
async function isOwn(docker: Docker, { owner, sealKey }: DockerDriverOptions["maker"], name: string, run: string) {
  const { Config, State } = await asked(() => docker.getContainer(name).inspect(), Labelled);
  const labelled = readLabels(sealKey, "container", name, Config.Labels);
  return State.Status === "created" && labelled?.run === run && formatOwner(labelled.owner) === formatOwner(owner);
}

const Labelled = z.object({
  Config: z.object({ Labels: z.record(z.string(), z.string()).nullable() }),
  State: z.object({ Status: z.string() }),
});

/** Null if the error is about the Engine and not about the request. */
function violationFrom(error: unknown, { plan }: StartRequest): Violation | null {
  if (statusCodeOf(error) === null) return null;
  const message = engineMessage(error);
  if (/no such image/i.test(message)) return { code: "IMAGE_MISSING", image: plan.image.name };
  return refusalFrom(message, plan);
}
