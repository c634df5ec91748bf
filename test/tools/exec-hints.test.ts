import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ExecOutcome } from "../../src/tools/exec-hints/failures.ts";
import { hintsFor } from "../../src/tools/exec-hints/hints.ts";
import type { ExecFacts } from "../../src/tools/exec-hints/wording.ts";

const FACTS: ExecFacts = {
  readablePaths: ["/data", "/out"],
  writablePaths: ["/out"],
  constraints: [],
  workingDir: "/out",
  network: false,
  memoryBytes: 96 * 1024 ** 2,
  diskBytes: 1024 ** 2,
  timeoutMs: 90_000,
  outputBytes: 2 * 1024 ** 2,
};

/** What each failure is answered with; the folders of the fixtures have these names. */
const HINTS = {
  memory: "All processes of this worker together may use 96 MiB of memory. Work on less at a time.",
  "file-size":
    "All that this worker writes may have at most 1 MiB together. Write less, or delete what is no longer needed.",
  space: "The place that was written to is full; /tmp and the home directory are small. Writable paths: /out.",
  network: "This worker has no network access. Work with the files that it has.",
  command: "That program is not in this worker's image. Use one that is; `command -v NAME` tells which are.",
  permission:
    "No permission can be gained from inside; work with these. Readable paths: /data, /out. Writable paths: /out.",
  "read-only": "That place is read-only for this worker. Writable paths: /out.",
  missing:
    "Only what was granted to this worker exists here. Readable paths: /data, /out. Relative paths begin at /out.",
} as const;

const TIME =
  "It was ended at its time limit, with all that it had started. A command of this worker has at most 90s. Do less at a time.";
const OUTPUT = "It was ended, for a command of this worker may print at most 2 MiB. Print less, or to a file.";

const fixtures = await readFixtures(join(import.meta.dirname, "fixtures/exec"));

describe("what a real program printed", () => {
  it.each(fixtures)("$name is answered with the hint of its folder, once", ({ kind, outcome }) => {
    expect(hintsFor(outcome, FACTS)).toEqual(kind === "none" ? [] : [HINTS[kind as keyof typeof HINTS]]);
  });

  it.each(fixtures)("$name is recognised on standard output as well", ({ kind, outcome }) => {
    const merged = { ...outcome, stdout: `before\n${outcome.stdout}${outcome.stderr}`, stderr: "" };
    expect(hintsFor(merged, FACTS)).toHaveLength(kind === "none" ? 0 : 1);
  });

  it("gives no hint where the command succeeded all the same", () => {
    for (const { outcome } of fixtures) {
      expect(hintsFor({ ...outcome, exitCode: 0, status: "succeeded" }, FACTS)).toEqual([]);
    }
  });

  it("is there for every hint, from more than one program", () => {
    for (const kind of Object.keys(HINTS))
      expect(fixtures.filter((one) => one.kind === kind).length).toBeGreaterThan(2);
  });
});

describe("how a command ended", () => {
  it.each<[string, Partial<ExecOutcome>, readonly string[]]>([
    ["killed for memory", { status: "oom_killed", signal: "SIGKILL" }, [HINTS.memory]],
    ["killed, and not by Corral", { status: "signaled", signal: "SIGKILL" }, [HINTS.memory]],
    ["killed at its time limit", { status: "timed_out", signal: "SIGKILL" }, [TIME]],
    ["killed at its time limit, told by a shell", { status: "timed_out", exitCode: 137 }, [TIME]],
    ["ended for what it printed", { status: "output_limit", signal: "SIGKILL" }, [OUTPUT]],
    ["cancelled", { status: "cancelled", signal: "SIGKILL" }, []],
    ["ended for its disk limit", { status: "disk_limit" }, [HINTS["file-size"]]],
    ["ended by the kernel for a large file", { status: "signaled", signal: "SIGXFSZ" }, [HINTS["file-size"]]],
    ["not found by a shell that is silent", { exitCode: 127 }, [HINTS.command]],
    ["failed without a word", { exitCode: 1 }, []],
  ])("%s", (_how, ending, hints) => {
    expect(
      hintsFor({ stdout: "", stderr: "", exitCode: null, signal: null, status: "failed", ...ending }, FACTS),
    ).toEqual(hints);
  });
});

