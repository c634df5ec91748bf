import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { CI_FILE, type CiCache, type CiFile, parseCiYaml } from "../../declarations/ci/ci-yaml.ts";
import { withWorkers, workerPath } from "../../declarations/ci/job-workers.ts";
import type { DeclaredTexts } from "../../declarations/corral-file.ts";
import { packageVersion, templateFiles } from "../../declarations/place/package-root.ts";
import { ownerOfNewZone } from "../../declarations/place/zone-folder.ts";
import { loadDeclaredProject } from "../../declarations/project.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import {
  foundReports,
  keptKeys,
  makeCiFolder,
  makeCiResults,
  writeCiFiles,
  writeCiResult,
} from "../../files/host/ci-folder.ts";
import { isRoot } from "../../files/host/descriptor.ts";
import { jsonLine } from "../../fleet/report/results-export.ts";
import { CommitFiles } from "../../git/stage.ts";
import { GitRefusal } from "../../git/tree-archive.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import type { Emit } from "../../run/model/events.ts";
import { type Corral, openCorralFor } from "../../run/open/corral.ts";
import { lockOwner } from "../../state/owner.ts";
import { trailEnd } from "../audit.ts";
import type { MachinePlace } from "../machine.ts";
import { RequestError } from "../request-error.ts";
import { type AttachedTree, attachedTree } from "../runs.ts";
import { runWorker } from "../workers.ts";
import { type CiEnd, type CiRevisions, type CiStepEnd, isGood } from "./ci-end.ts";
import { CI_FOLDER, ciTexts, isKept, lockFolder, type PreparedCi } from "./ci-texts.ts";
import { ciJson, codeQualityText, findingsIn, mergedJunit, sarifText } from "./findings.ts";
import {
  type CiSelection,
  type CiStep,
  cacheKey,
  fetcherOf,
  fetchKey,
  imageOf,
  type LockTexts,
  planCi,
} from "./plan-ci.ts";
import { type CiReports, MAX_TESTS, readReports } from "./reports.ts";

/** The two commits by their ids: what is checked is what runs, also if a branch moves meanwhile. */
export interface CiSource extends CiRevisions {
  readonly file: CiFile;
  /** The head's `ci.yaml` is another one. It is never obeyed. */
  readonly isChanged: boolean;
}

const MAX_CI_BYTES = 256 * 1024;
/** Of a lock file, and of a file that a cache's key names. */
const MAX_KEY_BYTES = 32 * 1024 * 1024;
/** Names of files of one start of git. */
const MAX_NAMES = 500;

/**
 * `ci.yaml` of the base.
 *
 * @throws RequestError ATTACHMENT for commits that are not there, DeclarationError for the mistakes in the file
 */
export async function ciSource(files: CommitFiles, asked: CiRevisions): Promise<CiSource> {
  return await answering(async () => {
    const [base = "", head = base] = await allOf([...new Set([asked.base, asked.head])], (one) => files.idOf(one));
    const [text = null, other = text] = await allOf([...new Set([base, head])], async (commit) => {
      const read = files.read(commit, CI_FILE, MAX_CI_BYTES);
      // The head's is compared alone, so it may be anything.
      return await (commit === base ? read : read.catch(() => null));
    });
    if (text === null) throw new GitRefusal("NOT_FOUND", `the base, commit ${base.slice(0, 12)}, has no ${CI_FILE}`);
    const file = await checkedCi(text.toString("utf8"), CI_FILE, async (path) => {
      return (await files.read(base, path, MAX_CI_BYTES))?.toString("utf8") ?? null;
    });
    return { base, head, file, isChanged: other?.equals(text) !== true };
  });
}

/**
 * `ci.yaml` with the workers that its jobs name.
 *
 * @param fileAt the text of another file of the same place; null: there is none
 * @throws DeclarationError
 */
export async function checkedCi(
  text: string,
  shown: string,
  fileAt: (path: string) => Promise<string | null>,
): Promise<CiFile> {
  const parsed = parseCiYaml(text, shown);
  if (!parsed.ok) throw new DeclarationError(parsed.problems);
  const texts = new Map<string, string | null>();
  for (const { worker } of parsed.value.jobs.values())
    if (worker !== null && !texts.has(worker)) texts.set(worker, await fileAt(workerPath(worker)));
  const checked = withWorkers(parsed.value, texts);
  if (!checked.ok) throw new DeclarationError(checked.problems);
  return checked.value;
}

async function answering<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof GitRefusal)) throw error;
    throw new RequestError("ATTACHMENT", "", error.message, [], { cause: error });
  }
}

/**
 * The project and the workers that a job of the `ci.yaml` of HEAD becomes.
 *
 * @param shownIn in which folder its places are shown
 * @throws RequestError, DeclarationError
 */
export async function explainCi(
  cwd: string,
  job: string,
  { signal, shownIn }: { readonly signal: AbortSignal; readonly shownIn: string },
): Promise<DeclaredTexts> {
  await using files = await answering(async () => await CommitFiles.open(cwd, signal));
  return await explainedCi((await ciSource(files, { base: "HEAD", head: "HEAD" })).file, job, shownIn);
}

