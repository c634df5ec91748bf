import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type ExecFacts, type ExecOutcome, hintsFor } from "../../src/tools/exec-hints.ts";

const FACTS: ExecFacts = {
  readablePaths: ["/data", "/out"],
  writablePaths: ["/out"],
  constraints: [],
  workingDir: "/out",
  rooted: false,
  mayAsk: false,
  network: false,
  memoryBytes: 96 * 1024 ** 2,
  diskBytes: 1024 ** 2,
  timeoutMs: 90_000,
  outputBytes: 2 * 1024 ** 2,
};

/** What each failure is answered with; the folders of the fixtures have these names. */
const HINTS = {
  memory:
    "The command ran out of memory. All processes of this worker together may use 96 MiB. Process less data at a time.",
  "file-size":
    "The command reached the disk limit. The files of this worker together may have at most 1 MiB. Write less, or delete files that you no longer need.",
  space: "No space is left in that directory; /tmp and the home directory are small. Writable paths: /out.",
  network: "This worker has no network access. Use the files that it already has.",
  command:
    "That program is not installed in this worker's image. Use another one; `command -v NAME` shows if a program exists.",
  permission:
    "Permission denied. You cannot get more permissions from inside the container. Readable paths: /data, /out. Writable paths: /out.",
  "read-only": "That path is read-only for this worker. Writable paths: /out.",
  missing:
    "That path does not exist: this worker sees only the paths that were granted to it. Readable paths: /data, /out. Relative paths start at /out.",
} as const;

const TIME =
  "The command reached its time limit and was killed with all that it started. A command of this worker may run for at most 90s. Split the work into shorter commands.";
const OUTPUT =
  "The command was killed because it printed more than 2 MiB, the limit of this worker. Print less, or write the output to a file.";

const fixtures = await readFixtures(join(import.meta.dirname, "fixtures/exec"));

describe("what a real program printed", () => {
  it.each(fixtures)("$name is answered with the hint of its folder, once", ({ kind, outcome }) => {
    // Only a kill for memory is one, whatever a program prints.
    const ended = kind === "memory" ? { ...outcome, status: "oom_killed" } : outcome;
    expect(hintsFor(ended, FACTS)).toEqual(kind === "none" ? [] : [HINTS[kind as keyof typeof HINTS]]);
    if (kind === "memory") expect(hintsFor(outcome, FACTS)).toEqual([]);
  });

  it.each(fixtures)("$name is recognised on standard output as well", ({ kind, outcome }) => {
    const merged = { ...outcome, stdout: `before\n${outcome.stdout}${outcome.stderr}`, stderr: "" };
    expect(hintsFor(merged, FACTS)).toHaveLength(kind === "none" || kind === "memory" ? 0 : 1);
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
    ["killed, and not by Corral", { status: "signaled", signal: "SIGKILL" }, []],
    ["killed, told by a shell", { exitCode: 137 }, []],
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

  it("says how to ask for a directory, if that can be done, and what the root form names otherwise", () => {
    const ask = (mode: string) =>
      ` The user can be asked for another directory with request_access {"path": "/DIRECTORY", "mode": "${mode}"}.`;
    expect(failed("cat: /x: No such file or directory\n", { mayAsk: true })).toEqual([HINTS.missing + ask("read")]);
    expect(failed("touch: /x: Read-only file system\n", { mayAsk: true })).toEqual([HINTS["read-only"] + ask("write")]);
    expect(failed("cat: /x: No such file or directory\n", { rooted: true })).toEqual([
      `${HINTS.missing} What the file tools name /a is /project/a for commands.`,
    ]);
  });

  it("says of a missing file where only some are shown", () => {
    const constraints = [
      { path: "/data", suffixes: [".md", ".txt"], maxFileBytes: 1024 },
      { path: "/out", suffixes: [".csv"] },
    ];
    expect(failed("cat: /data/a.pdf: No such file or directory\n", { constraints })).toEqual([
      "That path does not exist: this worker sees only the paths that were granted to it. Readable paths: /data, /out. In /data only files ending in .md, .txt and of at most 1 KiB are visible. In /out only files ending in .csv are visible. Relative paths start at /out.",
    ]);
  });

  it("names the hosts that may be reached, and is silent where every host may be", () => {
    const text = "curl: (6) Could not resolve host: example.com\n";
    expect(failed(text, { network: { allow: [{ to: "example.org:443" }, { to: "*.example.org:443" }] } })).toEqual([
      "This worker reaches only these hosts: example.org:443, *.example.org:443.",
    ]);
    const bounded = { allow: [{ to: "example.org:443", methods: ["GET"] }] };
    expect(failed(text, { network: bounded })).toEqual([
      "This worker reaches only these hosts: http://example.org/ (GET).",
    ]);
    expect(failed(text, { network: true })).toEqual([]);
  });

  it("says what the user can be asked for", () => {
    const text = "curl: (56) CONNECT tunnel failed, response 403\n";
    const dynamic = { within: ["*.example.org:443"], max: 8 };
    const ask = 'The user can be asked for others with request_access {"host": "NAME:PORT"}';
    expect(failed(text, { network: { allow: [], dynamic } })).toEqual([
      `This worker reaches no host yet. ${ask}, among: *.example.org:443.`,
    ]);
    expect(failed(text, { network: { allow: [{ to: "a.test:80" }], dynamic: { within: [], max: 8 } } })).toEqual([
      `This worker reaches only these hosts: a.test:80. ${ask}.`,
    ]);
    for (const other of [
      "OSError: Tunnel connection failed: 403 Forbidden\n",
      "curl: (56) Received HTTP code 403 from proxy after CONNECT\n",
      "  [cause]: RequestAbortedError [AbortError]: Proxy response (403) !== 200 when HTTP Tunneling\n",
      "b.test:443 is not allowed. Allowed: a.test:80.\n",
    ])
      expect(failed(other, { network: { allow: [], dynamic } }), other).toHaveLength(1);
  });

  it("stands once, however often a program complains, and holds what a lesser one would say", () => {
    const text = "rm: cannot remove '/data/a': Read-only file system\n".repeat(50);
    expect(failed(text)).toEqual([HINTS["read-only"]]);
    expect(failed(`${text}cat: /data/secret: Permission denied\n`)).toEqual([HINTS.permission]);
  });

  it("is one of at most four, the most telling first", () => {
    const all = fixtures.map(({ outcome }) => outcome.stderr).join("\n");
    expect(failed(all)).toEqual([HINTS["file-size"], HINTS.space, HINTS.network, HINTS.command]);
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
  }, 30_000);
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
