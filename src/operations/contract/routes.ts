import type { Role } from "../../state/service/tokens.ts";

/**
 * Where an operation is found, and who may use it. Role null: also without a token. `body`: the member of its input that is the whole body;
 * absent: what is not in the path is in the query of a GET or a DELETE, and in the body of a POST.
 */
export type RouteRow = readonly [
  method: "GET" | "POST" | "DELETE",
  path: string,
  role: Role | null,
  body?: "input" | undefined,
];

/** Everything that Corral offers to clients, and the only place with its paths. Plain data: a client has it without the schemas. */
export const ROUTES = {
  "host.health": ["GET", "/v1/health", null],
  "host.caller": ["GET", "/v1/caller", "read"],
  "projects.list": ["GET", "/v1/projects", "read"],
  "workers.list": ["GET", "/v1/projects/{project}/workers", "read"],
  "workers.explain": ["GET", "/v1/projects/{project}/workers/{worker}", "read"],
  "runs.start": ["POST", "/v1/runs", "run"],
  "runs.list": ["GET", "/v1/runs", "read"],
  "runs.show": ["GET", "/v1/runs/{run}", "read"],
  "runs.result": ["GET", "/v1/runs/{run}/result", "read"],
  "runs.stop": ["DELETE", "/v1/runs/{run}", "run"],
  "runs.events": ["GET", "/v1/runs/{run}/events", "read"],
  "runs.output": ["GET", "/v1/runs/{run}/output", "read"],
  "fleets.start": ["POST", "/v1/fleets", "run"],
  "fleets.list": ["GET", "/v1/fleets", "read"],
  "fleets.show": ["GET", "/v1/fleets/{fleet}", "read"],
  "fleets.items": ["GET", "/v1/fleets/{fleet}/items", "read"],
  "fleets.item": ["GET", "/v1/fleets/{fleet}/item", "read"],
  "fleets.events": ["GET", "/v1/fleets/{fleet}/events", "read"],
  "fleets.resume": ["POST", "/v1/fleets/{fleet}/resume", "run"],
  "fleets.retry": ["POST", "/v1/fleets/{fleet}/retry", "run"],
  "fleets.cancel": ["POST", "/v1/fleets/{fleet}/cancel", "run"],
  "conversions.start": ["POST", "/v1/conversions", "run"],
  "conversions.list": ["GET", "/v1/conversions", "read"],
  "conversions.show": ["GET", "/v1/conversions/{conversion}", "read"],
  "conversions.file": ["GET", "/v1/conversions/{conversion}/file", "read"],
  "conversions.files": ["GET", "/v1/conversions/{conversion}/files", "read"],
  "conversions.remove": ["DELETE", "/v1/conversions/{conversion}", "run"],
  "changesets.list": ["GET", "/v1/changesets", "read"],
  "changesets.show": ["GET", "/v1/changesets/{changeset}", "read"],
  "changesets.review": ["GET", "/v1/changesets/{changeset}/review", "read"],
  "changesets.files": ["GET", "/v1/changesets/{changeset}/files", "read"],
  "changesets.apply": ["POST", "/v1/changesets/{changeset}/apply", "decide"],
  "changesets.discard": ["POST", "/v1/changesets/{changeset}/discard", "decide"],
  "approvals.list": ["GET", "/v1/approvals", "read"],
  "approvals.show": ["GET", "/v1/approvals/{approval}", "read"],
  "approvals.decide": ["POST", "/v1/approvals/{approval}/decision", "decide"],
  "grants.list": ["GET", "/v1/grants", "read"],
  "grants.revoke": ["DELETE", "/v1/grants/{grant}", "decide"],
  "sessions.open": ["POST", "/v1/sessions", "run"],
  "sessions.list": ["GET", "/v1/sessions", "read"],
  "sessions.show": ["GET", "/v1/sessions/{session}", "read"],
  "sessions.tools": ["GET", "/v1/sessions/{session}/tools", "read"],
  "sessions.use": ["POST", "/v1/sessions/{session}/tools/{tool}", "run", "input"],
  "sessions.close": ["DELETE", "/v1/sessions/{session}", "run"],
  "audit.page": ["GET", "/v1/audit", "read"],
  "host.machine": ["GET", "/v1/machine", "read"],
  "host.machines": ["GET", "/v1/machines", "read"],
  "host.metrics": ["GET", "/metrics", "metrics"],
  "host.openapi": ["GET", "/openapi.json", "read"],
} as const satisfies Readonly<Record<string, RouteRow>>;

export type OperationName = keyof typeof ROUTES;