/** The same of a file that was read. */
export async function explainedCi(file: CiFile, job: string, shownIn: string): Promise<DeclaredTexts> {
  const steps = planCi(file, { jobs: [job] });
  const scripts = await templateFiles(CI_FOLDER);
  const unknown = { isTrusted: false, fetchKeys: new Map(), cacheKeys: new Map(), kept: new Set<string>() };
  const top = join(shownIn, ".corral", "ci");
  const places = { run: join(top, "run"), cache: join(top, "cache"), out: join(shownIn, "ci-results") };
  return ciTexts({ file, steps, scripts, ...unknown }, places);
}

export interface CiRequest extends CiRevisions {
  /** Absolute: a folder of the repository. */
  readonly cwd: string;
  /** Absolute: the folder of the results. */
  readonly out: string;
  readonly selection: CiSelection;
  /** Runs at the same time. */
  readonly concurrency: number;
  readonly machine: MachinePlace;
  readonly signal: AbortSignal;
  readonly emit: Emit;
  readonly onSource: (source: CiSource, steps: readonly CiStep[]) => void;
  readonly onStart: (step: CiStep) => void;
  readonly onEnd: (end: CiStepEnd) => void;
}

/**
 * Runs the jobs of the base's `ci.yaml` on the files of the head, each in a cell of its own.
 *
 * @throws RequestError, DeclarationError before anything runs
 */
export async function runCi(request: CiRequest): Promise<CiEnd> {
  const { cwd, out, machine, signal, emit } = request;
  await using files = await answering(async () => await CommitFiles.open(cwd, signal));
  const source = await ciSource(files, request);
  const steps = planCi(source.file, request.selection);
  request.onSource(source, steps);
  // Git writes the files of the head, and the Engine answers, while all that decides about them is read.
  const archiving = attachedTree(source.head, "tree.tar", { cwd, signal });
  const engine = openEngine(machine);
  engine.catch(() => {});
  const archived = archiving.catch(() => null);
  await using _ = { [Symbol.asyncDispose]: async () => await (await archived)?.[Symbol.asyncDispose]() };
  const owner = isRoot() ? await ownerOfNewZone(cwd) : null;
  await makeCiResults(out, owner).catch((error: Error) => {
    throw new RequestError("ARGUMENTS", out, `${out} cannot be the folder of the results: ${error.message}`);
  });
  await using folder = await makeCiFolder(cwd, owner, lockOwner());
  const places = { run: folder.run, cache: folder.cache, out };
  const prepared = await answering(async () => await preparedCi(files, source, steps, places));
  const project = await loadDeclaredProject(cwd, ciTexts(prepared, places), machine.engineEnv);
  const ends = await endsOf(steps, openCorralFor(project, { ...machine, emit }, engine), {
    prepared,
    archiving,
    request,
  });
  const { base, head, isChanged } = source;
  const trail = await trailEnd({ stateDir: machine.stateDir, projectDir: project.dir });
  const end = { base, head, isChanged, isTrusted: prepared.isTrusted, ends, trail };
  await writeResults(end, out);
  return end;
}

interface CiRunning {
  readonly prepared: PreparedCi;
  readonly archiving: Promise<AttachedTree>;
  readonly request: CiRequest;
}

/** When it has settled, all that the steps did is in the audit trail. */
async function endsOf(
  steps: readonly CiStep[],
  opening: Promise<Corral>,
  { prepared, archiving, request }: CiRunning,
): Promise<CiStepEnd[]> {
  const { cwd, out, signal } = request;
  await using corral = await opening;
  const tree = await archiving;
  let room = MAX_TESTS;
  return await inGraph(steps, request, async (step) => {
    if (step.kind === "fetch" && isKept(prepared, step)) return { step, status: "kept", result: null, reports: null };
    const worker = corral.project.workers.get(step.name);
    if (worker === undefined) throw new Error(`the project has no worker ${step.name}`);
    const attachments = step.kind === "part" ? tree.attachments : [];
    // Reports of tests that failed are wanted most.
    const how = { cwd, policy: null, appliesFailed: step.kind === "part", signal };
    const result = await runWorker({ worker, attachments, ...how }, corral.environment);
    const reports = await reportsOf(step, out, room);
    room -= Math.min(room, reports?.tests.length ?? 0);
    return { step, status: result.status, result, reports };
  });
}

async function reportsOf(step: CiStep, out: string, room: number): Promise<CiReports | null> {
  if (step.kind === "fetch" || step.job.reports.junit.length + step.job.reports.coverage.length === 0) return null;
  return readReports(step, await foundReports(join(out, step.name, "reports")), room);
}

/** Files for CI systems, beside the folders of the steps. */
async function writeResults(end: CiEnd, out: string): Promise<void> {
  const findings = findingsIn(end);
  await writeCiResult(out, "ci.json", jsonLine(ciJson(end)));
  await writeCiResult(out, "junit.xml", mergedJunit(end));
  await writeCiResult(out, "corral.sarif", sarifText(findings, packageVersion()));
  await writeCiResult(out, "code-quality.json", codeQualityText(findings));
}

