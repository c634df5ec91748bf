import { type Host, USER } from "./hosts.ts";
import type { RunningHost } from "./second-engine.ts";

/** What is tried on each host: a column of the table. */
export interface Check {
  readonly name: string;
  readonly driver: "engine" | "runc";
  /** What makes the cells of the driver of OCI runtimes; absent: the Engine's own runc. */
  readonly runtime?: "crun";
  readonly files: readonly string[];
  /** In place of them where each cell is gVisor's; absent: nothing is tried there. */
  readonly onGvisor?: readonly string[];
  /** Whether it has so many cells that an emulated machine would need hours. */
  readonly isLong?: boolean;
  /** Instead of files: see {@link restartOutcome}. */
  readonly isRestart?: boolean;
  /** Whether what other runs leave out is tried. */
  readonly isAtLength?: boolean;
  /** Why an ordinary user does not try it; absent: he does. */
  readonly notAsUser?: string;
}

const CONTRACT = "test/isolation/engine/driver.test.ts";
const ATTACKS = [
  "escape",
  "kernel-requests",
  "mount-sources",
  "nested-mounts",
  "network",
  "planted-links",
  "scrubbed",
  "secrets/delivery",
  "egress/namespace",
].map((name) => `test/attacks/${name}.test.ts`);

/** There is no allow list and no scrubbed cell: the contract's files are about these. */
const GVISOR_ATTACKS = ATTACKS.filter((file) => !/scrubbed|namespace/.test(file));
/** A plan with a mount inside of another is never crun's: fresh items have runc's cell then. */
const CRUN_ATTACKS = ATTACKS.filter((file) => !file.includes("nested-mounts"));
/** The contract of an OCI runtime, and what its cells have in common with the Engine's. */
const OCI_CONTRACT = ["driver", "like-the-engine"].map((name) => `test/isolation/runc/${name}.test.ts`);

const FIRST_HOUR = ["docs/tutorial", "cli/convert", "cli/session"].map((name) => `test/${name}.test.ts`);

const EMULATED = "the machine is emulated, and each of its many cells takes seconds";
/** Of vitest there. */
const PATIENCE = ["--testTimeout=1200000", "--hookTimeout=1200000", "--expect.poll.timeout=600000"];
const ON_GVISOR = "each cell there is gVisor's, which only the Engine makes, and only root sees from outside";
const NEEDS_ROOT = "it runs as root alone";
const GIVES_FILES = "its tests give files to the user of a cell, which root alone can";

export const CHECKS: readonly Check[] = [
  {
    name: "contract, Engine",
    driver: "engine",
    files: [CONTRACT],
    onGvisor: [CONTRACT, "test/isolation/engine/gvisor.test.ts"],
  },
  { name: "contract, runc", driver: "runc", files: OCI_CONTRACT, notAsUser: NEEDS_ROOT },
  { name: "contract, crun", driver: "runc", runtime: "crun", files: OCI_CONTRACT, notAsUser: NEEDS_ROOT },
  {
    name: "attacks, Engine",
    driver: "engine",
    files: ATTACKS,
    onGvisor: GVISOR_ATTACKS,
    isLong: true,
    notAsUser: GIVES_FILES,
  },
  { name: "attacks, runc", driver: "runc", files: ATTACKS, isLong: true, notAsUser: NEEDS_ROOT },
  { name: "attacks, crun", driver: "runc", runtime: "crun", files: CRUN_ATTACKS, isLong: true, notAsUser: NEEDS_ROOT },
  {
    name: "ends",
    driver: "engine",

    isAtLength: true,
    files: ["run/lost", "run/session/lost", "run/death-watch", "fleet/engine-killed"].map(
      (name) => `test/${name}.test.ts`,
    ),
    notAsUser: "an Engine of its own, which is ended and started again, needs root",
  },
  { name: "restart", driver: "engine", files: [], isRestart: true, notAsUser: "the machine was restarted as root" },
  // By the installed package, in a folder that holds nothing else.
  { name: "first hour", driver: "engine", files: FIRST_HOUR },
];

export type Verdict = "holds" | "fails" | "cannot";

export interface Outcome {
  readonly verdict: Verdict;
  /** For the table. */
  readonly shown: string;
  /** What did not hold, or why it could not be tried. */
  readonly reasons: readonly string[];
}

