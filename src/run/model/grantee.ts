import type PQueue from "p-queue";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { type Hidden, NOTHING_HIDDEN } from "../../files/model/files.ts";
import { onAbort } from "../../platform/within.ts";
import { canonicalMounts, carve, governingMount } from "../../sandbox/access.ts";
import {
  type DirectoryGrant,
  deliveryOf,
  expand,
  expandNetwork,
  type HostGrant,
  meetConstraints,
} from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { networkWithin, rulesWithin } from "../../sandbox/network/hosts.ts";
import type { Network, NetworkRule } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { LiveDirectoryGrant, LiveHostGrant, TakeGiven } from "../../state/live-grants.ts";

/** The most requests of one tree of runs: more is no question for a person. */
const MAX_REQUESTS = 500;

/** The sandbox that a run's tools, cells and children are given: the run's own, with its views. */
export interface StagedSandbox {
  readonly sandbox: Sandbox;
  /** What its views leave out. Absent: nothing. */
  readonly hidden?: Hidden;
  /** Replaces it. Reports why it cannot; nothing has changed then. */
  adopt(sandbox: Sandbox): Promise<readonly Violation[]>;
}

/** The job of a run that is about to begin. */
interface GrantedJob extends Pick<Grantee, "run" | "root" | "worker"> {
  readonly learnsNetwork?: boolean;
  readonly caller: Grantee | null;
  readonly callerSandbox: Sandbox;
  readonly narrow: object | null;
}

/** `granted` adds, `revoked` takes away: what still uses the old sandbox may see what it must not any more. */
export type GrantChange = "granted" | "revoked";

/**
 * A run that may be granted more while it runs. Its sandbox is never changed, only replaced as a whole: by one with another
 * directory, or by one without it again.
 */
export class Grantee {
  readonly run: string;
  readonly root: string;
  readonly worker: WorkerDefinition;
  /** The run that called this one; null for a root run, whose caller is the project. */
  readonly parent: Grantee | null;
  /** The project's own sandbox, the same for a whole tree. */
  readonly project: Sandbox;
  /** True if the caller took something away for this one call: nothing is granted beyond that. */
  readonly limited: boolean;
  /** A person wants to be asked about every host that this tree of runs asks for, whatever its files say. */
  readonly learns: boolean;
  readonly #stage: StagedSandbox;
  readonly #held = new Map<string, DirectoryGrant>();
  readonly #hosts = new Map<string, HostGrant>();
  readonly #listeners = new Set<(change: GrantChange) => void>();
  readonly #onNetwork = new Set<(network: Network) => Promise<void>>();
  /** As it began. */
  #base: Sandbox;
  #requests = 0;

  constructor(job: GrantedJob, stage: StagedSandbox) {
    this.run = job.run;
    this.root = job.root;
    this.worker = job.worker;
    this.parent = job.caller;
    this.project = job.caller?.project ?? job.callerSandbox;
    this.limited = job.narrow !== null;
    this.learns = job.caller?.learns ?? job.learnsNetwork ?? false;
    this.#stage = stage;
    this.#base = stage.sandbox;
  }

  /** What its tools and cells act on now, and what a worker that it calls is derived from. */
  get sandbox(): Sandbox {
    return this.#stage.sandbox;
  }

  /** What it may not read of its directories. */
  get hidden(): Hidden {
    return this.#stage.hidden ?? NOTHING_HIDDEN;
  }

