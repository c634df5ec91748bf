import type { Violation } from "../../sandbox/violation.ts";
import { describeAll, type RunError, type RunResult, type RunStatus } from "./result.ts";

type Who = { readonly run: string; readonly worker: string };

/** A run that never began, for one reason or another. */
export function unstartedResult(who: Who, status: RunStatus, error: RunError): RunResult {
  return {
    run: who.run,
    worker: who.worker,
    status,
    exitCode: null,
    signal: null,
    output: null,
    stdout: "",
    stderr: "",
    truncated: false,
    violations: [],
    changes: [],
    changeset: null,
    durationMs: 0,
    usage: { cpuMs: null, memoryBytesPeak: null, outOfMemory: null },
    enforcement: null,
    calls: [],
    error,
  };
}

/** All violations, and a text that names all of them. The code is theirs where there is one, else `REFUSED`. */
export function refusedResult(who: Who, violations: readonly Violation[]): RunResult {
  const described = describeAll(violations);
  const message = described.map((violation) => violation.message).join("\n");
  const code = described.length === 1 ? (described[0]?.code ?? "REFUSED") : "REFUSED";
  return { ...unstartedResult(who, "refused", { code, message }), violations: described };
}