/** Reads what decides what is fetched and which caches are read, and leaves the lock files for their cells. */
async function preparedCi(
  files: CommitFiles,
  { base, head, file }: CiSource,
  steps: readonly CiStep[],
  places: { readonly run: string; readonly cache: string },
): Promise<PreparedCi> {
  // An ancestor of the base is not enough: nobody has reviewed a commit in the middle of a merged branch.
  const isTrusted = base === head;
  const scripts = await templateFiles(CI_FOLDER);
  const fetchKeys = new Map<string, string>();
  const cacheKeys = new Map<string, readonly string[]>();
  const all = await textsOf(files, steps, { base, head });
  for (const [index, step] of steps.entries()) {
    if (step.kind === "fetch") {
      const { lockFiles, optional } = fetcherOf(step);
      const commit = step.lock === "base" ? base : head;
      const texts = textsIn(all.get(commit), step.dir, lockFiles);
      const missing = lockFiles.find((name) => texts.get(name) === null && !optional.includes(name));
      if (missing !== undefined) {
        const place = pathIn(step.dir, missing);
        throw new RequestError(
          "ATTACHMENT",
          place,
          `${step.title} needs ${place}, and commit ${commit.slice(0, 12)} has none`,
        );
      }
      fetchKeys.set(step.name, fetchKey(step, texts, scripts.get("fetch.sh") ?? ""));
      const there = [...texts].flatMap(([name, text]) => (text === null ? [] : [[name, text] as const]));
      await writeCiFiles(lockFolder(places, index), new Map(there));
    } else {
      const { job } = step;
      const contentsOf = ({ key }: CiCache): LockTexts => textsIn(all.get(head), job.dir, key);
      cacheKeys.set(
        step.name,
        job.cache.map((cache) => cacheKey(step, imageOf(step, steps), cache, contentsOf(cache))),
      );
    }
  }
  return { file, steps, isTrusted, fetchKeys, cacheKeys, kept: await keptKeys(places.cache), scripts };
}

/** All files that decide about the steps, by commit and path. */
async function textsOf(
  files: CommitFiles,
  steps: readonly CiStep[],
  { base, head }: CiRevisions,
): Promise<ReadonlyMap<string, LockTexts>> {
  const names = new Map<string, string[]>([base, head].map((commit) => [commit, []]));
  for (const step of steps)
    if (step.kind === "fetch") {
      const { lockFiles } = fetcherOf(step);
      names.get(step.lock === "base" ? base : head)?.push(...lockFiles.map((name) => pathIn(step.dir, name)));
    } else
      for (const { key } of step.job.cache) names.get(head)?.push(...key.map((name) => pathIn(step.job.dir, name)));
  const found = new Map<string, Map<string, Buffer | null>>();
  for (const [commit, all] of names) {
    const texts = new Map<string, Buffer | null>();
    const paths = [...new Set(all)];
    for (let at = 0; at < paths.length; at += MAX_NAMES)
      for (const [path, text] of await files.readAll(commit, paths.slice(at, at + MAX_NAMES), MAX_KEY_BYTES))
        texts.set(path, text);
    found.set(commit, texts);
  }
  return found;
}

/** Those of a folder, by their names there. */
function textsIn(all: LockTexts | undefined, dir: string, names: readonly string[]): LockTexts {
  return new Map(names.map((name) => [name, all?.get(pathIn(dir, name)) ?? null]));
}

function pathIn(dir: string, name: string): string {
  return dir === "" ? name : `${dir}/${name}`;
}

/** At the same time. None runs any more when one has failed. */
async function allOf<Asked, Found>(
  all: readonly Asked[],
  find: (one: Asked) => Promise<Found>,
): Promise<readonly Found[]> {
  const found = all.map(find);
  await Promise.allSettled(found);
  return await Promise.all(found);
}

/** Each step runs when what it needs has succeeded, and at most so many at once. */
async function inGraph(
  steps: readonly CiStep[],
  { concurrency, signal, onStart, onEnd }: CiRequest,
  run: (step: CiStep) => Promise<CiStepEnd>,
): Promise<CiStepEnd[]> {
  const ends = new Map<string, CiStepEnd>();
  const running = new Map<string, Promise<void>>();
  const ended = (end: CiStepEnd): void => {
    ends.set(end.step.name, end);
    running.delete(end.step.name);
    onEnd(end);
  };
  try {
    while (ends.size < steps.length) {
      const waiting = steps.filter(({ name }) => !ends.has(name) && !running.has(name));
      for (const step of waiting) {
        const before = step.needs.map((name) => ends.get(name)?.status);
        if (signal.aborted || before.some((status) => status !== undefined && !isGood(status)))
          ended({ step, status: signal.aborted ? "cancelled" : "skipped", result: null, reports: null });
        else if (running.size < concurrency && before.every((status) => status !== undefined)) {
          onStart(step);
          running.set(step.name, run(step).then(ended));
        }
      }
      if (running.size > 0) await Promise.race(running.values());
      else await setImmediate();
    }
  } finally {
    await Promise.allSettled(running.values());
  }
  return steps.map(({ name }) => ends.get(name)).filter((end) => end !== undefined);
}
