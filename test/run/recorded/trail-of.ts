import { auditKey, recordsOf, type SealedRecord } from "../../../src/audit/seal.ts";
import { verifyTrail } from "../../../src/audit/verify.ts";
import { loadSealKey } from "../../../src/state/owner.ts";
import { projectPaths } from "../../../src/state/state-dir.ts";
import type { ProjectFixture } from "../project-fixture.ts";

/** What is recorded of a project, once all that waits is written. The project runs nothing after it. */
export async function trailOf({ corral, dir, stateDir }: ProjectFixture) {
  await corral[Symbol.asyncDispose]();
  const place = projectPaths(stateDir, dir).trail;
  const key = auditKey(await loadSealKey(stateDir), dir);
  const records: SealedRecord[] = [];
  for await (const some of recordsOf(place, key)) records.push(...some.filter((record) => record !== null));
  return { records, verdict: await verifyTrail(place, key) };
}
