import { randomBytes } from "node:crypto";
import type Docker from "dockerode";
import PQueue from "p-queue";
import type { Violation } from "../../sandbox/violation.ts";
import type { Cell } from "../cell.ts";
import { type Driver, EngineTrouble, type ServingStart, type SessionStart, type StartRequest } from "../driver.ts";
import { parseGateReport } from "../gate/report.ts";
import { verifyCell } from "../gate/verify.ts";
import { labelsFor, type Maker } from "../labels.ts";
import type { PlannedMount } from "../plan.ts";
import { type Attachment, attach } from "./attachment.ts";
import { capabilities } from "./capabilities.ts";
import { dockerCell, type WaitAnswer } from "./cell.ts";
import { containerConfig, type SeccompProfiles } from "./container-config.ts";
import { engineMessage, engineTrouble, isGone, statusCodeOf } from "./engine-error.ts";
import { imageFacts } from "./image-facts.ts";
import { listCells, type ReapScope, reap } from "./reap.ts";
import { Answers, dockerServing } from "./serving.ts";
import { dockerSession } from "./session.ts";

/** More starts at once than this do not end sooner: the Engine's own work is the ceiling (design fact 5). */
const MAX_CONCURRENT_STARTS = 4;
/** How long a started container may take to report what it is. */
const REPORT_TIMEOUT_MS = 30_000;

export interface DockerDriverOptions extends ReapScope {
  readonly seccomp: SeccompProfiles;
}

/** Cells on a Docker Engine that runs on this machine. */
export function dockerDriver(options: DockerDriverOptions): Driver {
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

/** An Engine that fails is told as such, whichever question it failed at. */
async function told<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    throw engineTrouble(error);
  }
}

/** What was made for one cell, and how all of it goes away again, in whatever state it is. */
class CellRemains {
  readonly volumes = new Map<PlannedMount, string>();
  container: Docker.Container | null = null;
  attachment: Attachment | null = null;
  readonly #docker: Docker;

  constructor(docker: Docker) {
    this.#docker = docker;
  }

