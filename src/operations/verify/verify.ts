import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import PQueue from "p-queue";
import { stringify } from "yaml";
import { loadPolicy } from "../../declarations/policy/policy.ts";
import { ThrowAwayFolder } from "../../files/host/results-folder.ts";
import { ownNamespaces } from "../../isolation/gate/verify.ts";
import { kernelText } from "../../isolation/kernel/control-group.ts";
import { PROGRAM_DIRECTORIES, SETTINGS } from "../../isolation/plan/plan.ts";
import { Disposables } from "../../platform/disposables.ts";
import type { RunResult } from "../../run/model/result.ts";
import { type Corral, openCorral } from "../../run/open/corral.ts";
import { openSession } from "../../run/open-session.ts";
import type { DriverChoice } from "../../sandbox/driver-choice.ts";
import { present } from "../../text/present.ts";
import { examineMachine, type Finding } from "../machine.ts";
import { mapItems } from "../run-fleet.ts";
import { runWorker, workerNamed } from "../workers.ts";
import {
  type Attack,
  type Attempt,
  allowList,
  attacksOn,
  attemptIn,
  type Host,
  THREATS,
  type Threat,
  untriedIn,
} from "./attacks.ts";

export interface VerifyRequest {
  /** One of Corral's own, or of the folder. */
  readonly policy: string;
  /** Where further policies are; null: only Corral's own. Absolute. */
  readonly policiesDir: string | null;
  /** An Engine's runtime, in place of the policy's; null: the policy's. */
  readonly runtime: string | null;
  readonly driver: DriverChoice;
  /** Whether it measures, too. */
  readonly measures: boolean;
  /** Variables that locate the Engine. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
}

/** What came of all that was tried for one threat. */
export interface ThreatReport {
  readonly threat: Threat;
  readonly meaning: string;
  /** 0 with `notTried` null: the policy allows it, or has nothing of it. */
  readonly tried: number;
  /** What got through, each with what it saw. */
  readonly through: readonly { readonly what: string; readonly saw: string }[];
  /** Why not all of it was tried; null if it was. */
  readonly notTried: string | null;
}

export interface VerifyReport {
  /** Everything was tried that the policy has, and all of it held. */
  readonly ok: boolean;
  readonly policy: string;
  readonly runtime: string | null;
  /** What made the cells; null if none was made. */
  readonly driver: string | null;
  readonly threats: readonly ThreatReport[];
  /** What this host cannot enforce, or lacks, and what to do. */
  readonly host: readonly Finding[];
  /** Null if nothing was measured, or a run failed. */
  readonly cost: VerifyCost | null;
  readonly durationMs: number;
}

/** Of a worker that does nothing. */
export interface VerifyCost {
  /** A run by itself, from the request to its result: the median. */
  readonly runMs: number;
  /** Items of a fleet, each with a container of its own. */
  readonly itemsPerSecond: number;
  /** A command in a session that is open already: the median. Null if the session did not open. */
  readonly execMs: number | null;
}

/** Runs, and items of a fleet, that are measured. */
const MEASURED = { runs: 5, items: 16 } as const;

/** Cells at once: most of them wait for a limit. */
const AT_ONCE = 3;

/**
 * Attacks cells of this machine from within, in a project and a state directory that are removed afterwards.
 *
 * @throws UnknownPolicyError, DeclarationError for the policy, EngineUnavailableError
 */
export async function verifyMachine(
  request: VerifyRequest,
  { signal, onAttempts }: { readonly signal: AbortSignal; readonly onAttempts: (attempts: readonly Attempt[]) => void },
): Promise<VerifyReport> {
  const started = performance.now();
  await using place = new Disposables();
  const folder = place.use(await ThrowAwayFolder.make("corral-verify-"));
  const state = place.use(await ThrowAwayFolder.make("corral-verify-state-"));
  const host = await watchedHost(
    folder,
    place,
    request.driver === "bwrap" ? [...PROGRAM_DIRECTORIES, ...SETTINGS] : [],
  );
  const attacks = await prepare(request, host);
  const engineEnv = { ...request.engineEnv, CORRAL_DRIVER: request.driver };
  const machine = { stateDir: state.dir, engineEnv };
  const { findings } = await examineMachine(machine);
  const corral = place.use(await openCorral({ projectDir: folder.dir, ...machine }));
  const attempts: Attempt[] = [];
  const notTried = new Map<Threat, string>();
  const drivers = new Set<string>();
  const queue = new PQueue({ concurrency: AT_ONCE });
  await queue.addAll(
    attacks.map((attack) => async () => {
      const { result, printed, why } = await tried(attack, corral, signal);
      if (result?.enforcement) drivers.add(result.enforcement.driver);
      const made = printed.split("\n").flatMap((line) => attemptIn(line) ?? []);
      const isEnded = attack.saysEnd !== true || printed.endsWith("end\n");
      if (why === null && result !== null && isEnded) made.push(...((await attack.judge?.(result)) ?? []));
      attempts.push(...made);
      onAttempts(made);
      const isWhole = isEnded && attack.threats.every((threat) => made.some((one) => one.threat === threat));
      for (const line of printed.split("\n")) {
        const untried = untriedIn(line);
        if (untried !== null) notTried.set(untried.threat, untried.why);
      }
      if (why === null && isWhole) return;
      const reason =
        why ?? `its program did not reach its end: ${result?.stderr.trim().slice(0, 300) || result?.status}`;
      for (const threat of attack.threats) notTried.set(threat, reason);
    }),
  );
  signal.throwIfAborted();
  const cost = request.measures ? await measured(corral, signal) : null;
  const threats = (Object.keys(THREATS) as Threat[]).flatMap((threat) => {
    const of = attempts.filter((attempt) => attempt.threat === threat);
    const through = of.flatMap(({ what, saw }) => (saw === null ? [] : [{ what, saw }]));
    return [{ threat, meaning: THREATS[threat], tried: of.length, through, notTried: notTried.get(threat) ?? null }];
  });
  return {
    ok: notTried.size === 0 && threats.every(({ through }) => through.length === 0),
    policy: request.policy,
    runtime: request.runtime,
    driver: [...drivers].toSorted().join(", ") || null,
    threats,
    host: findings.filter((finding) => finding.state !== "ok"),
    cost,
    durationMs: Math.round(performance.now() - started),
  };
}

async function measured(corral: Corral, signal: AbortSignal): Promise<VerifyCost | null> {
  const times: number[] = [];
  for (let run = 0; run < MEASURED.runs; run += 1) {
    const began = performance.now();
    const request = { worker: workerNamed("other", corral.project), cwd: corral.project.dir, policy: null, signal };
    if ((await runWorker(request, corral.environment)).status !== "succeeded") return null;
    times.push(performance.now() - began);
  }
  const items = Array.from({ length: MEASURED.items }, (_, item) => ({ item }));
  const began = performance.now();
  for await (const { status } of mapItems(corral, {
    worker: "other",
    template: { input: {} },
    items,
    cache: false,
    signal,
  }))
    if (status !== "succeeded") return null;
  const seconds = (performance.now() - began) / 1000;
  const itemsPerSecond = Math.round((10 * MEASURED.items) / seconds) / 10;
  return { runMs: Math.round(median(times)), itemsPerSecond, execMs: await measuredExec(corral, signal) };
}

async function measuredExec(corral: Corral, signal: AbortSignal): Promise<number | null> {
  const opened = await openSession({ worker: workerNamed("other", corral.project), signal }, corral.environment);
  if (!opened.ok) return null;
  await using _ = opened;
  const times: number[] = [];
  // The first one makes the container.
  for (let command = 0; command <= MEASURED.runs; command += 1) {
    const began = performance.now();
    if ((await opened.session.exec({ command: "true" }, signal)).exitCode !== 0) return null;
    if (command > 0) times.push(performance.now() - began);
  }
  return Math.round(10 * median(times)) / 10;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

interface Tried {
  /** Null for items, and if there was none. */
  readonly result: RunResult | null;
  readonly printed: string;
  /** The cell was not made, or did not serve. */
  readonly why: string | null;
}

async function tried({ name, items }: Attack, corral: Corral, signal: AbortSignal): Promise<Tried> {
  try {
    if (items !== undefined) return await triedItems(name, items, corral, signal);
    const request = { worker: workerNamed(name, corral.project), cwd: corral.project.dir, policy: null, signal };
    const result = await runWorker(request, corral.environment);
    // What a cell wrote may be denied afterwards: that is what an attack may be about.
    const isRefused = result.enforcement === null || result.status === "lost";
    return { result, printed: result.stdout, why: isRefused ? (result.error?.message ?? result.status) : null };
  } catch (error) {
    return { result: null, printed: "", why: (error as Error).message };
  }
}

async function triedItems(
  worker: string,
  items: readonly string[],
  corral: Corral,
  signal: AbortSignal,
): Promise<Tried> {
  const request = {
    worker,
    template: { input: { what: "{what}" } },
    concurrency: 1,
    reuse: "scrubbed",
    cache: false,
  } as const;
  const printed: string[] = [];
  let why: string | null = null;
  for await (const item of mapItems(corral, { ...request, items: items.map((what) => ({ what })), signal })) {
    printed.push(String(item.output ?? ""));
    if (item.status !== "succeeded") why = item.error?.message ?? item.status;
  }
  return { result: null, printed: printed.join("\n"), why };
}

/** Servers and a process of this host, for attacks to find. */
async function watchedHost(folder: ThrowAwayFolder, place: Disposables, programs: Host["programs"]): Promise<Host> {
  const text = randomBytes(16).toString("hex");
  const name = `canary-${randomBytes(4).toString("hex")}`;
  const abstract = `corral-verify-${randomBytes(8).toString("hex")}`;
  const near = spawn("sleep", ["600"], { env: { CANARY: text }, stdio: "ignore" });
  place.defer(() => void near.kill("SIGKILL"));
  const [port, otherPort] = await Promise.all([listening(place, { port: 0 }), listening(place, { port: 0 })]);
  await listening(place, { path: `\0${abstract}` });
  const addresses = Object.values(networkInterfaces()).flatMap((each) =>
    (each ?? []).flatMap(({ family, address }) => (family === "IPv4" ? [address] : [])),
  );
  const canary = { name, text };
  return {
    folder,
    canary,
    addresses: addresses.slice(0, 4),
    port,
    otherPort,
    abstract,
    namespaces: ownNamespaces(),
    kernel: kernelText("/proc/version")?.trim() ?? "",
    programs,
  };
}

/** Answers with its port, 0 for one without. */
async function listening(place: Disposables, where: { port: number } | { path: string }): Promise<number> {
  const server: Server = createServer((socket) => socket.on("error", () => {}).end("corral here\n"));
  place.defer(async () => await new Promise<void>((done) => server.close(() => done())));
  await new Promise<void>((done, failed) => server.once("error", failed).listen(where, done));
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** The project on disk. Answers with its attacks. */
async function prepare({ policy, policiesDir, runtime }: VerifyRequest, host: Host): Promise<Attack[]> {
  const { folder, canary, port } = host;
  const loaded = await loadPolicy(policy, { dirs: policiesDir === null ? [] : [policiesDir] });
  const { hardening } = loaded;
  const attacks = attacksOn(host, {
    ...loaded,
    hardening: { ...hardening, ...present({ runtime: runtime ?? undefined }) },
  });
  const writable = ["inside", "disk"];
  const zones = Object.fromEntries([
    ["docs", { path: "docs", mode: "ro" }],
    ["staged", { path: "staged", mode: "rw", stage: true }],
    ...writable.map((name) => [name, { path: name, mode: "rw", approval: "pre_approved" }] as const),
  ]);
  const more = {
    child: { image: "corral/base", command: ["true"], sandbox: { zones: [{ name: "inside", mode: "rw" }] } },
    other: {
      image: "corral/base",
      command: ["true"],
      limits: runtime === null ? {} : { pids: 256 },
      shell_rules: { default: "pre_approved" },
    },
  };
  const workers = Object.entries({ ...Object.fromEntries(attacks.map(({ name, worker }) => [name, worker])), ...more });
  await folder.write({
    [canary.name]: canary.text,
    "docs/a.txt": "a",
    "staged/a.txt": "as it was",
    "staged/b.txt": "b",
    "corral.yaml": stringify({
      version: 1,
      policy: runtime === null ? policy : "verify",
      ...(runtime !== null ? { policies: "policies" } : policiesDir !== null ? { policies: policiesDir } : {}),
      approval: { mode: "auto_deny" },
      sandbox: { zones, ...(loaded.network === false ? {} : { network: allowList(port) }) },
    }),
    ...Object.fromEntries(
      workers.map(([name, worker]) => [`workers/${name}.worker`, `---\n${stringify(worker)}---\n`]),
    ),
    ...(runtime === null
      ? {}
      : {
          "policies/verify.yaml": stringify({
            name: "verify",
            description: "A trial",
            extends: policy,
            hardening: { runtime },
          }),
        }),
  });
  await folder.link("docs/link", `../${canary.name}`);
  for (const name of [...writable, "staged"]) await folder.makeWritable(name);
  return attacks;
}
