import { chmod, chown, mkdir, mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { loadPolicy, loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { dockerDriver } from "../../../src/isolation/engine/driver.ts";
import { gateBinary } from "../../../src/isolation/engine/images/catalog.ts";
import { connect } from "../../../src/isolation/engine/open.ts";
import { closedGate } from "../../../src/isolation/gate/gate-streams.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import type { CellExit } from "../../../src/isolation/port/cell.ts";
import type { Driver, Start } from "../../../src/isolation/port/driver.ts";
import { type Maker, RUN_LABEL } from "../../../src/isolation/port/labels.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import { present } from "../../../src/text/present.ts";
import { type Planned, pinnedPlan } from "../pinned-plan.ts";

/** The real Engine, with a state directory and a seal of this test file's own. */
export type Engine = Awaited<ReturnType<typeof openEngine>>;

export interface CellAsked {
  readonly command: readonly string[];
  readonly run?: string;
  readonly image?: string;
  readonly policy?: Policy;
  readonly mounts?: readonly Mount[];
  readonly attachments?: readonly { name: string; host: string }[];
  readonly env?: Readonly<Record<string, string>>;
}

export async function openEngine() {
  const dir = await mkdtemp(join(tmpdir(), "corral-iso-"));
  const stateDir = join(dir, "state");
  const { docker } = await connect({});
  const sealKey = await loadSealKey(stateDir);
  const maker: Maker = { owner: currentOwner(), sealKey };
  const seccomp = { corral: await loadSeccompProfile() };
  const liveDir = join(stateDir, "live");
  const startedDir = join(stateDir, "containers");
  const namesDir = join(stateDir, "names");
  const driverOf = (
    as: Maker,
    more: { readonly listensByContainer?: boolean; readonly docker?: Docker } = {},
  ): Driver => dockerDriver({ docker, maker: as, seccomp, liveDir, startedDir, namesDir, ...more });
  const gate = await closedGate(await gateBinary({ docker, stateDir }));
  const socket = join(dir, "s");
  const server = createServer();
  await new Promise<void>((listening) => server.listen(socket, listening));
  const untrusted = await loadPolicy("untrusted", { dirs: [] });
  const driver = driverOf(maker);
  const planned: Planned[] = [];
  return {
    docker,
    dir,
    stateDir,
    liveDir,
    startedDir,
    namesDir,
    maker,
    driver,
    driverOf,
    untrusted,
    /** For gVisor's threads, which count, and of which a cell has some. */
    ...present({ withoutProcesses: untrusted.hardening.runtime === "runsc" ? TOO_FEW : undefined }),
    /** A folder that a cell of any policy may write. */
    async folder(name: string): Promise<string> {
      const path = join(dir, name);
      await mkdir(path, { recursive: true });
      if (process.getuid?.() === 0) await chown(path, 65532, 65532);
      else await chmod(path, 0o777);
      return path;
    },
    async plan({ command, image = "corral/base", policy = untrusted, ...asked }: CellAsked): Promise<Planned> {
      const facts = await driver.imageFacts(image);
      if (facts === null) throw new Error(`the tests need the image ${image}`);
      const made = await pinnedPlan({ ...asked, command, policy, image: facts, plumbing: { gate, socket } });
      planned.push(made);
      return made;
    },
    /** Everything on the Engine that carries this run's label, in whatever state. */
    async traces(run: string): Promise<string[]> {
      const filters = { label: [`${RUN_LABEL}=${run}`] };
      const containers = await docker.listContainers({ all: true, filters });
      const { Volumes } = await docker.listVolumes({ filters });
      return [...containers.map(({ Names }) => Names[0] ?? ""), ...(Volumes ?? []).map(({ Name }) => Name)];
    },
    async [Symbol.asyncDispose](): Promise<void> {
      for (const { pins } of planned) await pins[Symbol.asyncDispose]();
      await new Promise((closed) => server.close(closed));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const TOO_FEW = "pids: threads of runsc count too, so it needs at least 256, planned 0. Set limits.pids";

/** What a cell said and how it ended, where it was let in at once and nobody disturbed it. */
export interface Ran {
  readonly exit: CellExit;
  readonly stdout: string;
  readonly stderr: string;
  readonly plan: Plan;
}

/** Starts, releases, waits and removes. */
export async function ranToItsEnd(engine: Engine, asked: CellAsked, input = ""): Promise<Ran> {
  const { plan, pins } = await engine.plan(asked);
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const started = await engine.driver.start({
    plan,
    pins,
    signal: new AbortController().signal,
    onOutput: (stream, chunk) => output[stream].push(chunk),
  });
  await using cell = cellOf(started);
  cell.release(Buffer.from(input));
  const exit = await cell.exit;
  const text = (stream: "stdout" | "stderr"): string => Buffer.concat(output[stream]).toString();
  return { exit, stdout: text("stdout"), stderr: text("stderr"), plan };
}

/** The cell; a refusal fails the test with its reasons. */
export function cellOf(started: Start) {
  if (!started.ok) throw new Error(`refused: ${JSON.stringify(started.violations)}`);
  return started.cell;
}
