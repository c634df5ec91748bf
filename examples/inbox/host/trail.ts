import { auditKey, recordsOf, type SealedRecord } from "../../../src/audit/seal.ts";
import { loadSealKey } from "../../../src/state/owner.ts";
import { projectPaths } from "../../../src/state/state-dir.ts";

/** The records of a run in the audit trail, oldest first; `corral audit --run RUN` shows the same. */
export async function recordsOfRun(run: string, stateDir: string, projectDir: string): Promise<SealedRecord[]> {
  const records: SealedRecord[] = [];
  const key = auditKey(await loadSealKey(stateDir), projectDir);
  for await (const some of recordsOf(projectPaths(stateDir, projectDir).trail, key))
    records.push(...some.filter((record) => record?.root === run).filter((record) => record !== null));
  return records;
}
