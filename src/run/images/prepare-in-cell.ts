import { lockKind } from "../../declarations/network/lock-rules.ts";
import { resolveNetwork } from "../../declarations/network/package-rules.ts";
import { parseWorker, type WorkerDefinition } from "../../declarations/worker/worker.ts";
import { ENVIRONMENT_PLACE, GATE_PATH } from "../../isolation/plan/plan.ts";
import type { Cell } from "../../isolation/port/cell.ts";
import { ImageBuildError, withoutColors } from "../../isolation/port/images.ts";
import { projectSandbox } from "../../sandbox/declare.ts";
import type { Network } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { type CellKind, openCell, supervise } from "../cell/open-cell.ts";
import { openRunNetwork } from "../cell/run-network.ts";
import type { RunEnvironment } from "../model/environment.ts";
import { Grantee } from "../model/grantee.ts";
import { BoundedOutput, identityOf, type Job, newRunId, rootJob } from "../model/job.ts";
import { type RunResult, refusedResult } from "../model/result.ts";
import type { MakeAsk } from "../model/worker-images.ts";
import { endedResult, recordedRun } from "../recorded-run.ts";
import { MAX_ENVIRONMENT_BYTES, type Prepare, type PrepareRequest } from "./worker-images.ts";

/*
 * The scripts of packages are hostile code, and this is where they run: in a cell with one directory to write, no other mount,
 * and a network that has the registries of one preset and nothing else.
 */

const LIMITS = {
  timeoutMs: 30 * 60_000,
  memoryBytes: 2 * 1024 ** 3,
  cpus: 2,
  pids: 512,
  outputBytes: 16 * 1024 ** 2,
  diskBytes: MAX_ENVIRONMENT_BYTES,
};
const TAIL_LINES = 20;
/** The registry that was not reached says more than what pip and npm make of it. */
const MAX_DENIED = 3;
/** Named by the project's own policies or by Corral's: only this one allows a network. */
const POLICY = "default";

const { pip, npm } = ENVIRONMENT_PLACE;
/** Temporary files are on the disk: `/tmp` of a cell is small, and executes nothing. */
const TEMPORARY = ".corral-tmp";

/** Without a pip of its own an environment is made in a third of the time, if the image's can install into it. */
const RECIPES = {
  pip: `
python=$(command -v python3 || command -v python) || { echo 'the image has no python3; use one that has, such as corral/python' >&2; exit 1; }
mkdir ${pip}/${TEMPORARY} || exit 1
if "$python" -m pip --version > /dev/null 2>&1
then "$python" -m venv --copies --without-pip ${pip} && set -- "$python" -m pip --python ${pip}/bin/python install $1
else "$python" -m venv --copies ${pip} && set -- ${pip}/bin/python -m pip install $1
fi || exit 1
"$@" --no-input --no-cache-dir -r ${pip}/requirements.txt || exit 1
rm -rf ${pip}/${TEMPORARY}`,
  npm: `
command -v npm > /dev/null || { echo 'the image has no npm; use one that has, such as corral/node' >&2; exit 1; }
cd ${npm} && mkdir ${TEMPORARY} node_modules && npm $1 --no-audit --no-fund --cache ${npm}/${TEMPORARY}/cache || exit 1
rm -rf ${TEMPORARY}`,
} as const;

/** A lock file is installed as it is; for a list of packages npm looks for their versions. */
const steps = ({ kind, isLocked }: PrepareRequest["input"]): string =>
  kind === "pip" ? "pip install" : isLocked ? "npm ci" : "npm install";

/** `environment`: everything that the runs of the project share, once it is complete. */
export function preparingInCells(environment: () => RunEnvironment): Prepare {
  return async (request, ask) => {
    const env = environment();
    const result = await preparationRun(request, ask, env);
    ask.signal.throwIfAborted();
    if (result.status === "succeeded") return;
    const tail = withoutColors(result.stderr).trimEnd().split("\n").slice(-TAIL_LINES);
    const how =
      result.status === "failed" ? `exit status ${result.exitCode}` : (result.error?.message ?? result.status);
    const denied = (result.network?.denied ?? []).slice(0, MAX_DENIED).map(({ detail }) => `  ${detail}`);
    throw new ImageBuildError(
      request.name,
      [`the preparation failed: ${how}`, ...denied, ...tail.map((line) => `  ${line}`)].join("\n"),
      { why: denied[0]?.trim() },
    );
  };
}