  async remove(): Promise<void> {
    this.attachment?.close();
    try {
      // A volume cannot go before the container that uses it.
      await this.container?.remove({ force: true, v: true }).catch(unlessGone);
      await Promise.all(
        [...this.volumes.values()].map((name) => this.#docker.getVolume(name).remove().catch(unlessGone)),
      );
    } catch (error) {
      throw new EngineTrouble(`a cell could not be removed: ${engineMessage(error)}`, { cause: error });
    }
  }
}

function opened(started: SessionStart): SessionStart {
  if (started.ok) started.cell.release(new Uint8Array());
  return started;
}

/** Released at once: what it waits for then is the first item. */
async function startServing(
  options: DockerDriverOptions,
  request: Omit<StartRequest, "onOutput">,
): Promise<ServingStart> {
  const answers = new Answers();
  const parts = await started(options, { ...request, onOutput: (stream, chunk) => answers.add(stream, chunk) });
  if (!parts.ok) return parts;
  const cell = dockerServing(parts.cell, parts.attachment, answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}

/** Every cell could run commands; only one whose plan has a holder waits for them. */
async function start(options: DockerDriverOptions, request: StartRequest): Promise<SessionStart> {
  const parts = await started(options, request);
  return parts.ok ? { ok: true, cell: dockerSession(parts.cell, { ...parts, plan: request.plan }) } : parts;
}

/** A verified cell in its parts, of which each kind of cell is made. */
type Started =
  | {
      readonly ok: true;
      readonly cell: Cell;
      readonly container: Docker.Container;
      readonly attachment: Attachment;
    }
  | { readonly ok: false; readonly violations: readonly Violation[] };

async function started(options: DockerDriverOptions, request: StartRequest): Promise<Started> {
  const remains = new CellRemains(options.docker);
  let made: Started;
  try {
    made = await startVerified(options, request, remains);
  } catch (error) {
    return await failed(error, request, remains);
  }
  if (!made.ok) await remains.remove();
  return made;
}

/** Cleans up after a start that failed, and tells why it failed also where the cleaning up fails as well. */
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
  { docker, maker, seccomp }: DockerDriverOptions,
  request: StartRequest,
  remains: CellRemains,
): Promise<Started> {
  const { plan, signal } = request;
  const name = `corral-${plan.run}`;
  signal.throwIfAborted();
  await pinAsVolumes(docker, maker, request, remains);

  // Known by its name before it is made: a creation that fails half way is removed all the same.
  remains.container = docker.getContainer(name);
  const labels = labelsFor(maker, "container", name, plan);
  const config = containerConfig(plan, name, labels, remains.volumes, seccomp);
  const container = await docker.createContainer(config).catch((error: unknown) => {
    // The name is taken: what has it is somebody else's, and not ours to remove.
    if (statusCodeOf(error) === 409) remains.container = null;
    throw error;
  });
  remains.container = container;
  signal.throwIfAborted();

  const attachment = await attach(container, request.onOutput);
  remains.attachment = attachment;
  const wait = container.wait({ condition: "next-exit" }) as Promise<WaitAnswer>;
  // Looked at when the cell ends; until then a broken connection is no unhandled rejection.
  wait.catch(() => {});
  await container.start();
  const report = parseGateReport(await reportWithin(attachment, signal));

  const { enforcement, violations } = verifyCell(plan, report);
  if (violations.length > 0) return { ok: false, violations };
  const cell = dockerCell({ container, attachment, wait, enforcement, remove: () => remains.remove() });
  return { ok: true, cell, container, attachment };
}

/** One volume for each directory, bound to the pinned descriptor: the daemon never resolves its path again (design facts 1 and 2). */
async function pinAsVolumes(
  docker: Docker,
  maker: Maker,
  { plan, pins }: StartRequest,
  remains: CellRemains,
): Promise<void> {
  const directories = plan.mounts.filter((mount) => mount.kind === "directory");
  // The Engine takes the name of a volume that exists for that volume: ours are nobody else's.
  const prefix = `corral-${plan.run}-${randomBytes(4).toString("hex")}`;
  // All have settled before anything is removed: one that is still being made could not be found then.
  const made = await Promise.allSettled(
    directories.map(async (mount, index) => {
      const source = pins.sources.get(mount.host);
      if (source === undefined) throw new Error(`the source of ${mount.path} was not pinned`);
      const name = `${prefix}-${index}`;
      remains.volumes.set(mount, name);
      await docker.createVolume({
        Name: name,
        Driver: "local",
        DriverOpts: { type: "none", o: "bind", device: source.descriptorPath },
        Labels: labelsFor(maker, "volume", name, plan),
      });
    }),
  );
  const failure = made.find((result) => result.status === "rejected");
  if (failure !== undefined) throw failure.reason;
}

async function reportWithin(attachment: Attachment, signal: AbortSignal): Promise<string> {
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  const late = (): void => reject(new EngineTrouble("the cell did not report what it is in time"));
  const timer = setTimeout(late, REPORT_TIMEOUT_MS);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([attachment.report, stopped]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** The few answers of the Engine that say something about the request and not about the Engine. */
function refusalFrom(error: unknown, { plan }: StartRequest): Violation | null {
  if (statusCodeOf(error) === null) return null;
  const message = engineMessage(error);
  if (/no such image/i.test(message)) return { code: "IMAGE_MISSING", image: plan.image.name };
  if (CANNOT_ENFORCE.test(message)) return { code: "ENFORCEMENT_MISSING", missing: [message] };
  // A swap after the check shows here where nothing can be mounted, and else in the verification.
  if (CANNOT_MOUNT.test(message)) {
    const granted = plan.mounts.filter((mount) => mount.origin !== "corral").map((mount) => mount.path);
    const named = granted.filter((path) => message.includes(`"${path}"`) || message.includes(`${path}:`));
    const path = (named.length > 0 ? named : granted).join(", ");
    const reason = "it went away, or its place did, while the cell was starting";
    if (granted.length > 0) return { code: "MOUNT_SOURCE_REFUSED", path, reason };
  }
  return null;
}

/** The Engine on a runtime that it does not have, and on bounds that are too small for it. */
const CANNOT_ENFORCE = /unknown (or invalid )?runtime|minimum memory limit|cpu cfs quota/i;

/** The Engine and its runtime on a mount whose source is gone, or whose mount point is not there and cannot be made. */
const CANNOT_MOUNT =
  /\b(mount|mounting|bind source)\b.*(does not exist|not a directory|no such file or directory|read-only file system)/is;

function unlessGone(error: unknown): void {
  if (!isGone(error)) throw error;
}
