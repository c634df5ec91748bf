import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  type BeginEntry,
  type EndedEntry,
  keptPieces,
  MAX_STREAMS_BYTES,
  PIECE_BYTES,
  RECORD_FILE,
  Recording,
} from "../../src/history/recording.ts";
import { readRun } from "../../src/history/run-record.ts";

const RUN = "0123456789ab";
let base: string;
let dir: string;
let troubles: string[];

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "corral-history-"));
  dir = join(base, "runs/project/run");
  troubles = [];
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe("a recording", () => {
  it("keeps what was printed, in order, and says how the run ended", async () => {
    const recording = begun();
    for (const text of ["a", "b", "c\n"]) recording.output("stdout", Buffer.from(text));
    recording.output("stderr", Buffer.from("e"));
    await recording.end(ended);
    expect(await printed("stdout")).toBe("abc\n");
    expect(await readRun(dir, alive)).toMatchObject({
      id: RUN,
      status: "failed",
      exitCode: 3,
      stdout: { bytes: 4, keptBytes: 4 },
      stderr: { bytes: 1, keptBytes: 1 },
      error: { code: "FAILED" },
    });
    expect(troubles).toEqual([]);
  });

  it("is a folder that only its owner can read", async () => {
    const recording = begun();
    recording.output("stdout", Buffer.from("x"));
    await recording.end(ended);
    for (const at of [dir, join(base, "runs/project"), join(base, "runs")])
      expect((await stat(at)).mode & 0o777).toBe(0o700);
    for (const name of await readdir(dir)) expect((await stat(join(dir, name))).mode & 0o777).toBe(0o600);
  });

  it("keeps the first 512 KiB and at least the last 512 KiB of a long stream, and where they were", async () => {
    const recording = begun();
    const total = 5_000_003;
    const all = Buffer.alloc(total, "0123456789abcde");
    for (let at = 0; at < total; at += 70_001) recording.output("stdout", all.subarray(at, at + 70_001));
    await recording.end(ended);
    const pieces = await Array.fromAsync(keptPieces(dir, "stdout"));
    for (const { offset, bytes } of pieces)
      expect(bytes.equals(all.subarray(offset, offset + bytes.length))).toBe(true);
    expect(pieces.slice(0, 2).map(({ offset }) => offset)).toEqual([0, PIECE_BYTES]);
    const last = pieces.at(-1);
    expect((last?.offset ?? 0) + (last?.bytes.length ?? 0)).toBe(total);
    const tail = pieces.slice(2);
    expect(total - (tail[0]?.offset ?? total)).toBeGreaterThanOrEqual(512 * 1024);
    const record = await readRun(dir, alive);
    expect(record?.stdout.bytes).toBe(total);
    expect(record?.stdout.keptBytes).toBe(pieces.reduce((sum, { bytes }) => sum + bytes.length, 0));
    expect(record?.stdout.keptBytes).toBeLessThanOrEqual(MAX_STREAMS_BYTES / 2);
  });

  it("has everything but the last turn of the event loop if its process is killed, and says so", async () => {
    const recording = begun();
    recording.output("stdout", Buffer.from("here"));
    await nextTurn();
    await nextTurn();
    expect(await printed("stdout")).toBe("here");
    expect(await readRun(dir, alive)).toMatchObject({ status: "running", endedAt: null });
    expect(await readRun(dir, () => true)).toMatchObject({ status: "interrupted", endedAt: null });
    await recording.end(ended);
  });

  it("can be read if its last line was cut off, or is none", async () => {
    await begun().end(ended);
    const whole = await readFile(join(dir, RECORD_FILE), "utf8");
    await writeFile(join(dir, RECORD_FILE), `${whole.slice(0, -40)}`);
    expect(await readRun(dir, () => true)).toMatchObject({ id: RUN, status: "interrupted" });
    await writeFile(join(dir, RECORD_FILE), `\0\xff[[[[\n${whole}`);
    expect(await readRun(dir, alive)).toMatchObject({ id: RUN, status: "failed" });
    await writeFile(join(dir, RECORD_FILE), '{"type":"begin"}\n');
    expect(await readRun(dir, alive)).toBeNull();
  });

  it("does not follow a link in the place of its record", async () => {
    await mkdir(dir, { recursive: true });
    await writeFile(join(base, "elsewhere"), `${JSON.stringify(BEGIN)}\n`);
    await symlink(join(base, "elsewhere"), join(dir, RECORD_FILE));
    expect(await readRun(dir, alive)).toBeNull();
  });

  it("tells once that it cannot be written, and never throws", async () => {
    await mkdir(join(base, "runs"), { recursive: true });
    await writeFile(join(base, "runs/project"), "a file in its place");
    const recording = begun();
    recording.output("stdout", Buffer.from("x"));
    await recording.end(ended);
    expect(troubles).toHaveLength(1);
    expect(troubles[0]).toContain("ENOTDIR");
  });

  it("has the digest of a file, and none of what is no file or is too large", async () => {
    await writeFile(join(base, "small"), "content");
    await writeFile(join(base, "large"), Buffer.alloc(17 * 1024 * 1024));
    const recording = begun(["small", "large", "dir", "gone"]);
    recording.digest(
      ["small", "large", "dir", "gone"].map((name) => ({ name, host: join(base, name === "dir" ? "" : name) })),
    );
    await recording.end(ended);
    const sha256 = createHash("sha256").update("content").digest("hex");
    expect((await readRun(dir, alive))?.attachments).toEqual([
      { name: "small", bytes: 7, sha256 },
      { name: "large", bytes: 17 * 1024 * 1024, sha256: null },
      { name: "dir", bytes: null, sha256: null },
      { name: "gone", bytes: null, sha256: null },
    ]);
  });

  it("counts calls that do not fit, and still has its end", async () => {
    const recording = begun();
    const attachments = Array.from({ length: 200 }, () => "n".repeat(200));
    for (let call = 0; call < 100; call += 1) {
      const run = call.toString(16).padStart(12, "0");
      const called = { type: "called", run, parent: RUN, worker: "w", at: BEGIN.at, attachments } as const;
      recording.add(called, { mayBeLeftOut: true });
    }
    await recording.end(() => ({ ...ended(), leftOut: recording.leftOut }));
    const record = await readRun(dir, alive);
    expect(record?.status).toBe("failed");
    expect(record?.calls.length).toBeGreaterThan(10);
    expect(record?.leftOut).toBeGreaterThan(10);
    expect((record?.leftOut ?? 0) + (record?.calls.length ?? 0)).toBe(100);
  });
});

const BEGIN: BeginEntry = {
  type: "begin",
  version: 1,
  run: RUN,
  kind: "run",
  worker: "w",
  project: "/project",
  owner: "somebody",
  at: "2026-01-01T00:00:00.000Z",
  input: null,
  attachments: [],
  keep: { days: 30, runs: 1000 },
};

function begun(attachments: string[] = []): Recording {
  const recording = new Recording(dir, (why) => troubles.push(why));
  recording.add({ ...BEGIN, attachments });
  return recording;
}

function ended(): EndedEntry {
  return {
    type: "ended",
    run: RUN,
    at: "2026-01-01T00:00:01.000Z",
    status: "failed",
    exitCode: 3,
    signal: null,
    error: { code: "FAILED", message: "it failed" },
    durationMs: 1000,
    cpuMs: null,
    memoryBytesPeak: null,
    truncated: false,
    changeset: null,
    network: null,
    agent: null,
    leftOut: 0,
  };
}

const alive = (): boolean => false;

async function printed(stream: "stdout" | "stderr"): Promise<string> {
  const pieces = await Array.fromAsync(keptPieces(dir, stream));
  return Buffer.concat(pieces.map(({ bytes }) => bytes)).toString();
}
