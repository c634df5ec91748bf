import type { CellHost, Declared, Records, RunConsent } from "../model/environment.ts";
import type { GrantRecord } from "../model/grantee.ts";
import { identityOf, type Job, newRunId } from "../model/job.ts";
import { writableHosts } from "../model/permission.ts";
import type { GrantSurroundings } from "./judge.ts";

/** What granting needs, for one run: every grant is in the audit trail before it is used. */
export function surroundingsOf(job: Job, env: Declared & CellHost & RunConsent & Records): GrantSurroundings {
  const { project, refusedSources, approver, grants } = env;
  return {
    project,
    refusedSources,
    writableHosts: () => writableHosts(project),
    approver,
    ledger: grants,
    newId: newRunId,
    now: () => new Date(),
    async record(record) {
      const { id, run, root, worker, scope, granted } = record;
      const about = { type: "grant", run, root, worker, grant: id, scope, levels: granted } as const;
      try {
        await env.audit.append({ ...about, ...whatOf(record) });
        return true;
      } catch (error) {
        env.emit({ type: "trouble", ...identityOf(job), detail: (error as Error).message });
        return false;
      }
    },
  };
}

function whatOf(record: GrantRecord) {
  if ("to" in record) return { to: record.to };
  const { directory, host, mode } = record;
  return { directory, host, mode: mode === "write" ? "rw" : "ro" } as const;
}
