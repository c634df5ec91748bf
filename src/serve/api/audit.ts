import { z } from "zod";
import type { SealedRecord } from "../../audit/seal.ts";
import { auditPage } from "../../operations/audit.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./service.ts";
import { count, projectName, runId, time } from "./shapes.ts";

const MAX_PAGE = 1000;

const record = z
  .looseObject({
    seq: z.int(),
    at: time,
    type: z.string(),
    run: z.string().optional(),
    root: z.string().optional(),
    worker: z.string().optional(),
    ok: z.boolean().optional().describe("Of a tool that was used"),
  })
  .meta({ id: "AuditRecord" });

export function auditRoutes({ projects }: Served): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/audit",
        role: "read",
        summary:
          "Read the audit trail of a project, the newest records first. `cursor` is `next` of the page before; with a filter, a page may have few records although there are more.",
        query: z.strictObject({
          project: projectName.optional(),
          run: runId.optional().describe("Of this run, or of the tree below it"),
          type: z.string().max(60).optional(),
          since: time.optional(),
          cursor: count(1, Number.MAX_SAFE_INTEGER).optional(),
          limit: count(1, MAX_PAGE).optional(),
        }),
        answers: {
          200: z
            .object({ records: z.array(record), foreign: z.int(), next: z.int().nullable() })
            .meta({ id: "AuditPage" }),
        },
        faults: [404],
      },
      async ({ query: { project, cursor, limit = 100, run, type, since } }) => {
        const filter = {
          ...(run === undefined ? {} : { run }),
          ...(type === undefined ? {} : { type }),
          ...(since === undefined ? {} : { since: Date.parse(since) }),
        };
        const which = { limit, ...(cursor === undefined ? {} : { before: cursor }) };
        const page = await auditPage(projects.named(project).place, filter, which);
        return { status: 200, json: { ...page, records: page.records.map(withoutHostPath) } };
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
