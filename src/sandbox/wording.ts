import type { LimitName } from "./limits.ts";
import type { Network } from "./network.ts";
import type { Hardening } from "./policy.ts";
import { formatBytes, formatDuration } from "./units.ts";
import type { Violation, ViolationCode } from "./violation.ts";

/**
 * One refused thing in words, for people and for LLMs: what was asked, what there is, who took it away, and what would
 * be valid instead. This file alone has words for violations; it shows virtual paths only.
 */
export function describeViolation(violation: Violation): string {
  // The table has one entry per code, each for just that code's data; the compiler cannot follow it through the lookup.
  return (WORDS[violation.code] as (violation: Violation) => string)(violation);
}

/** All of them, one a line, under a line that says what they are. */
export function describeViolations(violations: readonly Violation[]): string {
  const lines = violations.map((violation) => `- ${describeViolation(violation)}`);
  return [`Refused, since a worker can only have what its caller has (${violations.length}):`, ...lines].join("\n");
}

type Words = { readonly [Code in ViolationCode]: (violation: Extract<Violation, { code: Code }>) => string };

const WORDS: Words = {
  MOUNT_NOT_AVAILABLE: (v) =>
    `The directory ${quote(v.asked)} was asked for, which the caller does not have (${taken(v.by)}). Available: ${list(v.valid)}.`,
  PATH_NOT_AVAILABLE: (v) =>
    `${quote(v.asked)} was asked for, which the caller cannot read (${taken(v.by)}). Readable paths: ${list(v.valid)}.`,
  WRITE_NOT_AVAILABLE: (v) =>
    `Writing to ${quote(v.asked)} was asked for, but the caller ${v.has === "none" ? "has no access to it" : "can only read it"} (${taken(v.by)}). Ask for it read-only, or write below one of: ${list(v.valid)}.`,
  READONLY_ESCALATION: (v) =>
    `\`readonly: false\` was asked for, but the caller can write nowhere (${taken(v.by)}). Leave it out, or say \`readonly: true\`.`,
  WRITE_NOT_READABLE: (v) =>
    `Writing to ${quote(v.asked)} was asked for without reading it, which no container can express. Add it to \`allow_read\`, or write below one of: ${list(v.valid)}.`,
  WORKING_DIR_NOT_AVAILABLE: (v) =>
    `The working directory ${quote(v.asked)} was asked for, which is none of this worker's own directories. Valid: '/', or a directory at or below one of: ${list(v.valid)}.`,
  APPROVAL_LOOSER: (v) =>
    `\`${v.operation}: ${v.asked}\` was asked for in ${quote(v.path)}, where the caller has \`${v.has}\` (${taken(v.by)}). Valid: ${asStrictAs(v.has)}.`,
  NETWORK_NOT_AVAILABLE: (v) =>
    `Network access to ${network(v.asked)} was asked for; the caller has ${network(v.has)} (${taken(v.by)}). Ask for no more than that, or for none with \`network: false\`.`,
  LIMIT_TOO_LARGE: (v) =>
    `${LIMIT_WORDS[v.limit]} of ${amount(v.limit, v.asked)} was asked for; the caller has ${amount(v.limit, v.has)} (${taken(v.by)}). Valid: up to ${amount(v.limit, v.has)}.`,
  POLICY_WEAKER: (v) =>
    `The policy ${quote(v.asked)} was asked for, which is weaker than the caller's policy ${quote(v.has)} (${taken(v.by)}) in: ${list(v.lines.map(line))}. Valid: ${quote(v.has)}, a policy at least as strict, or none said.`,
  SUFFIXES_WIDER: (v) =>
    `Files ending in ${list(v.asked)} were asked for in ${quote(v.path)}, where the caller has only ${list(v.has)} (${taken(v.by)}). Valid: ${list(v.has)}, or fewer.`,
  FILE_SIZE_LARGER: (v) =>
    `Files of up to ${formatBytes(v.asked)} were asked for in ${quote(v.path)}, where the caller has up to ${formatBytes(v.has)} (${taken(v.by)}). Valid: up to ${formatBytes(v.has)}.`,
  CALL_NOT_LISTED: (v) =>
    `The worker ${quote(v.asked)} was called, which the caller does not list under \`calls\`. It may call: ${list(v.valid)}.`,
  CALL_CYCLE: (v) =>
    `This call would come back to a worker that is already running: ${v.path.join(" -> ")}. Call a worker that is not in that chain.`,
  CALL_TOO_DEEP: (v) =>
    `This call would be ${v.path.length} workers deep (${v.path.join(" -> ")}); at most ${v.max} are allowed. Do the work without a further call.`,
  CALL_LIMIT: (v) =>
    `The workers of this tree of runs have made all of the ${v.max} calls that they may make together. Do the rest of the work without a further call.`,
  WORKER_UNKNOWN: (v) => `There is no worker ${quote(v.asked)}. There are: ${list(v.valid)}.`,
  ATTACHMENT_REFUSED: (v) =>
    `${quote(v.path)} cannot be attached: ${v.reason}. An attachment is a file below one of: ${list(v.valid)}.`,
  MOUNT_SOURCE_REFUSED: (v) =>
    `${quote(v.path)} cannot be shown to a worker: ${v.reason}. Choose another file or directory for it.`,
  MOUNT_RESERVED: (v) => reserved(v.path, v.because),
  CHANGE_REFUSED: (v) => `The change of ${quote(v.path)} was not applied: ${v.reason}. What was there is as it was.`,
  CHANGE_CONFLICT: (v) =>
    `The change of ${quote(v.path)} was not applied: ${v.reason}. Read it again, and make the change anew.`,
  CHANGES_NOT_TAKEN: (v) =>
    `Nothing that the run changed was applied, and none of it is kept: ${v.reason}. Change less in one run.`,
  NETWORK_NOT_ENFORCEABLE: (v) =>
    `Network access to ${network(v.asked)} alone cannot be enforced: a container has no network, or all of it. Valid: \`network: false\`; or \`network: true\`, where project, caller and policy give everything.`,
  WORKING_DIR_MISSING: (v) =>
    `The working directory ${quote(v.path)} cannot be entered: there is no such directory, or the worker's user may not enter it. Make it beforehand, or name another.`,
  USER_NOT_ALLOWED: (v) =>
    `No user is fit to run this worker: ${v.reason}. Give its writable directories to one user that it may run as (chown), or use a policy that allows this one.`,
  COMMAND_NOT_FOUND: (v) =>
    `The image ${quote(v.image)} holds no command ${quote(v.command)}. Name one that it holds, or another image.`,
  ATTACHMENTS_NOT_TAKEN: (v) => `The worker ${quote(v.worker)} was not run: ${v.reason}.`,
  INPUT_NOT_VALID: (v) => `The worker ${quote(v.worker)} was not run, for its input is not what it takes: ${v.reason}.`,
  IMAGE_MISSING: (v) =>
    `There is no image ${quote(v.image)} on this container engine. Build or load it, or name another.`,
  ENFORCEMENT_MISSING: (v) =>
    `The cell was not what was planned: ${list(v.missing)}. Corral never runs a worker with less than its policy asks; use an engine and an image that allow it.`,
};

