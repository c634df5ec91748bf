import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { type Hidden, NOTHING_HIDDEN } from "../../files/model/hidden.ts";
import { type DirectoryGrant, expand } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { deliveryOf } from "../../sandbox/staging.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";

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
  readonly #stage: StagedSandbox;
  readonly #held = new Map<string, DirectoryGrant>();
  readonly #listeners = new Set<(change: GrantChange) => void>();
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
    return this.#held.has(id);
  }

  /** Returns why it cannot be; nothing has changed then. */
  async hold(grant: DirectoryGrant): Promise<readonly Violation[]> {
    const violations = await this.#stage.adopt(expand(this.sandbox, grant));
    if (violations.length > 0) return violations;
    this.#held.set(grant.id, grant);
    this.#notify("granted");
    return [];
  }

  /**
   * Takes a grant away, with everything that came from it: what its caller's grant opened here, and grants whose source it
   * was. Returns the ids of those. What was written there and not applied yet goes with it.
   */
  async release(id: string): Promise<string[]> {
    const keeps = (mount: Mount): boolean => mount.granted !== id;
    const before = this.#held.size;
    const orphaned: string[] = [];
    for (const [key, grant] of this.#held) {
      const source = grant.source.filter(keeps);
      if (key === id || source.length === 0) this.#held.delete(key);
      else if (source.length < grant.source.length) this.#held.set(key, { ...grant, source });
      if (key !== id && source.length === 0) orphaned.push(key);
    }
    const base = this.#base.mounts.filter(keeps);
    if (base.length === this.#base.mounts.length && this.#held.size === before) return orphaned;
    this.#base = { ...this.#base, mounts: base };
    await this.#adoptLess([...this.#held.values()].reduce(expand, this.#base));
    this.#notify("revoked");
    return orphaned;
  }

  /** Calls back after each replacement. Returns how to stop that. */
  onChange(listener: (change: GrantChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A directory that cannot be shown as it was before is not shown at all. */
  async #adoptLess(wanted: Sandbox): Promise<void> {
    const less = { ...wanted, mounts: wanted.mounts.map((mount) => this.#asItIs(mount)) };
    const violations = await this.#stage.adopt(less);
    if (violations.length === 0) return;
    const lost = new Set(violations.flatMap((violation) => ("path" in violation ? [violation.path] : [])));
    const rest = less.mounts.filter(({ path }) => !lost.has(path));
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
