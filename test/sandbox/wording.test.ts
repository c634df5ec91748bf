import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Violation, ViolationCode } from "../../src/sandbox/violation.ts";
import { describeViolation, describeViolations } from "../../src/sandbox/wording.ts";
import { at } from "./sandboxes.ts";

/** One of each code; the type makes a new code fail here until it has an example. */
const examples: { readonly [Code in ViolationCode]: Extract<Violation, { code: Code }> } = {
  MOUNT_NOT_AVAILABLE: { code: "MOUNT_NOT_AVAILABLE", asked: "cache", by: "triage", valid: ["data", "out"] },
  OWN_PATH_OUTSIDE: {
    code: "OWN_PATH_OUTSIDE",
    asked: "q",
    valid: [{ path: at("/data"), mode: "ro", suffixes: [".md"], maxFileBytes: 1024 }],
  },
  PATH_NOT_AVAILABLE: { code: "PATH_NOT_AVAILABLE", asked: "/etc", by: "project", valid: [] },
  WRITE_NOT_AVAILABLE: { code: "WRITE_NOT_AVAILABLE", asked: "/data", has: "ro", by: "triage", valid: ["/out"] },
  READONLY_ESCALATION: { code: "READONLY_ESCALATION", by: "triage" },
  WORKING_DIR_NOT_AVAILABLE: { code: "WORKING_DIR_NOT_AVAILABLE", asked: "/out", valid: ["/src"] },
  APPROVAL_LOOSER: {
    code: "APPROVAL_LOOSER",
    path: "/data",
    operation: "write",
    asked: "pre_approved",
    has: "ask",
    by: "triage",
  },
  SECRET_NOT_AVAILABLE: { code: "SECRET_NOT_AVAILABLE", asked: "token", by: "triage", valid: ["other"] },
  SECRET_NOT_READ: { code: "SECRET_NOT_READ", secret: "token", reason: "the environment variable TOKEN is not set" },
  SECRETS_NOT_ENFORCEABLE: { code: "SECRETS_NOT_ENFORCEABLE", reason: "a cell that serves many items holds no secret" },
  ROOT_NOT_WRITABLE: { code: "ROOT_NOT_WRITABLE", by: "policy untrusted" },
  ROOT_NOT_ENFORCEABLE: { code: "ROOT_NOT_ENFORCEABLE", reason: "the image is gone" },
  NETWORK_NOT_RESOLVED: { code: "NETWORK_NOT_RESOLVED", at: "packages", reason: "is not supported" },
  NETWORK_NOT_AVAILABLE: {
    code: "NETWORK_NOT_AVAILABLE",
    asked: true,
    has: false,
    exceeding: [{ kind: "all" }],
    by: "policy untrusted",
  },
  LIMIT_TOO_LARGE: {
    code: "LIMIT_TOO_LARGE",
    limit: "memoryBytes",
    asked: 512 * 1024 ** 2,
    has: 256 * 1024 ** 2,
    by: "triage",
  },
  POLICY_WEAKER: { code: "POLICY_WEAKER", asked: "default", has: "untrusted", lines: ["rootUser"], by: "project" },
  SUFFIXES_WIDER: { code: "SUFFIXES_WIDER", path: "/data", asked: [".exe"], has: [".md"], by: "triage" },
  FILE_SIZE_LARGER: { code: "FILE_SIZE_LARGER", path: "/data", asked: 2048, has: 1024, by: "triage" },
  CALL_NOT_LISTED: { code: "CALL_NOT_LISTED", asked: "ocr", valid: ["extract"] },
  CALL_CYCLE: { code: "CALL_CYCLE", path: ["triage", "extract", "triage"] },
  CALL_TOO_DEEP: { code: "CALL_TOO_DEEP", path: ["a", "b", "c"], max: 2 },
  CALL_NOT_APPROVED: { code: "CALL_NOT_APPROVED", asked: "x", paths: [at("/private")], reason: "it was denied: no" },
  READ_NOT_APPROVED: {
    code: "READ_NOT_APPROVED",
    path: "/private",
    reason: "It needs approval, which was denied: the approval mode is auto_deny.",
  },
  SERVICE_REFUSED: { code: "SERVICE_REFUSED", service: "db", reason: "the worker postgres is an agent" },
  SERVICE_NOT_READY: {
    code: "SERVICE_NOT_READY",
    service: "db",
    reason: "it ended with exit code 1",
    printed: ["initdb: error", "giving up"],
  },
  CALL_LIMIT: { code: "CALL_LIMIT", max: 100 },
  WORKER_UNKNOWN: { code: "WORKER_UNKNOWN", asked: "ocr", valid: ["extract"] },
  ATTACHMENT_REFUSED: { code: "ATTACHMENT_REFUSED", path: "/x", reason: "it is a directory", valid: ["/data"] },
  MOUNT_SOURCE_REFUSED: { code: "MOUNT_SOURCE_REFUSED", path: "/x", reason: "it holds the engine's socket" },
  MOUNT_RESERVED: { code: "MOUNT_RESERVED", path: "/usr" },
  CHANGE_REFUSED: { code: "CHANGE_REFUSED", path: "/data/a", reason: "it is a link that leaves its directory" },
  CHANGE_CONFLICT: { code: "CHANGE_CONFLICT", path: "/data/a", reason: "it was changed since" },
  CHANGES_NOT_TAKEN: { code: "CHANGES_NOT_TAKEN", reason: "there are more than 10 changes" },
  NETWORK_NOT_ENFORCEABLE: { code: "NETWORK_NOT_ENFORCEABLE", reason: "the image corral/node is missing" },
  WORKING_DIR_MISSING: { code: "WORKING_DIR_MISSING", path: "/out/new" },
  USER_NOT_ALLOWED: { code: "USER_NOT_ALLOWED", reason: "the files belong to root" },
  COMMAND_NOT_FOUND: { code: "COMMAND_NOT_FOUND", command: "pdftotext", image: "corral/base" },
  IMAGE_MISSING: { code: "IMAGE_MISSING", image: "corral/base" },
  IMAGE_REFUSED: {
    code: "IMAGE_REFUSED",
    image: "img",
    reason: "it has a file at /data, where the cell needs a directory",
  },
  IMAGE_NOT_MADE: {
    code: "IMAGE_NOT_MADE",
    image: "images/ocr",
    reason: "it is not built yet",
    get: "corral images build images/ocr",
  },
  ATTACHMENTS_NOT_TAKEN: {
    code: "ATTACHMENTS_NOT_TAKEN",
    worker: "writer",
    reason: "it takes at most 1 attachments, and was given 2",
  },
  NOTHING_TO_RUN: { code: "NOTHING_TO_RUN", worker: "desk" },
  INPUT_NOT_VALID: { code: "INPUT_NOT_VALID", worker: "writer", reason: "/lang must be string" },
  ENFORCEMENT_MISSING: { code: "ENFORCEMENT_MISSING", missing: ["seccomp"] },
};

