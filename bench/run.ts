import { writeFile } from "node:fs/promises";
import { availableParallelism, loadavg, totalmem } from "node:os";
import { type Bench, openBench } from "./bench.ts";
import { hasDockerCommand } from "./contenders/docker-run.ts";
import { installPeers, openPeers } from "./contenders/open-peers.ts";
import { type BenchOptions, parseOptions } from "./options.ts";
import { chartOf } from "./outcome/chart.ts";
import type { BenchReport, Group } from "./outcome/report.ts";
import { tablesOf } from "./outcome/table.ts";
import { targetsOf } from "./outcome/targets.ts";
import { SIZES } from "./sizes.ts";
import { GROWTH } from "./suites/growth.ts";
import { MEMORY } from "./suites/memory.ts";
import { PURE } from "./suites/pure.ts";
import { RATES } from "./suites/rates.ts";
import { RUNS } from "./suites/runs.ts";
import type { Suite } from "./suites/suite.ts";
import { TOOLS } from "./suites/tools.ts";

/** What it tells are ratios, and it judges nothing: machines are shared and noisy. */
const SUITES: readonly Suite[] = [MEMORY, RUNS, RATES, GROWTH, TOOLS, PURE];
const IMAGE = "corral/base";

const options = parseOptions(process.argv.slice(2), process.cwd());
const report = await measured(options);
console.log(`\n${tablesOf(report)}`);
if (options.json !== null) await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`);
if (options.svg !== null) await writeFile(options.svg, chartOf(report));

async function measured({ level, peers: wanted, only }: BenchOptions): Promise<BenchReport> {
  const startedAt = new Date();
  const [loadBefore = 0] = loadavg();
  const failure = wanted ? await installPeers() : null;
  const opened = await openPeers(IMAGE);
  await using peers = new AsyncDisposableStack();
  const present = opened.flatMap((peer) => ("absent" in peer ? [] : [peers.use(peer)]));
  const hasDocker = await hasDockerCommand();
  await using bench = await openBench({ sizes: SIZES[level], peers: present, hasDocker });
  const groups: Group[] = [];
  const notes = [
    ...(hasDocker ? [] : ["The docker command is not installed: nothing is compared with `docker run`."]),
    ...(failure === null ? [] : [`The peers could not be installed: ${failure}`]),
    ...opened.map((peer) =>
      "absent" in peer ? `${peer.name} was not measured: ${peer.absent}.` : `${peer.difference}.`,
    ),
  ];
  for (const suite of SUITES.filter(({ name }) => only.length === 0 || only.includes(name))) {
    process.stderr.write(`bench: ${suite.name}\n`);
    const { groups: told, notes: said = [] } = await suite.measure(bench);
    groups.push(...told);
    notes.push(...said);
  }
  const machine = { ...(await machineOf(bench)), loadBefore, loadAfter: loadavg()[0] ?? 0 };
  const durationMs = Date.now() - startedAt.getTime();
  const targets = targetsOf(groups);
  return { version: 1, level, startedAt: startedAt.toISOString(), durationMs, machine, groups, targets, notes };
}

async function machineOf({ corral }: Bench) {
  const { Version: engine } = await corral.connection.docker.version();
  return { cores: availableParallelism(), memoryBytes: totalmem(), node: process.versions.node, engine };
}