/** Tests of vitest that ran in the host; a test that is skipped there is named. */
export async function outcomeOf(on: Host, host: RunningHost, check: Check, user: string): Promise<Outcome> {
  const files = on.runtime === undefined ? check.files : check.onGvisor;
  if (files === undefined || (on.runtime !== undefined && user === USER)) return cannot(ON_GVISOR);
  if (user === USER && check.notAsUser !== undefined) return cannot(check.notAsUser);
  if (on.isMachine === true && check.isLong === true) return cannot(EMULATED);
  if (check.isRestart === true) return await restartOutcome(host);
  const refused = check.runtime === "crun" ? await withoutCrun(host) : null;
  if (refused !== null) return refused;
  const began = Date.now();
  const report = `report-${user}-${began}.json`;
  // Its configuration is loaded as it is: a copy would be written beside the packages, which a user cannot.
  const how = ["--root", "/corral", "--configLoader", "native", "--retry", "1"];
  const vitest = ["node", "/corral/node_modules/vitest/vitest.mjs", "run", ...how];
  const patience = on.isMachine === true ? PATIENCE : [];
  const reporting = ["--reporter", "json", "--outputFile", `/tmp/${report}`];
  const env = {
    CORRAL_DRIVER: check.driver,
    ...(check.runtime === undefined ? {} : { CORRAL_OCI_RUNTIME: check.runtime }),
    // Each test runs once, on this driver, and none is left out because another driver has it.
    CORRAL_TESTS: "engine",
    ...(on.runtime === undefined ? {} : { CORRAL_TEST_RUNTIME: on.runtime }),
    ...(check.isAtLength === true ? { CORRAL_LONG: "1" } : {}),
    CORRAL_TESTS_BUILT: "1",
    CORRAL_TEST_PROGRAM: "/packed/node_modules/corral/dist/cli/corral.cjs",
  };
  const { output } = await host.run(
    user,
    [...vitest, ...patience, ...reporting, "--project", "runc", "--project", "engine", ...files],
    env,
  );
  const errors = output.split("\n").filter((line) => /^\S*Error\b/.test(line));
  const lines = errors.length > 0 ? errors.slice(0, 3) : output.trim().split("\n").slice(-3);
  const { status, output: reported } = await host.run(user, ["cat", `/tmp/${report}`]);
  if (status !== 0) return failed(lines, "nothing ran");
  return judged(JSON.parse(reported), Math.round((Date.now() - began) / 1000), lines);
}

/** Where crun cannot make cells as planned, fresh items are to have those of runc, without being asked for. Null: crun makes them. */
async function withoutCrun(host: RunningHost): Promise<Outcome | null> {
  const said = async (env: Readonly<Record<string, string>>): Promise<string> => {
    const { output } = await host.run("root", ["corral", "doctor", "--json"], { CORRAL_DRIVER: "prefer-runc", ...env });
    const report = output.split("\n").find((line) => line.startsWith("{")) ?? "{}";
    const { findings = [] } = JSON.parse(report) as { findings?: readonly { what: string; detail: string }[] };
    return findings.find(({ what }) => what === "driver")?.detail ?? output;
  };
  const asked = await said({ CORRAL_OCI_RUNTIME: "crun" });
  const reason = /crun cannot make cells here: .*/.exec(asked)?.[0];
  if (reason === undefined) return null;
  const chosen = await said({});
  return /a first cell of runc was what was planned/.test(chosen)
    ? cannot(`${reason}; runc makes fresh cells`)
    : failed([chosen], "no runtime");
}

interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly message: string;
    readonly assertionResults: readonly { status: string; fullName: string; failureMessages?: readonly string[] }[];
  }[];
}

function judged({ testResults }: Report, seconds: number, lines: readonly string[]): Outcome {
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults);
  const passed = tests.filter(({ status }) => status === "passed").length;
  const bad = tests.filter(({ status }) => status === "failed");
  const skipped = tests.filter(({ status }) => !["passed", "failed"].includes(status));
  const files = testResults.filter(({ message }) => message !== "").map(({ message }) => firstLine(message));
  const reasons = [
    ...files,
    ...bad.map(({ fullName, failureMessages = [] }) => `${fullName}: ${firstLine(failureMessages[0] ?? "")}`),
    ...skipped.map(({ fullName }) => `not run there: ${fullName}`),
  ];
  if (passed === 0 && bad.length === 0) return failed(reasons.length > 0 ? reasons : lines, "nothing ran");
  if (bad.length > 0 || files.length > 0) return failed(reasons, `${bad.length} of ${tests.length} fail`);
  return { verdict: "holds", shown: `✓ ${passed}, ${seconds} s`, reasons };
}

/**
 * A machine that is restarted, as if its power failed, under a run and a fleet, once for each driver. After that the fleet goes on, each item has one
 * result and one effect, the run is told, and nothing is left.
 */
async function restartOutcome(host: RunningHost): Promise<Outcome> {
  if (host.restart === undefined) return cannot("its kernel is that of this machine");
  const began = Date.now();
  const wrong: string[] = [];
  for (const driver of ["engine", "runc"]) {
    const step = async (name: "begin" | "end"): Promise<boolean> => {
      const command = ["sh", "/corral/test/hosts/restart-project.sh", name, `/root/restart-${driver}`, driver];
      const { status, output } = await host.run("root", command);
      if (status !== 0) wrong.push(`${driver}: ${name}: ${output.trim().replaceAll("\n", "; ")}`);
      return status === 0;
    };
    if (!(await step("begin"))) continue;
    await host.restart();
    await step("end");
  }
  if (wrong.length > 0) return failed(wrong, `${wrong.length} of 2 fail`);
  return { verdict: "holds", shown: `✓ 2, ${Math.round((Date.now() - began) / 1000)} s`, reasons: [] };
}

const firstLine = (text: string): string => text.trim().split("\n")[0] ?? "";
const cannot = (why: string): Outcome => ({ verdict: "cannot", shown: "–", reasons: [why] });
const failed = (reasons: readonly string[], how: string): Outcome => ({ verdict: "fails", shown: `✗ ${how}`, reasons });
