import { nearest } from "../declarations/yaml/issue.ts";
import type { DescribedViolation } from "../run/model/result.ts";

/** There is no worker of that name in the project. The message names the nearest, or all there are. */
export class UnknownWorkerError extends Error {
  override readonly name = "UnknownWorkerError";
  readonly asked: string;
  readonly known: readonly string[];

  constructor(asked: string, known: readonly string[]) {
    const there = known.length === 0 ? "; the project has none" : `; there are: ${known.join(", ")}`;
    super(`there is no worker ${JSON.stringify(asked)}${nearest(asked, known) ?? there}`);
    this.asked = asked;
    this.known = known;
  }
}

/** A file that was to be attached is not there, or is none. The message may hold host paths. */
export class AttachmentError extends Error {
  override readonly name = "AttachmentError";
  /** As it was given. */
  readonly path: string;

  constructor(path: string, reason: string) {
    super(`${path} cannot be attached: ${reason}`);
    this.path = path;
  }
}

/** A worker may not have what its file asks for, so it has no tools and no sandbox. Every violation, in code and in words. */
export class WorkerRefusedError extends Error {
  override readonly name = "WorkerRefusedError";
  readonly worker: string;
  readonly violations: readonly DescribedViolation[];

  constructor(worker: string, violations: readonly DescribedViolation[]) {
    super(violations.map(({ message }) => message).join("\n"));
    this.worker = worker;
    this.violations = violations;
  }
}
