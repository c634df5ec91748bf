import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";
import type { ApprovalRequest, Decision } from "../../../src/approval/approver.ts";
import { parseWorker } from "../../../src/declarations/worker/worker.ts";
import { refusedSourcesFor } from "../../../src/isolation/sources/refused-sources.ts";
import { givingApprover, takingGiven } from "../../../src/run/grants/access-request.ts";
import type { GrantOutcome, GrantSurroundings } from "../../../src/run/grants/judge.ts";
import { GrantLedger } from "../../../src/run/grants/ledger.ts";
import { requestGrant } from "../../../src/run/grants/request.ts";
import { type HostOutcome, requestHost } from "../../../src/run/grants/request-host.ts";
import { Grantee, type GrantMode, type GrantRecord, type StagedSandbox } from "../../../src/run/model/grantee.ts";
import { readingRefused } from "../../../src/run/run.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { Network } from "../../../src/sandbox/network/rule.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import type { Needs, Sandbox } from "../../../src/sandbox/sandbox.ts";
import type { Violation } from "../../../src/sandbox/violation.ts";
import { makeOwnerDir } from "../../../src/state/live-dir.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { at, child, mount, project, roomy } from "../../sandbox/sandboxes.ts";
import { makeHostFolder } from "./host-folder.ts";

export interface Tree {
  /** The folder in which all of it lies; the project's is `p` in it, with `inbox` (ro) and `out` (rw). */
  readonly base: string;
  readonly liveDir: string;
  readonly ledger: GrantLedger;
  readonly asked: ApprovalRequest[];
  readonly granted: GrantRecord[];
  readonly revoked: string[];
  /** What the next questions are answered with; the last one stays. */
  answers: Decision["outcome" | "scope"][];
  /** False: no grant can be recorded. */
  records: boolean;
  /** Runs while a question waits for its answer. */
  meanwhile: () => Promise<void>;
  /** A directory around the asked one that is granted instead. */
  wider?: string;
  open(name: string, spec?: RunSpec): Promise<Grantee>;
  ask(grantee: Grantee, path: string, mode?: GrantMode, under?: Sandbox): Promise<GrantOutcome>;
  end(grantee: Grantee): Promise<void>;
  reach(grantee: Grantee, host: string): Promise<HostOutcome>;
  /** What a command of this run may not begin without. */
  first(grantee: Grantee): Promise<readonly Violation[]>;
}

export interface RunSpec {
  /** As it stands in the worker's file; `true` where the test does not say. */
  readonly dynamic?: unknown;
  readonly parent?: Grantee;
  /** What its caller had when it was called; absent: what it has now. */
  readonly given?: Sandbox;
  readonly needs?: Needs;
  /** What it reaches at its beginning; absent: nothing. */
  readonly network?: Network;
  /** Its caller took something away for this one call. */
  readonly isLimited?: boolean;
  readonly learns?: boolean;
  /** The test ends it itself. */
  readonly ends?: boolean;
  /** Is called with each sandbox before the run adopts it; what it returns refuses that. */
  readonly onAdopt?: (next: Sandbox) => readonly Violation[];
}

/** Seals what is given without being asked. */
export const KEY = Buffer.alloc(32, 7);

