import { writeFile } from "node:fs/promises";
import { availableParallelism, loadavg, totalmem } from "node:os";
import { type Bench, openBench } from "./bench.ts";
import { hasDockerCommand } from "./contenders/docker-run.ts";
import { installPeers } from "./contenders/open-peers.ts";
import { type BenchOptions, parseOptions, type SuiteName } from "./options.ts";
import { chartOf } from "./outcome/chart.ts";
import type { BenchReport, Group } from "./outcome/report.ts";
import { tablesOf } from "./outcome/table.ts";
import { targetsOf } from "./outcome/targets.ts";
import { SIZES } from "./sizes.ts";
import { GROWTH } from "./suites/growth.ts";
import { MEMORY } from "./suites/memory.ts";
import { NETWORK } from "./suites/network.ts";
import { PURE } from "./suites/pure.ts";
import { RATES } from "./suites/rates.ts";
import { RUNS } from "./suites/runs.ts";
import type { Suite } from "./suites/suite.ts";
import { TOOLS } from "./suites/tools.ts";

/** The bench reports ratios and does not pass or fail: machines are shared and noisy. */
const SUITES: Readonly<Record<SuiteName, Suite>> = {
  memory: MEMORY,
  runs: RUNS,
  rates: RATES,
  growth: GROWTH,
  tools: TOOLS,
  network: NETWORK,
  pure: PURE,
};

const options = parseOptions(process.argv.slice(2), process.cwd());
const report = await measured(options);
console.log(`\n${tablesOf(report)}`);
if (options.json !== null) await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`);
if (options.svg !== null) await writeFile(options.svg, chartOf(report));

async function measured({ level, peers: wanted, suites }: BenchOptions): Promise<BenchReport> {
  const startedAt = new Date();
  const [loadBefore = 0] = loadavg();
  const failure = wanted ? await installPeers() : null;
  const hasDocker = await hasDockerCommand();
  await using bench = await openBench({ sizes: SIZES[level], hasDocker });
  const groups: Group[] = [];
  const notes = [
    ...(hasDocker ? [] : ["The docker command is not installed: nothing is compared with `docker run`."]),
    ...(failure === null ? [] : [`The peers could not be installed: ${failure}`]),
    ...bench.peers.map(({ difference }) => `${difference}.`),
    ...bench.absentPeers.map(({ name, absent }) => `${name} was not measured: ${absent}.`),
  ];
  for (const name of suites) {
    process.stderr.write(`bench: ${name}\n`);
    const { groups: added, notes: said = [] } = await SUITES[name].measure(bench);
    groups.push(...added);
    notes.push(...said);
  }
  const machine = { ...(await machineOf(bench)), loadBefore, loadAfter: loadavg()[0] ?? 0 };
  const durationMs = Date.now() - startedAt.getTime();
  const targets = targetsOf(groups);
  return { version: 1, level, startedAt: startedAt.toISOString(), durationMs, machine, groups, targets, notes };
}

async function machineOf({ docker }: Bench) {
  const { Version: engine } = await docker.version();
  return { cores: availableParallelism(), memoryBytes: totalmem(), node: process.versions.node, engine };
}