describe("describeViolation", () => {
  it.each(Object.values(examples))("says something whole and plain of $code", (violation) => {
    const text = describeViolation(violation);
    expect(text).toMatch(/^[A-Z'`].*\.$/);
    expect(text).not.toMatch(/zone|undefined|null|NaN|\[object/i);
  });

  it("names what was asked, what there is, who took it away and what would do", () => {
    expect(describeViolation(examples.WRITE_NOT_AVAILABLE)).toMatch(/'\/data'.*read-only.*'triage'.*\/out/);
    expect(describeViolation(examples.MOUNT_NOT_AVAILABLE)).toMatch(/'cache'.*'triage'.*data, out/);
    expect(describeViolation(examples.OWN_PATH_OUTSIDE)).toMatch(
      /'q'.*project gives: \/data \(ro, only \.md, files of at most 1 KiB\)\..*corral\.yaml.*`own_paths: allowed`/,
    );
    expect(describeViolation({ ...examples.WRITE_NOT_AVAILABLE, own: "w" })).toMatch(
      /^Own path 'w': '\/data' is read-only/,
    );
    expect(describeViolation(examples.PATH_NOT_AVAILABLE)).toMatch(/'\/etc'.*project.*Readable paths: none/);
    expect(describeViolation(examples.POLICY_WEAKER)).toMatch(/'default'.*'untrusted'.*user 0/);
    expect(describeViolation(examples.CALL_CYCLE)).toMatch(/triage -> extract -> triage/);
    expect(describeViolation(examples.NETWORK_NOT_AVAILABLE)).toMatch(/every host.*none.*by policy untrusted/);
  });

  it("says of a place that is taken by what", () => {
    const { MOUNT_RESERVED } = examples;
    expect(describeViolation(MOUNT_RESERVED)).toContain("the container's system directories");
    expect(describeViolation({ ...MOUNT_RESERVED, because: "volume" })).toMatch(/a volume inside.*another image\.$/);
    expect(describeViolation({ ...MOUNT_RESERVED, because: "nesting" })).toMatch(/inside of another mount/);
    expect(describeViolation({ ...MOUNT_RESERVED, because: "depth" })).toMatch(/too many folders.*fewer such mounts/);
  });

  it("knows the images that Corral has, and no others", async () => {
    const folders = (await readdir(join(import.meta.dirname, "../../images"))).toSorted();
    const unknown = describeViolation({ code: "IMAGE_MISSING", image: "corral/document" });
    expect(unknown).toContain(`It has ${folders.map((name) => `corral/${name}`).join(", ")}.`);
    for (const name of folders)
      expect(describeViolation({ code: "IMAGE_MISSING", image: `corral/${name}` })).toContain(
        `corral images build ${name}`,
      );
  });

  it("says why a command cannot be started", () => {
    const { COMMAND_NOT_FOUND } = examples;
    expect(describeViolation({ ...COMMAND_NOT_FOUND, searched: "/odd:/no" })).toContain(
      "in its PATH, which is '/odd:/no'",
    );
    const script = { ...COMMAND_NOT_FOUND, command: "/in/x" };
    expect(describeViolation({ ...script, interpreter: "/bin/sh\r" })).toMatch(/lines end with CR LF.*sed -i/);
    expect(describeViolation({ ...script, interpreter: " /no/such -x" })).toContain("names '/no/such -x'");
  });

  it("offers no path where there is none", () => {
    const text = describeViolation({ ...examples.WRITE_NOT_AVAILABLE, valid: [] });
    expect(text).toMatch(/Ask to read it only\.$/);
  });

  it("writes limits with their units", () => {
    expect(describeViolation(examples.LIMIT_TOO_LARGE)).toMatch(/512 MiB.*256 MiB/);
    const time = { code: "LIMIT_TOO_LARGE", limit: "timeoutMs", asked: 60_000, has: 30_000, by: "project" } as const;
    expect(describeViolation(time)).toMatch(/1m.*30s/);
    expect(describeViolation({ ...time, limit: "cpus", asked: 4, has: 1.5 })).toMatch(/`cpus: 4`.*1\.5 /);
  });
});

describe("describeViolations", () => {
  it("gives each a line of its own", () => {
    const text = describeViolations([examples.CALL_LIMIT, examples.READONLY_ESCALATION]);
    expect(text.split("\n")).toHaveLength(3);
  });
});
