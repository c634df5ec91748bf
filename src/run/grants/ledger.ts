import PQueue from "p-queue";
import type { Violation } from "../../sandbox/violation.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import { GivenGrants, GrantFiles, type LiveGrant, type TakeGiven } from "../../state/live-grants.ts";
import type { GrantedHost, GrantedPlace, Grantee, GrantRecord, RunGrants } from "../model/grantee.ts";

/** More grants than this are not reported at the end of a run. */
const MAX_TOLD = 1_000;
/** What was revoked stays revoked for the lifetime of this process; beyond this number nothing is granted any more. */
const MAX_REVOKED = 10_000;

/** The grants of one orchestrator, each live one also in a file that the user can list and remove. */
export class GrantLedger implements RunGrants, AsyncDisposable {
  readonly #files: GrantFiles;
  readonly #given: GivenGrants;
  readonly #onRevoked: (record: GrantRecord) => Promise<void>;
  readonly #grantees = new Set<Grantee>();
  readonly #live = new Map<string, GrantRecord>();
  readonly #revoked: ((GrantedPlace | GrantedHost) & { readonly id: string })[] = [];
  readonly #watchers = new Set<() => void>();
  #told: GrantRecord[] = [];
  /** One change at a time, so that each is judged by what the ones before left. */
  readonly #changes = new PQueue({ concurrency: 1 });

  /** `onRevoked` receives what a user revoked, and must not reject. `key`: see `loadSealKey`. */
  constructor(ownerDir: string, onRevoked: (record: GrantRecord) => Promise<void>, key: () => Buffer) {
    this.#onRevoked = onRevoked;
    this.#given = new GivenGrants(ownerDir, key);
    this.#files = new GrantFiles(ownerDir, () => void this.look().catch(() => {}));
  }

  get told(): readonly GrantRecord[] {
    return this.#told;
  }

  async join(grantee: Grantee, take?: TakeGiven): Promise<AsyncDisposable> {
    await this.inTurn(async () => {
      this.#grantees.add(grantee);
      // A call may have waited for its turn with a grant of its caller that was revoked meanwhile.
      const given = new Set(grantee.sandbox.mounts.map(({ granted }) => granted));
      for (const { id } of this.#revoked) if (given.has(id)) await grantee.release(id);
      await grantee.releaseHosts(null);
    });
    if (take !== undefined && grantee.worker.dynamic !== null) this.#given.add(grantee.run, grantee.root, take);
    return {
      [Symbol.asyncDispose]: () =>
        this.inTurn(async () => {
          this.#given.remove(grantee.run);
          this.#grantees.delete(grantee);
          const once = [...this.#live.values()].filter(({ run, scope }) => scope === "once" && run === grantee.run);
          for (const { id } of once) await this.#releaseHosts(id);
          const over = [...this.#live.keys()].filter((id) => ![...this.#grantees].some((other) => other.holds(id)));
          for (const id of over) await this.#forget(id);
        }),
    };
  }

  async inTurn<T>(change: () => Promise<T>): Promise<T> {
    return (await this.#changes.add(change)) as T;
  }

  async add(record: GrantRecord, keep: () => Promise<readonly Violation[]>): Promise<readonly Violation[]> {
    const { id } = record;
    const live = liveOf(record);
    if (live !== null) {
      await this.#files.add(live);
      let kept = false;
      try {
        const violations = await keep();
        kept = violations.length === 0;
        if (!kept) return violations;
      } finally {
        if (!kept) await this.#files.remove(id);
      }
      this.#live.set(id, record);
    }
    if (this.#told.length < MAX_TOLD) this.#told.push(record);
    for (const see of this.#watchers) see();
    return [];
  }

  onAdded(see: () => void): Disposable {
    this.#watchers.add(see);
    return { [Symbol.dispose]: () => void this.#watchers.delete(see) };
  }

  wasRevoked(asked: GrantedPlace | GrantedHost): boolean {
    if (this.#revoked.length >= MAX_REVOKED) return true;
    return this.#revoked.some((back) => back.worker === asked.worker && coversAgain(back, asked));
  }

  async look(): Promise<void> {
    if (this.#live.size === 0) return;
    await this.inTurn(async () => {
      const standing = await this.#files.standing();
      for (const [id, record] of this.#live) if (!standing.has(id)) await this.#revoke(id, record);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#given[Symbol.dispose]();
    await this.#changes.onIdle();
    await this.#files[Symbol.asyncDispose]();
  }

  /** From the runs below upwards, so that no run keeps a place in a view that is gone. */
  async #revoke(id: string, record: GrantRecord): Promise<void> {
    this.#told = this.#told.filter((told) => told.id !== id);
    this.#revoked.push(record);
    if ("to" in record) await this.#releaseHosts(id);
    else
      for (const grantee of [...this.#grantees].toSorted((a, b) => b.chain().length - a.chain().length)) {
        for (const orphan of await grantee.release(id)) await this.#forget(orphan);
      }
    // Not sooner: a concurrent `look` must wait until it is gone everywhere.
    this.#live.delete(id);
    await this.#onRevoked(record);
  }

  /** From the root downwards: what a caller lost, the runs that it called lose with it. */
  async #releaseHosts(id: string): Promise<void> {
    for (const grantee of [...this.#grantees].toSorted((a, b) => a.chain().length - b.chain().length)) {
      for (const orphan of await grantee.releaseHosts(id)) await this.#forget(orphan);
    }
  }

  async #forget(id: string): Promise<void> {
    this.#live.delete(id);
    await this.#files.remove(id);
  }
}

/** What `corral grants` shows; null for a directory that was granted for one operation. */
function liveOf(record: GrantRecord): LiveGrant | null {
  const { id, run, root, worker, through, grantedAt } = record;
  const who = { id, run, root, worker, through, grantedAt };
  if ("to" in record) return { ...who, to: record.to, scope: record.scope };
  const { directory, host, mode, scope } = record;
  return scope === "once" ? null : { ...who, directory, host, mode, scope };
}

/** True if a grant would give again what was revoked, or a part of it. */
function coversAgain(back: GrantedPlace | GrantedHost, asked: GrantedPlace | GrantedHost): boolean {
  if ("to" in back || "to" in asked) return "to" in back && "to" in asked && back.to === asked.to;
  const touches = holds(back.host, asked.host) || holds(asked.host, back.host);
  return touches && (back.mode === "read" || asked.mode === "write");
}