async function preparationRun(request: PrepareRequest, ask: MakeAsk, env: RunEnvironment): Promise<RunResult> {
  const worker = preparer(request);
  const network = await networkFor(request, env);
  const sandbox = await sandboxFor(request, network, env);
  const asked = { run: newRunId(), worker, callerSandbox: sandbox, signal: ask.signal };
  const root = rootJob(asked, { maxDepth: 0, maxCalls: 0 });
  const job: Job = ask.owner === null ? root : { ...root, root: ask.owner.root, parent: ask.owner.run };
  return await recordedRun(job, env, () => inCell(job, sandbox, request, ask, env));
}

/** A worker like one that a file declares: no tools, no calls, no input. */
function preparer({ name, image, input }: PrepareRequest): WorkerDefinition {
  const command = [
    GATE_PATH,
    "sh",
    "-c",
    RECIPES[input.kind],
    "sh",
    input.kind === "npm" ? (input.isLocked ? "ci" : "install") : input.isLocked ? "--require-hashes" : "",
  ];
  const plain = parseWorker("---\ncommand: [prepare]\n---\n", "prepare.worker");
  const env = { TMPDIR: `${ENVIRONMENT_PLACE[input.kind]}/${TEMPORARY}` };
  return { ...plain, name, image, command, env };
}

/** Only the registries of the preset and, if the contents of the files are known, only these files. */
async function networkFor({ input, name, addresses }: PrepareRequest, { project }: RunEnvironment): Promise<Network> {
  const kind = input.kind === "pip" ? "pypi" : "npm";
  const locked = input.isLocked && lockKind(input.path) === kind;
  const resolved = await resolveNetwork(
    {
      allow: [],
      packages: [{ kind, ...(addresses.length === 0 ? {} : { addresses }) }],
      ...(locked ? { lockfiles: [input.path] } : {}),
    },
    { projectDir: project.dir, registries: project.registries },
  );
  if (resolved.ok) return resolved.network;
  throw new ImageBuildError(name, resolved.faults.map(({ fault }) => fault).join("\n"));
}

async function sandboxFor(
  { input, name, tree }: PrepareRequest,
  network: Network,
  env: RunEnvironment,
): Promise<Sandbox> {
  const policy = await env.policyNamed(POLICY);
  const approval = { write: "pre_approved", delete: "pre_approved" } as const;
  const path = ENVIRONMENT_PLACE[input.kind] as VirtualPath;
  const mounts = [{ name, path, host: tree, mode: "rw" as const, approval }];
  return projectSandbox({ mounts, rooted: false, network, limits: LIMITS }, policy);
}

async function inCell(
  job: Job,
  sandbox: Sandbox,
  { tree, name, input }: PrepareRequest,
  { onProgress }: MakeAsk,
  env: RunEnvironment,
): Promise<RunResult> {
  const flood = new AbortController();
  const tell = (chunk: Buffer): void => {
    const line =
      chunk
        .toString()
        .trimEnd()
        .split(/[\r\n]+/)
        .at(-1) ?? "";
    if (line !== "") onProgress({ image: name, step: steps(input), text: line });
  };
  const output = new BoundedOutput(
    LIMITS.outputBytes,
    (_, chunk) => tell(chunk),
    () => flood.abort(),
  );
  const stage = { sandbox, adopt: async () => [] };
  await using network = await openRunNetwork(job, new Grantee(job, stage), env);
  const kind: CellKind<Cell> = {
    use: "packages",
    start: (driver, start) => driver.start({ ...start, onOutput: (stream, chunk) => output.add(stream, chunk) }),
    given: { views: { paths: new Set() }, filled: [tree] },
    hasSocket: false,
    written: (_, pins) => [pins.sources.get(tree)?.descriptorPath ?? tree],
  };
  const { accept, follow } = network;
  const owner = identityOf(job);
  await using opened = await openCell({ job, sandbox, kind, owner, signal: job.signal, accept, follow }, env);
  if (!opened.ok) return refusedResult({ run: job.run, worker: job.worker.name }, opened.violations);
  const { plan } = opened;
  const cell = opened.begin(owner, null);
  cell.release(Buffer.alloc(0));
  const bounds = {
    timeoutMs: plan.limits.timeoutMs,
    signal: job.signal,
    flooded: flood.signal,
    overDisk: opened.overDisk,
  };
  const { exit, stopped } = await supervise(cell, bounds);
  const ended = { exit, stopped, output, enforcement: cell.enforcement, calls: [] };
  const result = await endedResult(job.worker, plan, ended, env.schemas);
  await network[Symbol.asyncDispose]();
  return { ...result, ...network.report() };
}
