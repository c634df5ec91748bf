import type Docker from "dockerode";
import PQueue from "p-queue";
import type { Violation } from "../../sandbox/violation.ts";
import { type Driver, EngineTrouble, type Start, type StartRequest } from "../driver.ts";
import { parseGateReport } from "../gate/report.ts";
import { verifyCell } from "../gate/verify.ts";
import { labelsFor, type Maker } from "../labels.ts";
import type { PlannedMount } from "../plan.ts";
import { type Attachment, attach } from "./attachment.ts";
import { capabilities } from "./capabilities.ts";
import { dockerCell } from "./cell.ts";
import { containerConfig, type SeccompProfiles } from "./container-config.ts";
import { engineMessage, isGone, statusCodeOf } from "./engine-error.ts";
import { imageFacts } from "./image-facts.ts";
import { listCells, reap } from "./reap.ts";

/** More starts at once than this do not end sooner: the Engine's own work is the ceiling (design fact 5). */
const MAX_CONCURRENT_STARTS = 4;
/** How long a started container may take to report what it is. */
const REPORT_TIMEOUT_MS = 30_000;

export interface DockerDriverOptions {
  readonly docker: Docker;
  readonly maker: Maker;
  readonly seccomp: SeccompProfiles;
  /** Where the temporary directories of runs stand, by owner. */
  readonly liveDir: string;
}

/** Cells on a Docker Engine that runs on this machine. */
export function dockerDriver(options: DockerDriverOptions): Driver {
  const starts = new PQueue({ concurrency: MAX_CONCURRENT_STARTS });
  return {
    name: "docker",
    capabilities: () => capabilities(options.docker),
    imageFacts: (image) => imageFacts(options.docker, image),
    start: (request) => starts.add(() => start(options, request)),
    list: () => listCells(options.docker, options.maker),
    reap: () => reap(options),
  };
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
      throw new EngineTrouble(`the Engine did not remove a cell: ${engineMessage(error)}`, { cause: error });
    }
  }
}

async function start(options: DockerDriverOptions, request: StartRequest): Promise<Start> {
  const remains = new CellRemains(options.docker);
  let kept = false;
  try {
    const started = await startVerified(options, request, remains);
    kept = started.ok;
    return started;
  } catch (error) {
    request.signal.throwIfAborted();
    const violation = refusalFrom(error, request);
    if (violation !== null) return { ok: false, violations: [violation] };
    throw error instanceof EngineTrouble ? error : new EngineTrouble(engineMessage(error), { cause: error });
  } finally {
    if (!kept) await remains.remove();
  }
}

async function startVerified(
  { docker, maker, seccomp }: DockerDriverOptions,
  request: StartRequest,
  remains: CellRemains,
): Promise<Start> {
  const { plan, signal } = request;
  const name = `corral-${plan.run}`;
  signal.throwIfAborted();
  await pinAsVolumes(docker, maker, request, remains);

  // Known by its name before it is made: a creation that fails half way is removed all the same.
  remains.container = docker.getContainer(name);
  const labels = labelsFor(maker, "container", name, plan);
  const container = await docker.createContainer(containerConfig(plan, name, labels, remains.volumes, seccomp));
  remains.container = container;
  signal.throwIfAborted();

  const attachment = await attach(docker, container, request.onOutput);
  remains.attachment = attachment;
  const wait = container.wait({ condition: "next-exit" }) as Promise<{ StatusCode: number }>;
  // Looked at when the cell ends; until then a broken connection is no unhandled rejection.
  wait.catch(() => {});
  await container.start();
  const report = parseGateReport(await reportWithin(attachment, signal));

  const { enforcement, violations } = verifyCell(plan, report);
  if (violations.length > 0) return { ok: false, violations };
  return { ok: true, cell: dockerCell({ container, attachment, wait, enforcement, remove: () => remains.remove() }) };
}

/** One volume for each directory, bound to the pinned descriptor: the daemon never resolves its path again (design facts 1 and 2). */
async function pinAsVolumes(
  docker: Docker,
  maker: Maker,
  { plan, pins }: StartRequest,
  remains: CellRemains,
): Promise<void> {
  const directories = plan.mounts.filter((mount) => mount.kind === "directory");
  await Promise.all(
    directories.map(async (mount, index) => {
      const source = pins.sources.get(mount.host);
      if (source === undefined) throw new Error(`the source of ${mount.path} was not pinned`);
      const name = `corral-${plan.run}-${index}`;
      remains.volumes.set(mount, name);
      await docker.createVolume({
        Name: name,
        Driver: "local",
        DriverOpts: { type: "none", o: "bind", device: source.descriptorPath },
        Labels: labelsFor(maker, "volume", name, plan),
      });
    }),
  );
}

async function reportWithin(attachment: Attachment, signal: AbortSignal): Promise<string> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(REPORT_TIMEOUT_MS)]);
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const stop = (): void =>
    reject(signal.aborted ? signal.reason : new EngineTrouble("the cell did not report what it is in time"));
  limit.addEventListener("abort", stop, { once: true });
  if (limit.aborted) stop();
  try {
    return await Promise.race([attachment.report, stopped]);
  } finally {
    limit.removeEventListener("abort", stop);
  }
}

/** The few answers of the Engine that say something about the request and not about the Engine. */
function refusalFrom(error: unknown, { plan }: StartRequest): Violation | null {
  const status = statusCodeOf(error);
  const message = engineMessage(error);
  if (status === 404 && /no such image/i.test(message)) return { code: "IMAGE_MISSING", image: plan.image.name };
  // A file is bound by its path, so a swap shows here or, where the Engine found something else, in the verification.
  if (status !== null && /source path does not exist|not a directory|no such file or directory/i.test(message)) {
    const files = plan.mounts
      .filter((mount) => mount.kind === "file" && mount.origin !== "corral")
      .map((mount) => mount.path);
    if (files.length > 0) {
      return {
        code: "MOUNT_SOURCE_REFUSED",
        path: files.join(", "),
        reason: "it went away while the cell was starting",
      };
    }
  }
  return null;
}

function unlessGone(error: unknown): void {
  if (!isGone(error)) throw error;
}
