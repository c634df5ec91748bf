import type Docker from "dockerode";
import PQueue from "p-queue";
import { onAbort } from "../../platform/on-abort.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { parseGateReport } from "../gate/report.ts";
import { verifyCell } from "../gate/verify.ts";
import type { Cell, ServingCell } from "../port/cell.ts";
import { type Driver, EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import type { SessionCell } from "../port/exec.ts";
import { labelsFor } from "../port/labels.ts";
import { type Attachment, attach } from "./attachment.ts";
import { capabilities } from "./capabilities.ts";
import { dockerCell, type WaitAnswer } from "./cell.ts";
import { containerConfig, type SeccompProfiles } from "./container-config.ts";
import { engineMessage, engineTrouble, isGone, statusCodeOf, told } from "./engine-error.ts";
import { imageFacts } from "./images/inspect.ts";
import { NameFileSet } from "./name-files.ts";
import { listVolumes, ownerOfVolume, pinnedVolumes } from "./pinned-volume.ts";
import { listCells, type ReapScope, reap } from "./reap.ts";
import { Answers, dockerServing } from "./serving.ts";
import { dockerSession } from "./session.ts";

/** More starts at once do not end sooner: the Engine is the limit (docs/architecture.md, fact: engine-start-ceiling). */
const MAX_CONCURRENT_STARTS = 4;
/** How long a started container may take to send its gate report. */
const REPORT_TIMEOUT_MS = 30_000;

export interface DockerDriverOptions extends ReapScope {
  readonly seccomp: SeccompProfiles;
  /** The directory of `hosts` and `resolv.conf` for cells without a network; no worker can write there. */
  readonly namesDir: string;
}

interface StartOptions extends DockerDriverOptions {
  readonly nameFiles: NameFileSet;
}

/** Cells on a Docker Engine that runs on this machine. */
export function dockerDriver(given: DockerDriverOptions): Driver {
  const options: StartOptions = { ...given, nameFiles: new NameFileSet(given.namesDir) };
  const starts = new PQueue({ concurrency: MAX_CONCURRENT_STARTS });
  return {
    name: "docker",
    capabilities: () => told(capabilities(options.docker)),
    imageFacts: (image) => told(imageFacts(options.docker, image)),
    start: (request) => starts.add(() => start(options, request)),
    startSession: (request) => starts.add(() => start(options, request)).then(opened),
    startServing: (request) => starts.add(() => startServing(options, request)),
    list: () => told(listCells(options.docker, options.maker)),
    reap: () => told(reap(options)),
  };
}

/** What was made for one cell, and how to remove all of it in any state. */
class CellRemains {
  container: Docker.Container | null = null;
  attachment: Attachment | null = null;
  readonly #options: DockerDriverOptions;
  readonly #run: string;

  constructor(options: DockerDriverOptions, run: string) {
    this.#options = options;
    this.#run = run;
  }

  async remove(): Promise<void> {
    this.attachment?.close();
    try {
      // Its volumes go with it.
      await this.container?.remove({ force: true, v: true }).catch((error: unknown) => this.#gone(error));
    } catch (error) {
      throw new EngineTrouble(`a cell could not be removed: ${engineMessage(error)}`, { cause: error });
    }
  }

  /** The container was removed by someone else, who may have left its volumes. */
  async #gone(error: unknown): Promise<void> {
    unlessGone(error);
    const { docker, maker } = this.#options;
    const left = (await listVolumes(docker, this.#run)).filter((told) => ownerOfVolume(maker.sealKey, told) !== null);
    await Promise.all(left.map(({ Name }) => docker.getVolume(Name).remove().catch(unlessGone)));
  }
}

function opened(started: Start<SessionCell>): Start<SessionCell> {
  if (started.ok) started.cell.release(new Uint8Array());
  return started;
}

/** Released at once: it then waits for the first item. */
async function startServing(
  options: StartOptions,
  request: Omit<StartRequest, "onOutput">,
): Promise<Start<ServingCell>> {
  const answers = new Answers();
  const answered = { ...request, onOutput: answers.add.bind(answers) };
  const parts = await started(options, answered, "lasting");
  if (!parts.ok) return parts;
  const cell = dockerServing(parts.cell, parts.attachment, answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}

/** Every cell could run commands; only a cell whose plan has a keeper waits for them. */
async function start(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  const parts = await started(options, request, request.plan.keeper === undefined ? "at-once" : "lasting");
  return parts.ok ? { ok: true, cell: dockerSession(parts.cell, parts.container, request.plan) } : parts;
}

type Input = Parameters<typeof attach>[2]["input"];

/** The parts of a verified cell, from which each kind of cell is made. */
type Started =
  | { readonly ok: true; readonly cell: Cell; readonly container: Docker.Container; readonly attachment: Attachment }
  | Extract<Start, { ok: false }>;

async function started(options: StartOptions, request: StartRequest, input: Input): Promise<Started> {
  const remains = new CellRemains(options, request.plan.run);
  let made: Started;
  try {
    made = await startVerified(options, request, input, remains);
  } catch (error) {
    return await failed(error, request, remains);
  }
  if (!made.ok) await remains.remove();
  return made;
}

/** Cleans up after a start that failed. The error says why it failed, even if the clean-up fails too. */
async function failed(error: unknown, request: StartRequest, remains: CellRemains): Promise<Started> {
  const left = await remains.remove().then(
    () => null,
    (trouble: EngineTrouble) => trouble,
  );
  request.signal.throwIfAborted();
  if (left !== null) throw new EngineTrouble(`${engineMessage(error)}; and ${left.message}`, { cause: error });
  const violation = refusalFrom(error, request);
  if (violation === null) throw engineTrouble(error);
  return { ok: false, violations: [violation] };
}

async function startVerified(
  { docker, maker, seccomp, nameFiles }: StartOptions,
  request: StartRequest,
  input: Input,
  remains: CellRemains,
): Promise<Started> {
  const { plan, signal } = request;
  const name = `corral-${plan.run}`;
  signal.throwIfAborted();
  const sources = {
    volumes: pinnedVolumes(plan, request.pins, maker),
    names: plan.network === "none" ? await nameFiles.files() : null,
  };

  // Known by its name before it is created, so that a creation that fails half way is removed too.
  remains.container = docker.getContainer(name);
  const labels = labelsFor(maker, "container", name, plan);
  const config = containerConfig(plan, name, labels, sources, seccomp);
  const container = await docker.createContainer(config).catch((error: unknown) => {
    // The name is taken by a container that this start did not make and must not remove.
    if (statusCodeOf(error) === 409) remains.container = null;
    throw error;
  });
  remains.container = container;
  signal.throwIfAborted();

  const attachment = await attach(container, request.onOutput, { input });
  remains.attachment = attachment;
  const wait = container.wait({ condition: "next-exit" }) as Promise<WaitAnswer>;
  // Awaited when the cell ends; until then a broken connection must not be an unhandled rejection.
  wait.catch(() => {});
  await container.start();
  const report = parseGateReport(await reportWithin(attachment, signal));

  const { enforcement, violations } = verifyCell(plan, report);
  if (violations.length > 0) return { ok: false, violations };
  const cell = dockerCell({ container, attachment, wait, enforcement, remove: () => remains.remove() });
  return { ok: true, cell, container, attachment };
}

async function reportWithin(attachment: Attachment, signal: AbortSignal): Promise<string> {
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const late = (): void => reject(new EngineTrouble(`the cell sent no report within ${REPORT_TIMEOUT_MS / 1000} s`));
  const timer = setTimeout(late, REPORT_TIMEOUT_MS);
  using _ = onAbort(signal, () => reject(signal.reason));
  try {
    return await Promise.race([attachment.report, stopped]);
  } finally {
    clearTimeout(timer);
  }
}

/** The few errors of the Engine that are about the request and not about the Engine. */
function refusalFrom(error: unknown, { plan }: StartRequest): Violation | null {
  if (statusCodeOf(error) === null) return null;
  const message = engineMessage(error);
  if (/no such image/i.test(message)) return { code: "IMAGE_MISSING", image: plan.image.name };
  if (CANNOT_ENFORCE.test(message)) return { code: "ENFORCEMENT_MISSING", missing: [message] };
  // A source that was swapped after the check shows here if it cannot be mounted, else in the verification.
  const isOwn = plan.mounts.some(({ origin, host }) => origin === "corral" && message.includes(host));
  if (!isOwn && CANNOT_MOUNT.test(message)) {
    const granted = plan.mounts.filter((mount) => mount.origin !== "corral").map((mount) => mount.path);
    const named = granted.filter((path) => message.includes(`"${path}"`) || message.includes(`${path}:`));
    const path = (named.length > 0 ? named : granted).join(", ");
    const reason = "it was removed or replaced while the cell was starting";
    if (granted.length > 0) return { code: "MOUNT_SOURCE_REFUSED", path, reason };
  }
  return null;
}

/** Errors of the Engine for a runtime that it does not have, and for limits that are too small for it. */
const CANNOT_ENFORCE = /unknown (or invalid )?runtime|minimum memory limit|cpu cfs quota/i;

/** Errors for a mount whose source is gone, or whose mount point is missing and cannot be made. */
const CANNOT_MOUNT =
  /\b(mount|mounting|bind source)\b.*(does not exist|not a directory|no such file or directory|read-only file system)/is;

function unlessGone(error: unknown): void {
  if (!isGone(error)) throw error;
}