describe("a hint", () => {
  const failed = (stderr: string, facts: Partial<ExecFacts> = {}) =>
    hintsFor({ stdout: "", stderr, exitCode: 1, signal: null, status: "failed" }, { ...FACTS, ...facts });

  it("says none where nothing may be written or read", () => {
    const [hint] = failed("cat: /x: Permission denied\n", { readablePaths: [], writablePaths: [] });
    expect(hint).toContain("Readable paths: none. Writable paths: none.");
  });

  it("says of a missing file where only some are shown", () => {
    const constraints = [
      { path: "/data", suffixes: [".md", ".txt"], maxFileBytes: 1024 },
      { path: "/out", suffixes: [".csv"] },
    ];
    expect(failed("cat: /data/a.pdf: No such file or directory\n", { constraints })).toEqual([
      "Only what was granted to this worker exists here. Readable paths: /data, /out. In /data only files ending in .md, .txt and of at most 1 KiB are shown. In /out only files ending in .csv are shown. Relative paths begin at /out.",
    ]);
  });

  it("names the hosts that may be reached, and is silent where every host may be", () => {
    const text = "curl: (6) Could not resolve host: example.com\n";
    expect(failed(text, { network: { allow: ["example.org:443", "*.example.org:443"] } })).toEqual([
      "This worker has network access to these only: example.org:443, *.example.org:443.",
    ]);
    expect(failed(text, { network: true })).toEqual([]);
  });

  it("stands once, however often a program complains, and holds what a lesser one would say", () => {
    const text = "rm: cannot remove '/data/a': Read-only file system\n".repeat(50);
    expect(failed(text)).toEqual([HINTS["read-only"]]);
    expect(failed(`${text}cat: /data/secret: Permission denied\n`)).toEqual([HINTS.permission]);
  });

  it("is one of at most four, the most telling first", () => {
    const all = fixtures.map(({ outcome }) => outcome.stderr).join("\n");
    expect(failed(all)).toEqual([HINTS.memory, HINTS["file-size"], HINTS.space, HINTS.network]);
  });

  it("lists no more paths than can be read", () => {
    const writablePaths = Array.from({ length: 500 }, (_, index) => `/out/${index}`);
    const [hint] = failed("touch: cannot touch 'x': Read-only file system\n", { writablePaths });
    expect(hint).toMatch(/\/out\/19, and 480 more\.$/);
  });

  it("never says zone, and quotes nothing that the program printed", () => {
    for (const { outcome } of fixtures) {
      const marked = { ...outcome, stderr: outcome.stderr.replaceAll("/data", "/CANARY") };
      for (const hint of hintsFor(marked, FACTS)) expect(hint).not.toMatch(/zone|CANARY/i);
    }
  });

  it("is found at the end of a long output, in no time", () => {
    const noise = [
      "a: ".repeat(400_000),
      "Killed ".repeat(100_000),
      "line 1: ".repeat(100_000),
      "\n: ".repeat(300_000),
    ];
    for (const text of noise) expect(failed(`${text}\ncat: /x: Permission denied\n`)).toEqual([HINTS.permission]);
  }, 5000);
});

interface Fixture {
  readonly name: string;
  readonly kind: string;
  readonly outcome: ExecOutcome;
}

/** Each file holds how the text came to be, the exit code, and both streams as the program wrote them. */
async function readFixtures(root: string): Promise<Fixture[]> {
  const files = (await readdir(root, { recursive: true })).filter((file) => file.endsWith(".txt")).toSorted();
  return Promise.all(
    files.map(async (file) => {
      const text = await readFile(join(root, file), "utf8");
      const [, exit, stdout = "", stderr = ""] =
        /^exit: (\d+)\n--- stdout\n([\s\S]*?)--- stderr\n([\s\S]*)$/m.exec(text) ?? [];
      const outcome = { stdout, stderr, exitCode: Number(exit), signal: null, status: "failed" };
      return { name: file.replace(".txt", ""), kind: file.split("/")[0] ?? "", outcome };
    }),
  );
}
