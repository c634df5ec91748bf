import { describe, expect, it } from "vitest";
import {
  EditError,
  FileSystemError,
  FileTooLargeError,
  NotFoundError,
  PathNotInSandboxError,
  PathNotWritableError,
  PermissionError,
  SandboxError,
  SuffixNotAllowedError,
} from "../../src/sandbox/errors.ts";
import { SandboxPermissionEscalationError } from "../../src/sandbox/wording.ts";

const errors = [
  new PathNotInSandboxError("/x", ["/data", "/out"]),
  new PathNotWritableError("/data/x", []),
  new SuffixNotAllowedError("/data/x.exe", [".md"]),
  new FileTooLargeError("/data/x", 2048, 1024),
  new NotFoundError("/data/x", ["/data/y"]),
  new PermissionError("/data/x", "delete", "a person denied it."),
  new EditError("/data/x", "the text to replace was found 2 times."),
  new SandboxPermissionEscalationError([{ code: "CALL_LIMIT", max: 3 }]),
  new FileSystemError("/data/x", "list", "it is a file. Read it."),
];

describe("sandbox errors", () => {
  it("are all SandboxErrors with a code of their own and their class's name", () => {
    expect(errors.every((error) => error instanceof SandboxError && error instanceof Error)).toBe(true);
    expect(new Set(errors.map((error) => error.code)).size).toBe(errors.length);
    expect(errors.map((error) => error.name)).toContain("PathNotWritableError");
  });

  it("say what failed and what is allowed", () => {
    const texts = errors.map((error) => error.message);
    expect(texts[0]).toMatch(/\/x.*\nReadable paths: \/data, \/out$/);
    expect(texts[1]).toMatch(/read-only\.\nWritable paths: none$/);
    expect(texts[2]).toMatch(/Allowed suffixes: \.md$/);
    expect(texts[3]).toMatch(/2 KiB.*\n.*1 KiB$/);
    expect(texts[4]).toMatch(/There are: \/data\/y$/);
    expect(texts[7]).toMatch(/used all of its 3 calls/);
    expect(texts[8]).toBe("Cannot list '/data/x': it is a file. Read it.");
  });

  it("carry the violations of an escalation, and the path of everything else", () => {
    expect(errors[7]).toMatchObject({ path: null, violations: [{ code: "CALL_LIMIT" }] });
    expect(errors.slice(0, 7).every((error) => typeof error.path === "string")).toBe(true);
  });

  it("keep their cause", () => {
    const cause = new Error("EACCES");
    expect(new PermissionError("/x", "read", "the system refused.", { cause }).cause).toBe(cause);
  });
});
