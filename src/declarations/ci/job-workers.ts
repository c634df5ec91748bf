import { shellWord } from "../../text/visible.ts";
import { readWorker, type WorkerFile } from "../worker/worker.ts";
import type { Checked } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import type { CiFile, CiJob } from "./ci-yaml.ts";
import type { CiNetwork } from "./tools.ts";

/** Anything else would be of the host, or of a person who is not there. */
const KEYS = ["name", "description", "image", "environment", "command", "env", "limits", "sandbox"];
const NETWORK_KEYS = ["allow", "packages", "limits", "lockfiles"];

/** The file of a worker that a job names. */
export function workerPath(name: string): string {
  return `workers/${name}.worker`;
}

/**
 * Each job with what its worker says where the job itself says nothing. Pure.
 *
 * @param texts by the names of the workers; null: there is no such file
 */
export function withWorkers(file: CiFile, texts: ReadonlyMap<string, string | null>): Checked<CiFile> {
  const problems: Problem[] = [];
  const jobs = [...file.jobs].map(([key, job]): [string, CiJob] => {
    if (job.worker === null) return [key, job];
    const path = workerPath(job.worker);
    const text = texts.get(job.worker) ?? null;
    if (text === null) {
      const message = `is not in the commit of ci.yaml, whose job \`${key}\` names it`;
      problems.push({ file: path, line: 1, column: 1, path: "", message });
      return [key, job];
    }
    const read = readWorker(text, path);
    const faults = read.ok ? workerProblems(read.value, job) : read.problems;
    problems.push(...faults.filter((one) => !problems.some((other) => JSON.stringify(other) === JSON.stringify(one))));
    return [key, read.ok && faults.length === 0 ? withWorker(job, read.value) : job];
  });
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: { ...file, jobs: new Map(jobs) } };
}

function workerProblems({ worker, document: { raw, problemAt } }: WorkerFile, job: CiJob): Problem[] {
  const all = raw as Readonly<Record<string, unknown>>;
  const problems = Object.keys(all)
    .filter((key) => !KEYS.includes(key))
    .map((key) => problemAt([key], `is not for a worker of \`ci.yaml\`, which has ${KEYS.join(", ")}`, "key"));
  if (worker.imageFrom !== undefined)
    problems.push(problemAt(["image"], "must be the name of an image: Corral makes none of files of a commit"));
  const { pip, npm } = worker.environment ?? {};
  if (typeof pip === "string" || typeof npm === "string")
    problems.push(problemAt(["environment"], "must have lists of packages: files of the work tree are not the base's"));
  const { network, ...others } = (all.sandbox ?? {}) as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(others))
    problems.push(problemAt(["sandbox", key], "is not for a worker of `ci.yaml`: it has no file of the host", "key"));
  if (network === undefined) return problems;
  const at = ["sandbox", "network"];
  if (job.trust !== "base")
    return [...problems, problemAt(at, `is for \`trust: base\` alone: \`${job.name}\` runs what the head has`)];
  if (typeof network === "boolean") return [...problems, problemAt(at, "must be a list of hosts or packages")];
  for (const key of Object.keys(network as object))
    if (!NETWORK_KEYS.includes(key)) problems.push(problemAt([...at, key], "is not for a worker of `ci.yaml`", "key"));
  for (const [index, name] of ((network as CiNetwork).lockfiles ?? []).entries())
    if (!job.lockFiles.includes(name))
      problems.push(problemAt([...at, "lockfiles", index], `is none of \`lock_files\` of the job \`${job.name}\``));
  return problems;
}

function withWorker(job: CiJob, { worker, document }: WorkerFile): CiJob {
  const { image, environment = {}, command, needs } = worker;
  const limits = { ...needs.limits, ...job.limits };
  const env = new Map([...Object.entries(worker.env), ...job.env]);
  if (job.trust !== "base") {
    const own = Object.keys(job.environment).length > 0 ? job.environment : environment;
    const run = job.run ?? (command ?? []).map(shellWord).join(" ");
    const named = "image" in (document.raw as object) ? image : null;
    return { ...job, image: job.image ?? named, environment: own, env, limits, run };
  }
  const { sandbox } = document.raw as { readonly sandbox?: { readonly network?: CiNetwork } };
  const fetcher = { image, environment, command: command ?? [], env: Object.fromEntries(env), limits };
  return { ...job, fetcher: { ...fetcher, network: sandbox?.network ?? null, lockFiles: job.lockFiles } };
}