  /** The directories that it was granted, for as long as it keeps them. */
  get directories(): ReadonlySet<VirtualPath> {
    return new Set([...this.#held.values()].map((grant) => grant.path));
  }

  /** The hosts of the network that it was granted, for as long as it keeps them. */
  get hosts(): ReadonlySet<string> {
    return new Set([...this.#hosts.values()].map((grant) => grant.to));
  }

  /** The runs from the root of its tree down to this one. */
  chain(): Grantee[] {
    return this.parent === null ? [this] : [...this.parent.chain(), this];
  }

  /** False if its tree has already asked as often as it may. */
  takesRequest(): boolean {
    if (this.parent !== null) return this.parent.takesRequest();
    this.#requests += 1;
    return this.#requests <= MAX_REQUESTS;
  }

  holds(id: string): boolean {
    return this.#held.has(id) || this.#hosts.has(id);
  }

  /** Returns why it cannot be; nothing has changed then. */
  async hold(grant: DirectoryGrant): Promise<readonly Violation[]> {
    const violations = await this.#stage.adopt(expand(this.sandbox, grant));
    if (violations.length > 0) return violations;
    this.#held.set(grant.id, grant);
    this.#notify("granted");
    return [];
  }

  /** The same for a host. Settles when its cells reach it. */
  async holdHost(grant: HostGrant): Promise<readonly Violation[]> {
    const violations = await this.#stage.adopt(expandNetwork(this.sandbox, grant));
    if (violations.length > 0) return violations;
    this.#hosts.set(grant.id, grant);
    await this.#changedNetwork();
    return [];
  }

  /**
   * Takes the host of a grant away (null: of none), and with it whatever its caller does not reach any more. Returns the ids of
   * the grants that gave nothing else. Settles when no cell of this run has a connection there.
   */
  async releaseHosts(id: string | null): Promise<string[]> {
    const above = this.parent?.sandbox.network ?? true;
    const orphaned: string[] = [];
    for (const [key, grant] of this.#hosts) {
      const rules = key === id ? [] : rulesWithin(grant.rules, above);
      if (rules.length > 0) this.#hosts.set(key, { ...grant, rules });
      else this.#hosts.delete(key);
      if (rules.length === 0 && key !== id) orphaned.push(key);
    }
    this.#base = { ...this.#base, network: networkWithin(this.#base.network, above) };
    const { network, narrowings } = this.#granted();
    if (JSON.stringify(network) === JSON.stringify(this.sandbox.network)) return orphaned;
    await this.#stage.adopt({ ...this.sandbox, network, narrowings });
    await this.#changedNetwork();
    return orphaned;
  }

  /**
   * Takes a grant away, with everything that came from it: what its caller's grant opened here, and grants whose source it
   * was. Returns the ids of those. What was written there and not applied yet goes with it.
   */
  async release(id: string): Promise<string[]> {
    const gave = (mounts: readonly Mount[]): boolean => mounts.some(({ granted }) => granted === id);
    let hasChanged = gave(this.#base.mounts);
    const orphaned: string[] = [];
    for (const [key, grant] of this.#held) {
      if (key !== id && !gave(grant.source)) continue;
      hasChanged = true;
      const source = withoutGrant(grant.source, id);
      if (key === id || source.length === 0) this.#held.delete(key);
      else this.#held.set(key, { ...grant, source });
      if (key !== id && source.length === 0) orphaned.push(key);
    }
    if (!hasChanged) return orphaned;
    this.#base = { ...this.#base, mounts: withoutGrant(this.#base.mounts, id) };
    await this.#adoptLess(this.#granted());
    this.#notify("revoked");
    return orphaned;
  }

  /** Calls back after each replacement. Returns how to stop that. */
  onChange(listener: (change: GrantChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls back after each change of the hosts that it reaches; what changed them waits for it. Returns how to stop that. */
  onNetwork(listener: (network: Network) => Promise<void>): () => void {
    this.#onNetwork.add(listener);
    return () => this.#onNetwork.delete(listener);
  }

  /** As it began, with what it holds. */
  #granted(): Sandbox {
    return [...this.#hosts.values()].reduce(expandNetwork, [...this.#held.values()].reduce(expand, this.#base));
  }

  async #changedNetwork(): Promise<void> {
    await Promise.all([...this.#onNetwork].map((listener) => listener(this.sandbox.network)));
  }

  /** A directory that cannot be shown as it was before is not shown at all, nor are those around it, which would show it as theirs. */
  async #adoptLess(wanted: Sandbox): Promise<void> {
    const less = { ...wanted, mounts: wanted.mounts.map((mount) => this.#asItIs(mount)) };
    const violations = await this.#stage.adopt(less);
    if (violations.length === 0) return;
    const lost = new Set(violations.flatMap((violation) => ("path" in violation ? [violation.path] : [])));
    const rest = less.mounts.filter(({ path }) => ![...lost].some((inner) => covers(path, inner as VirtualPath)));
    if ((await this.#stage.adopt({ ...less, mounts: rest })).length === 0) return;
    await this.#stage.adopt({ ...less, mounts: [] });
  }

  /** The mount in the view that it now has: a mount that was granted writing got another view. */
  #asItIs(mount: Mount): Mount {
    const now = this.sandbox.mounts.find(({ path }) => path === mount.path);
    if (now === undefined) return mount;
    if (now.mode === mount.mode && now.granted === mount.granted) return now;
    return now.view !== undefined && deliveryOf(mount) === "view"
      ? { ...mount, host: now.host, view: now.view }
      : mount;
  }

  #notify(change: GrantChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}

/**
 * Without what a grant gave. A mount around it would show the place with its own rights, and what the caller had there before the grant is not
 * known here: so the place stays, and is read-only.
 */
function withoutGrant(mounts: readonly Mount[], id: string): Mount[] {
  const rest = mounts.filter(({ granted }) => granted !== id);
  if (rest.length === mounts.length) return rest;
  const inner = mounts.flatMap((mount): Mount[] => {
    const outer = mount.granted === id ? governingMount({ mounts: rest }, mount.path) : undefined;
    if (outer === undefined) return [];
    return [{ ...carve(outer, mount.path), ...meetConstraints(outer, mount), name: mount.name, mode: "ro" }];
  });
  return canonicalMounts([...rest, ...inner]);
}

/**
 * Runs work in its turn of a queue. If `signal` is aborted while the work waits, it leaves the queue at once with the reason
 * of the signal; work that has begun is awaited to its end.
 */
export async function inTurn<T>(queue: PQueue, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const waiting = new AbortController();
  using listening = onAbort(signal, () => waiting.abort(signal.reason));
  const begun = async (): Promise<T> => {
    listening[Symbol.dispose]();
    return await work();
  };
  return await queue.add(begun, { signal: waiting.signal });
}

/** What a directory is granted for; writing includes reading. */
export type GrantMode = "read" | "write";

/** One grant as it is reported: in the audit trail, to the user at the end of a run, and while it is live. */
export type GrantRecord = DirectoryGrantRecord | HostGrantRecord;

interface Reported {
  /** The workers of `through` that were granted it: the one that asked, and all that lacked it above. */
  readonly granted: readonly string[];
  readonly why: string;
}

/** It holds host paths. */
export interface DirectoryGrantRecord extends Omit<LiveDirectoryGrant, "scope">, Reported {
  /** The name of the project's mount in which it lies; null if the project gives nothing there. */
  readonly mount: string | null;
  readonly scope: LiveDirectoryGrant["scope"] | "once";
  /** True if the worker declares it, and only its reading needed consent. */
  readonly declared?: true;
}

/** A host of the network. */
export interface HostGrantRecord extends LiveHostGrant, Reported {
  /** What the worker that asked was granted of it. */
  readonly rules: readonly NetworkRule[];
}

/** A grant, by what a later request is compared with. */
export type GrantedPlace = Pick<DirectoryGrantRecord, "worker" | "host" | "mode">;
export type GrantedHost = Pick<HostGrantRecord, "worker" | "to">;

/** The grants of one orchestrator: which runs have what, what was revoked, and what there is to report. */
export interface RunGrants {
  /** Every grant of this process that was not revoked, the oldest first. */
  readonly told: readonly GrantRecord[];
  /** Keeps the run's grants until the returned value is disposed of, at the end of the run. `take`: takes what a user gives it without being asked. */
  join(grantee: Grantee, take?: TakeGiven): Promise<AsyncDisposable>;
  /** Runs one change after the ones before it. */
  inTurn<T>(change: () => Promise<T>): Promise<T>;
  /** In turn: lists a grant, then makes it true by `keep`, which may report why it cannot. */
  add(record: GrantRecord, keep: () => Promise<readonly Violation[]>): Promise<readonly Violation[]>;
  /** Calls `see` after each grant, until it is disposed of. */
  onAdded(see: () => void): Disposable;
  /** True if the user revoked this or a part of it: an earlier approval of a directory around it may still be remembered. */
  wasRevoked(place: GrantedPlace | GrantedHost): boolean;
  /** Takes away what was revoked since the last call. Before each use of a sandbox that was expanded. */
  look(): Promise<void>;
}