const LIMIT_WORDS: Readonly<Record<LimitName, string>> = {
  timeoutMs: "A time limit",
  memoryBytes: "Memory",
  cpus: "A number of CPUs",
  pids: "A number of processes",
  outputBytes: "Output",
  diskBytes: "Disk space",
};

const LINE_WORDS: Readonly<Record<keyof Hardening, string>> = {
  rootUser: "it allows the root user",
  readOnlyRoot: "its root file system is writable",
  noNewPrivileges: "it allows gaining privileges",
  capabilities: "it keeps more capabilities",
  seccomp: "it filters fewer system calls",
  tmpExec: "it allows executing files in /tmp",
  runtime: "it uses another container runtime",
};

function quote(text: string): string {
  return `'${text}'`;
}

function list(items: readonly string[]): string {
  return items.length === 0 ? "none" : items.join(", ");
}

/** Who the thing got lost with; the project is where everything begins, so there it was never given. */
function taken(by: string): string {
  return by === "project"
    ? "the project does not give it"
    : `taken away by ${by.startsWith("policy ") ? by : quote(by)}`;
}

function reserved(path: string, because: "volume" | "nesting" | undefined): string {
  if (because === "volume")
    return `${quote(path)} cannot be used for files: the image keeps a volume of its own inside of it. Choose another name for it in the project, or another image.`;
  if (because === "nesting")
    return `${quote(path)} lies inside of another directory without being a part of it, which no container can show. Choose a place beside that one.`;
  return `${quote(path)} is part of the container's own system and cannot be used for files. Choose another name for it in the project.`;
}

function network(value: Network): string {
  if (value === true) return "everything";
  return value === false || value.allow.length === 0 ? "nothing" : list(value.allow);
}

function amount(limit: LimitName, value: number): string {
  if (limit === "timeoutMs") return formatDuration(value);
  return limit.endsWith("Bytes") ? formatBytes(value) : `${value}`;
}

function asStrictAs(has: string): string {
  return has === "ask" ? "`ask` or `blocked`" : "`blocked`";
}

function line(name: string): string {
  return LINE_WORDS[name as keyof Hardening] ?? name;
}
