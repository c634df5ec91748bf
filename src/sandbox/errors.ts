import { formatBytes } from "../text/amounts.ts";

export type SandboxErrorCode =
  | "PATH_NOT_IN_SANDBOX"
  | "PATH_NOT_WRITABLE"
  | "SUFFIX_NOT_ALLOWED"
  | "FILE_TOO_LARGE"
  | "NOT_FOUND"
  | "PERMISSION"
  | "EDIT"
  | "FILE_SYSTEM"
  | "FILE_LEASED"
  | "PERMISSION_ESCALATION";

/**
 * A file operation that the sandbox refuses. The text is written for an LLM: what failed, why, and what is
 * allowed, in virtual paths only.
 */
export class SandboxError extends Error {
  readonly code: SandboxErrorCode;
  /** The path as the worker knows it; null if the refusal is not about one path. */
  readonly path: string | null;

  constructor(code: SandboxErrorCode, path: string | null, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.path = path;
  }
}

export class PathNotInSandboxError extends SandboxError {
  /** Why it is outside, without a full stop. */
  readonly reason: string;

  /** `reason`: why the text is not a path, if that is the cause. `writable`: if it was to be written. */
  constructor(
    path: string,
    readable: readonly string[],
    reason = "the path is outside what this worker can see",
    writable: readonly string[] | null = null,
  ) {
    const also = writable === null ? "" : `\nWritable paths: ${listOf(writable)}`;
    super(
      "PATH_NOT_IN_SANDBOX",
      path,
      `Cannot access '${path}': ${reason}.\nReadable paths: ${listOf(readable)}${also}`,
    );
    this.reason = reason;
  }
}

export class PathNotWritableError extends SandboxError {
  constructor(path: string, writable: readonly string[]) {
    super("PATH_NOT_WRITABLE", path, `Cannot write '${path}': it is read-only.\nWritable paths: ${listOf(writable)}`);
  }
}

/** A file that the constraints of its mount do not allow. */
export abstract class ConstraintError extends SandboxError {
  /** Why, and what is allowed, on one line: for refusals that have a text of their own. */
  readonly reason: string;

  constructor(code: SandboxErrorCode, path: string, why: string, allowed: string) {
    super(code, path, `Cannot access '${path}': ${why}.\n${allowed}`);
    this.reason = `${why}. ${allowed} (${code})`;
  }
}

export class SuffixNotAllowedError extends ConstraintError {
  constructor(path: string, allowed: readonly string[]) {
    super("SUFFIX_NOT_ALLOWED", path, SUFFIX_NOT_ALLOWED, `Allowed suffixes: ${listOf(allowed)}`);
  }
}

const SUFFIX_NOT_ALLOWED = "files of this kind are not allowed there";

export class FileTooLargeError extends ConstraintError {
  /** Both in bytes. */
  constructor(path: string, size: number, limit: number) {
    super(
      "FILE_TOO_LARGE",
      path,
      `its size is ${formatBytes(size)}`,
      `Largest file allowed there: ${formatBytes(limit)}`,
    );
  }
}

export class NotFoundError extends SandboxError {
  readonly nearby: readonly string[];

  /** `nearby`: existing names there, if the caller knows them. */
  constructor(path: string, nearby: readonly string[] = []) {
    const hint = nearby.length === 0 ? "List the directory to see what exists." : `There are: ${listOf(nearby)}`;
    super("NOT_FOUND", path, `Cannot find '${path}': it does not exist.\n${hint}`);
    this.nearby = nearby;
  }
}

export class PermissionError extends SandboxError {
  /** `reason` says who refused it, and what to do instead. */
  constructor(path: string, operation: "read" | "write" | "delete", reason: string, options?: ErrorOptions) {
    super("PERMISSION", path, `Cannot ${operation} '${path}': ${reason}`, options);
  }
}

export class EditError extends SandboxError {
  constructor(path: string, reason: string) {
    super("EDIT", path, `Cannot edit '${path}': ${reason}`);
  }
}

/** The sandbox allows it, but the file system does not: a directory in place of a file, a full disk, binary content. */
export class FileSystemError extends SandboxError {
  /** `operation` is a verb; `reason` says why, and what to do instead. */
  constructor(path: string, operation: string, reason: string, options?: ErrorOptions) {
    super("FILE_SYSTEM", path, `Cannot ${operation} '${path}': ${reason}`, options);
  }
}

/** Opening the file would wait until another program gives up its lease on it. */
export class FileLeasedError extends SandboxError {
  /** `operation` is a verb. */
  constructor(path: string, operation: string, options?: ErrorOptions) {
    const text = `Cannot ${operation} '${path}': another program holds the file with a lease. Try again after that program has closed it.`;
    super("FILE_LEASED", path, text, options);
  }
}

function listOf(items: readonly string[]): string {
  return items.length === 0 ? "none" : items.join(", ");
}
