export type { Approver } from "./approval/approver.ts";
export type { RunEvent } from "./run/events.ts";
export { type Corral, type OpenOptions, openCorral } from "./run/open.ts";
export type { RunResult, RunStatus } from "./run/result.ts";
export { type RunRequest, run } from "./run/run.ts";
