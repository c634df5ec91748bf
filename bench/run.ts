import { readFile, writeFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { type Bench, openBench } from "./bench.ts";
import { hasDockerCommand } from "./contenders/docker-run.ts";
import { installPeers } from "./contenders/open-peers.ts";
import { machineFacts } from "./machine.ts";
import { type BenchOptions, parseOptions, type SuiteName } from "./options.ts";
import { writePages } from "./outcome/pages.ts";
import { pictureOf } from "./outcome/picture.ts";
import { joined, medianGroups, medianTargets } from "./outcome/repeated.ts";
import type { BenchReport, Group } from "./outcome/report.ts";
import { tablesOf } from "./outcome/table.ts";
import { targetsOf } from "./outcome/targets.ts";
import { SIZES } from "./sizes.ts";
import { EXEC } from "./suites/exec.ts";
import { GROWTH } from "./suites/growth.ts";
import { MACHINES } from "./suites/machines.ts";
import { MEMORY } from "./suites/memory.ts";
import { NETWORK } from "./suites/network.ts";
import { PURE } from "./suites/pure.ts";
import { RATES } from "./suites/rates.ts";
import { RUNS } from "./suites/runs.ts";
import { SERVICE } from "./suites/service.ts";
import type { Suite } from "./suites/suite.ts";
import { TOOLS } from "./suites/tools.ts";

/** The bench reports ratios and does not pass or fail: machines are shared and noisy. */
const SUITES: Readonly<Record<SuiteName, Suite>> = {
  memory: MEMORY,
  runs: RUNS,
  rates: RATES,
  growth: GROWTH,
  exec: EXEC,
  tools: TOOLS,
  service: SERVICE,
  network: NETWORK,
  machines: MACHINES,
  pure: PURE,
};

const options = parseOptions(process.argv.slice(2), process.cwd());
const stopped = Promise.withResolvers<never>();
stopped.promise.catch(() => {});
// Not `once`: packages of the peers end the process on a signal that nothing else listens for any more.
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => stopped.reject(new Error(`the bench was stopped by ${signal}`)));
const report = await reported(options).catch((error: Error) => {
  console.error(`bench: ${error.message}`);
  // Contenders may still run: what the bench made is removed already.
  process.exit(1);
});
console.log(`\n${tablesOf(report)}`);
if (options.json !== null) await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`);
if (options.svg !== null) await writeFile(options.svg, pictureOf(report));
if (options.pages) await writePages(report);

async function reported(given: BenchOptions): Promise<BenchReport> {
  const [first, ...others] = await Promise.all(given.from.map(readReport));
  return first === undefined ? await measured(given) : joined([first, ...others]);
}

async function readReport(file: string): Promise<BenchReport> {
  const report = JSON.parse(await readFile(file, "utf8"));
  if (report.version !== 2) throw new Error(`${file} is no report of this version of the bench`);
  return report;
}

async function measured({ level, peers: wanted, suites, repeat, policy, command }: BenchOptions): Promise<BenchReport> {
  const startedAt = new Date();
  const [loadBefore = 0] = loadavg();
  const failure = wanted ? await installPeers() : null;
  await using bench = await openBench({ sizes: SIZES[level], hasDocker: await hasDockerCommand() }, policy);
  const passes: Group[][] = [];
  const notes = new Set<string>(notesOn(bench, failure));
  for (let pass = 1; pass <= repeat; pass += 1) {
    const groups: Group[] = [];
    for (const name of suites) {
      process.stderr.write(`bench: ${name}${repeat === 1 ? "" : `, pass ${pass} of ${repeat}`}\n`);
      const { groups: added, notes: said = [] } = await Promise.race([SUITES[name].measure(bench), stopped.promise]);
      groups.push(...added);
      for (const note of said) notes.add(note);
    }
    passes.push(groups);
  }
  return {
    version: 2,
    level,
    command,
    startedAt: startedAt.toISOString(),
    durationMs: Date.now() - startedAt.getTime(),
    machine: await machineFacts(bench.docker, loadBefore),
    groups: medianGroups(passes),
    targets: medianTargets(passes.map((groups) => targetsOf(groups))),
    notes: [...notes],
  };
}

function notesOn({ hasDocker, peers, absent }: Bench, failure: string | null): string[] {
  return [
    ...(hasDocker ? [] : ["The docker command is not installed: nothing is compared with `docker run`."]),
    ...(failure === null ? [] : [`The peers could not be installed: ${failure}`]),
    ...peers.present.map(({ difference }) => `${difference}.`),
    ...absent.map(({ name, absent: why }) => `${name} was not measured: ${why}.`),
  ];
}