/** Runs without any container: real folders, a person who answers what the test says, and nothing else. */
export async function openTree(
  files: Readonly<Record<string, string>> = {},
  more: (base: string) => readonly Mount[] = () => [],
  network: Network = true,
  policy: Policy = roomy,
): Promise<Tree> {
  const base = await makeHostFolder();
  const owner = currentOwner();
  const revoked: string[] = [];
  const liveDir = join(base, "s", "live");
  const ledger = new GrantLedger(
    await makeOwnerDir(liveDir, owner),
    async (record) => void revoked.push(record.id),
    () => KEY,
  );
  onTestFinished(async () => {
    await ledger[Symbol.asyncDispose]();
    await rm(base, { recursive: true, force: true });
  });
  for (const folder of ["p/inbox", "p/out"]) await mkdir(join(base, folder), { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(base, path)), { recursive: true });
    if (!path.endsWith("/")) await writeFile(join(base, path), text);
    else await mkdir(join(base, path), { recursive: true });
  }
  const mounts = [
    mount("/inbox", "ro", { host: join(base, "p/inbox") }),
    mount("/out", "rw", { host: join(base, "p/out") }),
    ...more(base),
  ];
  const given = { ...project(mounts), network, policy };
  const asked: ApprovalRequest[] = [];
  const granted: GrantRecord[] = [];
  const places = new Map<Grantee, AsyncDisposable>();
  let ids = 0;
  const around: GrantSurroundings = {
    project: { dir: join(base, "p"), ownFiles: [join(base, "p/corral.yaml")] },
    refusedSources: refusedSourcesFor(join(base, "s"), null),
    writableHosts: async () => [join(base, "p/out")],
    approver: {
      async decide(request, signal) {
        asked.push(request);
        await tree.meanwhile();
        signal.throwIfAborted();
        const answer = (tree.answers.length > 1 ? tree.answers.shift() : tree.answers[0]) ?? "denied";
        if (answer === "denied" || answer === "timed_out") return { outcome: answer, scope: "once", reason: "no" };
        const chosen = tree.wider === undefined ? {} : { directory: tree.wider };
        return { outcome: "approved", scope: answer as Decision["scope"], reason: "a person agreed", ...chosen };
      },
    },
    ledger,
    record: async (record) => tree.records && granted.push(record) > 0,
    newId: () => `${ids++}`.padStart(12, "0"),
    now: () => new Date(),
  };
  const tree: Tree = {
    base,
    liveDir,
    ledger,
    asked,
    granted,
    revoked,
    answers: ["session"],
    records: true,
    meanwhile: async () => {},
    async open(name, spec = {}) {
      const { dynamic = true, parent, given: called, needs = {}, onAdopt = () => [] } = spec;
      const worker = parseWorker(
        `---\n${JSON.stringify({ command: ["true"], sandbox: { dynamic } })}\n---\n`,
        `workers/${name}.worker`,
      );
      const job = {
        run: `run-${name}`,
        root: parent?.root ?? `run-${name}`,
        worker,
        caller: parent ?? null,
        callerSandbox: given,
        narrow: spec.isLimited ? {} : null,
        learnsNetwork: spec.learns ?? false,
      };
      const sandbox = { ...child(called ?? parent?.sandbox ?? given, needs, name), network: spec.network ?? false };
      const grantee = new Grantee(job, withoutViews(sandbox, onAdopt));
      const place = await ledger.join(
        grantee,
        takingGiven(grantee, around, givingApprover, new AbortController().signal),
      );
      if (!spec.ends) onTestFinished(() => place[Symbol.asyncDispose]());
      places.set(grantee, place);
      return grantee;
    },
    async ask(grantee, path, mode = "read", under) {
      const need = { path: at(path), mode, why: "for read_file", ...(under === undefined ? {} : { under }) };
      return await requestGrant(need, grantee, around, new AbortController().signal);
    },
    end: async (grantee) => await places.get(grantee)?.[Symbol.asyncDispose](),
    reach: (grantee, host) => requestHost({ host, why: "for its work" }, grantee, around, new AbortController().signal),
    first: (grantee) => readingRefused(grantee, around, new AbortController().signal),
  };
  return tree;
}

/** A stage that shows every mount as it is. */
function withoutViews(sandbox: Sandbox, onAdopt: (next: Sandbox) => readonly Violation[]): StagedSandbox {
  const stage = {
    sandbox,
    async adopt(next: Sandbox): Promise<readonly Violation[]> {
      const violations = onAdopt(next);
      if (violations.length === 0) stage.sandbox = next;
      return violations;
    },
  };
  return stage;
}

export function codeOf(outcome: GrantOutcome | HostOutcome): string {
  return outcome.ok ? (outcome.scope ?? "had") : outcome.refusal.code;
}
