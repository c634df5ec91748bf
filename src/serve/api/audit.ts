import { z } from "zod";
import type { SealedRecord } from "../../audit/seal.ts";
import { auditRecords } from "../../operations/audit.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./service.ts";
import { count, projectName, runId, time } from "./shapes.ts";

const MAX_PAGE = 1000;

const record = z.looseObject({ seq: z.int(), at: time, type: z.string() }).meta({ id: "AuditRecord" });

export function auditRoutes({ projects }: Served): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/audit",
        role: "read",
        summary: "Read the audit trail of a project, the newest records first. `cursor` is `next` of the page before.",
        query: z.strictObject({
          project: projectName.optional(),
          run: runId.optional().describe("Of this run, or of the tree below it"),
          type: z.string().max(60).optional(),
          since: time.optional(),
          cursor: count(1, 999_999_999).optional(),
          limit: count(1, MAX_PAGE).optional(),
        }),
        answers: { 200: z.object({ records: z.array(record), foreign: z.int(), next: z.int().nullable() }) },
        faults: [404],
      },
      async ({ query: { project, cursor = Number.POSITIVE_INFINITY, limit = 100, run, type, since } }) => {
        const filter = {
          ...(run === undefined ? {} : { run }),
          ...(type === undefined ? {} : { type }),
          ...(since === undefined ? {} : { since: Date.parse(since) }),
        };
        let [foreign, isMore] = [0, false];
        let page: SealedRecord[] = [];
        for await (const some of auditRecords(projects.named(project).place, filter)) {
          foreign += some.foreign;
          page.push(...some.records.filter(({ seq }) => seq < cursor));
          isMore ||= page.length > limit;
          page = page.slice(-limit);
        }
        const next = isMore ? (page[0]?.seq ?? null) : null;
        return { status: 200, json: { records: page.toReversed().map(withoutHostPath), foreign, next } };
      },
    ),
  ];
}

/** A grant names the directory of the host. Its seal is over the whole: `corral audit verify` checks it on the machine. */
function withoutHostPath(record: SealedRecord): Omit<SealedRecord, "host"> {
  if (record.type !== "grant" || !("host" in record)) return record;
  const { host: _, ...shown } = record;
  return shown;
}
