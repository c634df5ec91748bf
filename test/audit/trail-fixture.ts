import type { KeyObject } from "node:crypto";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AuditRecord } from "../../src/audit/records.ts";
import { auditKey } from "../../src/audit/seal.ts";
import { TrailFile } from "../../src/audit/trail.ts";
import { type Verdict, verifyTrail } from "../../src/audit/verify.ts";
import { projectPaths, type TrailPaths } from "../../src/state/state-dir.ts";

export const KEY = auditKey(Buffer.alloc(32, 7), "/project");
export const ALIVE = { name: "alive", isDead: (name: string) => name.startsWith("dead") };

/** A trail in a folder of a test's own. */
export interface TrailFixture extends Disposable {
  readonly place: TrailPaths;
  /** Another one of the same trail, as another process would have it. */
  open(owner?: { name: string; isDead: (name: string) => boolean }): TrailFile;
  /** Appends so many records, and closes. */
  write(count: number, worker?: string): Promise<void>;
  /** Fails where there is no trail. */
  verify(key?: KeyObject): Promise<Verdict>;
}

export function trailFixture(): TrailFixture {
  const stateDir = realpathSync(mkdtempSync(join(tmpdir(), "corral-audit-")));
  const place = projectPaths(stateDir, "/project").trail;
  const open: TrailFixture["open"] = (owner = ALIVE) => new TrailFile({ place, key: KEY, owner });
  return {
    place,
    open,
    async write(count, worker = "w") {
      await using trail = open();
      await Promise.all(Array.from({ length: count }, (_, index) => trail.append(record(index, worker))));
    },
    async verify(key = KEY) {
      const verdict = await verifyTrail(place, key);
      if (verdict === null) throw new Error("there is no trail");
      return verdict;
    },
    [Symbol.dispose]: () => rmSync(stateDir, { recursive: true, force: true }),
  };
}

export function record(index: number, worker = "w"): AuditRecord {
  return {
    type: "run_requested",
    run: `r${index}`,
    root: "r0",
    worker,
    parent: null,
    attachments: [`\u00e4 ${index}`],
  };
}
