import PQueue from "p-queue";
import type { Violation } from "../../sandbox/violation.ts";
import { GrantFiles } from "../../state/live-grants.ts";
import type { GrantedPlace, GrantRecord, Grants } from "../model/grant.ts";
import type { Grantee } from "../model/grantee.ts";
import { holds } from "./source.ts";

/** More grants than this are not reported at the end of a run. */
const MAX_TOLD = 1_000;
/** What was revoked stays revoked for the lifetime of this process; beyond this number nothing is granted any more. */
const MAX_REVOKED = 10_000;

/** The grants of one orchestrator, each live one also in a file that the user can list and remove. */
export class GrantLedger implements Grants, AsyncDisposable {
  readonly #files: GrantFiles;
  readonly #onRevoked: (record: GrantRecord) => Promise<void>;
  readonly #grantees = new Set<Grantee>();
  readonly #live = new Map<string, GrantRecord>();
  readonly #revoked: (GrantedPlace & { readonly id: string })[] = [];
  #told: GrantRecord[] = [];
  /** One change at a time, so that each is judged by what the ones before left. */
  readonly #changes = new PQueue({ concurrency: 1 });

  /** `onRevoked` receives what a user revoked, and must not reject. */
  constructor(ownerDir: string, onRevoked: (record: GrantRecord) => Promise<void>) {
    this.#onRevoked = onRevoked;
    this.#files = new GrantFiles(ownerDir, () => void this.look().catch(() => {}));
  }

  get told(): readonly GrantRecord[] {
    return this.#told;
  }

  async join(grantee: Grantee): Promise<AsyncDisposable> {
    await this.inTurn(async () => {
      this.#grantees.add(grantee);
      // A call may have waited for its turn with a grant of its caller that was revoked meanwhile.
      const given = new Set(grantee.sandbox.mounts.map(({ granted }) => granted));
      for (const { id } of this.#revoked) if (given.has(id)) await grantee.release(id);
    });
    return {
      [Symbol.asyncDispose]: () =>
        this.inTurn(async () => {
          this.#grantees.delete(grantee);
          const over = [...this.#live.keys()].filter((id) => ![...this.#grantees].some((other) => other.holds(id)));
          for (const id of over) await this.#forget(id);
        }),
    };
  }

  async inTurn<T>(change: () => Promise<T>): Promise<T> {
    return (await this.#changes.add(change)) as T;
  }

  async add(record: GrantRecord, keep: () => Promise<readonly Violation[]>): Promise<readonly Violation[]> {
    const { id, run, worker, through, directory, host, mode, scope, grantedAt } = record;
    if (scope !== "once") {
      await this.#files.add({ id, run, worker, through, directory, host, mode, scope, grantedAt });
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
    return [];
  }

  wasRevoked({ worker, host, mode }: GrantedPlace): boolean {
    if (this.#revoked.length >= MAX_REVOKED) return true;
    return this.#revoked.some(
      (back) =>
        back.worker === worker &&
        (holds(back.host, host) || holds(host, back.host)) &&
        (back.mode === "read" || mode === "write"),
    );
  }

  async look(): Promise<void> {
    if (this.#live.size === 0) return;
    await this.inTurn(async () => {
      const standing = await this.#files.standing();
      for (const [id, record] of this.#live) if (!standing.has(id)) await this.#revoke(id, record);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#changes.onIdle();
    await this.#files[Symbol.asyncDispose]();
  }

  /** From the runs below upwards, so that no run keeps a place in a view that is gone. */
  async #revoke(id: string, record: GrantRecord): Promise<void> {
    this.#told = this.#told.filter((told) => told.id !== id);
    const { worker, host, mode } = record;
    this.#revoked.push({ id, worker, host, mode });
    for (const grantee of [...this.#grantees].toSorted((a, b) => b.chain().length - a.chain().length)) {
      for (const orphan of await grantee.release(id)) await this.#forget(orphan);
    }
    // Not sooner: a concurrent `look` must wait until it is gone everywhere.
    this.#live.delete(id);
    await this.#onRevoked(record);
  }

  async #forget(id: string): Promise<void> {
    this.#live.delete(id);
    await this.#files.remove(id);
  }
}
