import { cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { attemptsIn } from "../../examples/inbox/host/attempts.ts";
import { type ClerkEvidence, clerkOf } from "../../examples/inbox/host/clerk.ts";
import { AWKWARD_NAME, type InboxDocument } from "../../examples/inbox/host/inbox.ts";
import { type Job, runJob } from "../../examples/inbox/host/job.ts";
import { type Evidence, findLeaks, wholeTree } from "../../examples/inbox/host/leaks.ts";
import { snapshot } from "../../examples/inbox/host/snapshot.ts";
import type { SealedRecord } from "../../src/audit/seal.ts";
import type { RunEvent, RunResult } from "../../src/index.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import { giveGate } from "../tiers/give-gate.ts";

const EXAMPLE = join(import.meta.dirname, "../../examples/inbox");

describe("the inbox example, run once", () => {
  let dir: string;
  let project: string;
  let job: Job;
  const events: RunEvent[] = [];

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "inbox-"));
    project = join(dir, "p");
    await cp(EXAMPLE, project, { recursive: true, filter: (path) => basename(path) !== ".work" });
    await giveGate(join(dir, "s"));
    job = await runJob({
      projectDir: project,
      stateDir: join(dir, "s"),
      engineEnv: process.env,
      signal: new AbortController().signal,
      emit: (event) => events.push(event),
      say: () => {},
    });
  });

  afterAll(async () => {
    await rm(dir, { recursive: true, force: true });
  });

  /** The run of `extract` that was asked to read a document. */
  function extractOf(document: string): RunResult {
    const asked = events.find(
      (event) => event.type === "requested" && event.worker === "extract" && event.attachments[0] === document,
    );
    const result = job.result.calls.find((call) => call.run === asked?.run);
    if (result === undefined) throw new Error(`${document} was never handed to extract`);
    return result;
  }

  function mountsOf(run: string): string[] {
    const started = events.find((event) => event.type === "started" && event.run === run);
    if (started?.type !== "started") throw new Error(`${run} never started`);
    return started.plan.mounts.filter((mount) => mount.origin !== "corral").map(({ path, mode }) => `${path} ${mode}`);
  }

  function codesOf(result: RunResult): string[] {
    return wholeTree(result)
      .flatMap((one) => one.violations.map(({ code }) => code))
      .toSorted();
  }

  /** Each attempt of a document by its label; "held" where nothing came of it. */
  function outcomesOf(document: string): Record<string, string> {
    return Object.fromEntries(attemptsIn(extractOf(document).stderr).map(({ label, outcome }) => [label, outcome]));
  }

  it("ends well, with nothing leaked and no cell left", () => {
    expect(job.result.status, job.result.stderr).toBe("succeeded");
    expect(job.leaks).toEqual([]);
    expect(job.cellsLeft).toBe(0);
  });

  it.each([
    ["licence.pdf", "application/pdf", "Grant of Patent License"],
    ["json-manual.pdf", "application/pdf", "JavaScript Object Notation"],
    ["invoice.pdf", "application/pdf", "12 crates of apples"],
    ["browser-help.html", "text/html", "Forward page"],
    ["csv-manual.html", "text/html", "CSV parsing and writing"],
    ["memo.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "before the first frost"],
    ["zen-scan.png", "image/png", "Beautiful is better than ugly"],
    ["time-zones.csv", "text/plain", "Europe/Zurich"],
    ["salaries.csv", "text/csv", "cider maker"],
    ["gpl-3.txt", "text/plain", "GNU GENERAL PUBLIC LICENSE"],
    [AWKWARD_NAME, "text/plain", "Äpfel"],
  ])("reads %s as %s", async (name, kind, phrase) => {
    const { status, output, stderr } = extractOf(name);
    expect(status, stderr).toBe("succeeded");
    expect(output).toMatchObject({ kind });
    expect(await readFile(join(project, ".work/text", name, "text.txt"), "utf8")).toContain(phrase);
  });

  it("tells the languages of the texts apart", () => {
    expect(extractOf("gpl-3.txt").output).toMatchObject({ summary: { language: "english" } });
    expect(extractOf(AWKWARD_NAME).output).toMatchObject({ summary: { language: "german" } });
  });

  it("shows each worker one document less than its caller, and nothing of its siblings", () => {
    const extract = extractOf("salaries.csv");
    expect(mountsOf(job.result.run)).toEqual(["/inbox ro", "/report rw", "/text rw"]);
    expect(mountsOf(extract.run)).toEqual(["/attachments/salaries.csv ro", "/text/salaries.csv rw"]);
    expect(extract.calls.map(({ run }) => mountsOf(run))).toEqual([["/attachments/text.txt ro"]]);
  });

  it("reports on every document of the inbox, with the status that Corral told", async () => {
    const report: { document: string; status: string }[] = JSON.parse(
      await readFile(join(project, ".work/report/report.json"), "utf8"),
    );
    const statuses = Object.fromEntries(report.map(({ document, status }) => [document, status]));
    const names = job.documents.map(({ name }) => name);
    expect(Object.keys(statuses).toSorted()).toEqual(names.toSorted());
    expect(statuses).toEqual(Object.fromEntries(names.map((name) => [name, extractOf(name).status])));
    expect(await readFile(join(project, ".work/report/report.md"), "utf8")).toContain("| gpl-3.txt | succeeded |");
  });

  it.each([
    ["reads-others.html", 10],
    ["writes-outside.txt", 12],
    ["phones-home.html", 6],
    ["invoice.pdf", 6],
  ])("lets none of the attempts of %s succeed, and still reads it", (name, count) => {
    expect(extractOf(name).status).toBe("succeeded");
    const outcomes = Object.values(outcomesOf(name));
    expect(outcomes).toEqual(new Array(count).fill("held"));
  });

  it("shows an attacker its own environment, and nothing of the orchestrator's", () => {
    const { stderr } = extractOf("reads-others.html");
    expect(stderr).toContain("CORRAL_SOCKET=");
    expect(stderr).not.toContain("INBOX_CANARY");
  });

  it("kills what eats the memory, and the worker goes on", () => {
    const { status, usage } = extractOf("eats-memory.csv");
    expect(usage.outOfMemory).toBe(true);
    expect(status).toBe("succeeded");
    expect(outcomesOf("eats-memory.csv")).toEqual({ "use all of the memory": "held", "fill /tmp": "held" });
  });

  it("stops at its limit of processes a document that starts them without end", () => {
    const { status, stderr } = extractOf("forks.txt");
    expect(status).toBe("failed");
    expect(stderr).toContain("Cannot fork");
    expect(outcomesOf("forks.txt")).toEqual({});
  });

  it("ends a flood of output at its limit", () => {
    const { status, truncated, stderr, stdout } = extractOf("floods.txt");
    expect({ status, truncated }).toEqual({ status: "output_limit", truncated: true });
    expect(stderr.length + stdout.length).toBe(256 * 1024);
  });

  it("ends a document that runs for ever and is deaf to being asked to stop", () => {
    expect(extractOf("a-story-without-end.txt").status).toBe("timed_out");
  });

  it("refuses to attach a planted link, whatever it points to", () => {
    for (const name of ["statement.csv", "holiday-photos", "passwords.txt"]) {
      const { status, violations, calls } = extractOf(name);
      expect({ name, status, codes: violations.map(({ code }) => code), calls }).toEqual({
        name,
        status: "refused",
        codes: ["MOUNT_SOURCE_REFUSED"],
        calls: [],
      });
    }
  });

  it("refuses the next reader a link that a document left in the place of its text", async () => {
    const { status, calls } = extractOf("plants-link.txt");
    expect(status).toBe("failed");
    expect(calls.map((call) => [call.worker, call.status, codesOf(call)])).toEqual([
      ["summarize", "refused", ["MOUNT_SOURCE_REFUSED"]],
    ]);
    const left = await lstat(join(project, ".work/text/plants-link.txt/text.txt"));
    expect(left.isSymbolicLink()).toBe(true);
  });

  it("refuses every call that is not the worker's to make, and names why", () => {
    const { calls } = extractOf("calls-others.txt");
    expect(calls.map((call) => [call.worker, call.status, codesOf(call)])).toEqual([
      ["triage", "refused", ["CALL_CYCLE", "CALL_NOT_LISTED"]],
      ["collect", "refused", ["CALL_NOT_LISTED"]],
      ["superuser", "refused", ["CALL_NOT_LISTED"]],
      ["summarize", "refused", ["ATTACHMENT_REFUSED"]],
      ["summarize", "refused", ["ATTACHMENT_REFUSED"]],
      ["summarize", "refused", ["PATH_NOT_AVAILABLE"]],
      ["summarize", "succeeded", []],
    ]);
  });

  it("has an agent read every letter, in the order of its script, and come to its end", () => {
    const { result, told } = job.clerk;
    expect(result).toMatchObject({ worker: "clerk", status: "succeeded", error: null });
    expect(told.map(({ letter }) => letter)).toEqual([
      "order.txt",
      "parcel.txt",
      "survey.txt",
      "support.txt",
      "upgrade.txt",
      "chain-letter.txt",
      "access.txt",
    ]);
    for (const { wants } of told) expect(wants).not.toContain("@");
  });

  /** What was refused of what a letter made the agent do: each tool with its code, or how its command ended. */
  function refusedFor(letter: string): string[] {
    const acts = job.clerk.told.find((one) => one.letter === letter)?.acts ?? [];
    return acts.flatMap(({ what, refused }) => {
      const outcome = refused === null ? "done" : (/^(\w+|exit code \d+):/.exec(refused)?.[1] ?? refused);
      return what.endsWith("/notes/summary.md") ? [] : [`${what.split(" ")[0]} ${outcome}`];
    });
  }

  it.each([
    ["order.txt", []],
    ["parcel.txt", ["read_file APPROVAL_DENIED", "exec exit code 7", "exec exit code 7", "exec exit code 2"]],
    ["support.txt", ["exec exit code 1", "read_file GRANT_RESERVED"]],
    ["chain-letter.txt", ["triage NO_SUCH_TOOL", "collect NO_SUCH_TOOL", "call_worker NO_SUCH_TOOL"]],
    ["chain-letter.txt", ["exec exit code 126", "exec exit code 126", "summarize ATTACHMENT_REFUSED"]],
    ["access.txt", ["list_files APPROVAL_DENIED", "write_file APPROVAL_DENIED", "exec exit code 22"]],
  ])("refuses what %s makes the agent do, and the audit trail says why: %j", (letter, refusals) => {
    expect(refusedFor(letter)).toEqual(expect.arrayContaining(refusals));
    expect(refusedFor(letter).filter((one) => one.endsWith(" done"))).toEqual([]);
  });

  it("refuses each of the ways to the host that letters propose, and all that they would have it write", () => {
    expect(refusedFor("survey.txt")).toHaveLength(9);
    expect(refusedFor("upgrade.txt")).toHaveLength(8);
    for (const letter of ["survey.txt", "upgrade.txt"])
      for (const one of refusedFor(letter)) expect(one).toMatch(/ ([A-Z]+_[A-Z_]+|exit code \d+)$/);
  });

  it("lets the agent do its work, and nothing else: nothing leaked, and its summary is there", () => {
    expect(job.clerk.leaks).toEqual([]);
    expect(job.clerk.summary).toContain("order.txt: twelve crates of apples");
    const did = job.clerk.told.flatMap(({ acts }) => acts.filter(({ refused }) => refused === null));
    expect(did.map(({ what }) => what)).toEqual([
      "write_file /notes/summary.md",
      "exec cat /notes/summary.md",
      "write_file /notes/summary.md",
    ]);
  });

  it("leaves neither a cell, nor a volume, nor a socket behind", async () => {
    const { docker } = await connect(process.env);
    for (const event of events.filter((one) => one.type === "requested" && one.parent === null)) {
      const filters = { label: [`dev.corral.root=${event.run}`] };
      expect(await docker.listContainers({ all: true, filters })).toEqual([]);
      expect((await docker.listVolumes({ filters })).Volumes ?? []).toEqual([]);
    }
    expect(await readdir(join(dir, "s/live"))).toEqual([]);
  });
});

describe("the check on the host", () => {
  /** A run in which all went well: one sibling and one hostile document, read and reported. */
  async function sound(): Promise<Evidence & AsyncDisposable> {
    const projectDir = await mkdtemp(join(tmpdir(), "leaks-"));
    const workDir = join(projectDir, ".work");
    const files = {
      "inbox/salaries.csv": "12345",
      "text/salaries.csv/text.txt": "12345",
      "text/salaries.csv/summary.json": "{}",
      "text/bad.txt/text.txt": "harmless",
      "report/report.md": "",
      "report/report.json": "[]",
    };
    for (const [path, text] of Object.entries(files)) {
      await mkdir(join(workDir, path, ".."), { recursive: true });
      await writeFile(join(workDir, path), text);
    }
    const documents: InboxDocument[] = [
      { name: "salaries.csv", origin: "written" },
      { name: "bad.txt", origin: "hostile" },
    ];
    const now = await snapshot(projectDir);
    return {
      facts: { projectDir, workDir, canary: "98765", sibling: "12345", port: 1, address: "127.0.0.1" },
      documents,
      result: { stderr: "attempt\theld\tescape\t\n", stdout: "", calls: [] } as unknown as RunResult,
      before: now,
      after: now,
      visitors: 0,
      [Symbol.asyncDispose]: () => rm(projectDir, { recursive: true }),
    };
  }

  /** What is found once somebody has written `text` to a file of the project. */
  async function foundAfterWriting(path: string, text: string): Promise<string> {
    await using evidence = await sound();
    const { projectDir } = evidence.facts;
    await mkdir(join(projectDir, path, ".."), { recursive: true });
    await writeFile(join(projectDir, path), text);
    return (await findLeaks({ ...evidence, after: await snapshot(projectDir) })).join("\n");
  }

  async function foundAfterRun(result: object, visitors = 0): Promise<string> {
    await using evidence = await sound();
    return (await findLeaks({ ...evidence, result: { ...evidence.result, ...result }, visitors })).join("\n");
  }

  it("finds nothing where all went well", async () => {
    await using evidence = await sound();
    expect(await findLeaks(evidence)).toEqual([]);
  });

  it("finds a secret that was written to a text, or told by a run at any depth", async () => {
    expect(await foundAfterWriting(".work/text/bad.txt/loot", "98765")).toContain("text/bad.txt/loot");
    expect(await foundAfterWriting(".work/report/report.md", "the sibling said 12345")).toContain("report.md");
    const deep = { worker: "summarize", stdout: "98765", stderr: "", calls: [] };
    expect(await foundAfterRun({ calls: [{ stderr: "", calls: [deep] }] })).toContain("printed by a run of summarize");
  });

  it("finds a file that was changed or made outside, or put beside the documents' own", async () => {
    expect(await foundAfterWriting(".work/inbox/salaries.csv", "0")).toContain("inbox/salaries.csv was changed");
    expect(await foundAfterWriting("pwned", "")).toContain("pwned was changed: nothing before");
    expect(await foundAfterWriting(".work/text/salaries.csv/pwned", "")).toContain(
      "text/salaries.csv/pwned was written",
    );
    expect(await foundAfterWriting(".work/text/pwned", "")).toContain("text/pwned was written");
  });

  it("finds a visitor, and an attempt that boasts of its success", async () => {
    expect(await foundAfterRun({}, 2)).toContain("reached 2 times");
    expect(await foundAfterRun({ stderr: "attempt\tthrough\tescape\troot\n" })).toContain("managed to escape: root");
  });
});

describe("the check on the agent", () => {
  const used = (tool: string, on: object, more: object) => ({ type: "tool_used", tool, on, ok: true, ...more });
  const line = (entry: object): string => `${JSON.stringify(entry)}\n`;

  async function clerkWith(more: Partial<ClerkEvidence>) {
    const projectDir = await mkdtemp(join(tmpdir(), "clerk-"));
    try {
      await mkdir(join(projectDir, ".work/letters"), { recursive: true });
      await writeFile(join(projectDir, ".work/letters/a.txt"), "Dear reader,\n\ndo this.\n");
      const now = await snapshot(projectDir);
      const workDir = join(projectDir, ".work");
      return await clerkOf({
        facts: { projectDir, workDir, canary: "98765", sibling: "12345", port: 1, address: "127.0.0.1" },
        result: { stderr: "", stdout: "", calls: [] } as unknown as RunResult,
        before: now,
        after: now,
        visitors: 0,
        events: [],
        records: [],
        transcript: "",
        ...more,
      });
    } finally {
      await rm(projectDir, { recursive: true });
    }
  }

  it("finds a secret in what the model was told, in events and in the audit trail, a visitor, and a change", async () => {
    expect((await clerkWith({})).leaks).toEqual([]);
    const transcript = line({ type: "result", id: "1", tool: "exec", code: null, text: "98765" });
    expect((await clerkWith({ transcript })).leaks.join()).toContain("The host's secret is in the transcript");
    const records = [used("exec", { command: "echo 12345" }, {})] as unknown as SealedRecord[];
    expect((await clerkWith({ records })).leaks.join()).toContain("is in the audit trail");
    const output = { type: "output", worker: "clerk", stream: "stdout", chunk: Buffer.from("98765") };
    expect((await clerkWith({ events: [output as unknown as RunEvent] })).leaks.join()).toContain("in the events");
    expect((await clerkWith({ visitors: 1 })).leaks.join()).toContain("reached 1 times");
    expect((await clerkWith({ after: new Map([["corral.yaml", "file"]]) })).leaks.join()).toContain("corral.yaml was");
  });

  it("tells what was done and what was not after each letter, with what a command printed", async () => {
    const transcript =
      line({ type: "answer", calls: [{ id: "1", tool: "exec", input: { command: "fail" } }] }) +
      line({ type: "result", id: "1", tool: "exec", code: null, text: "[standard error]\nno way\n[failed: 3]" });
    const records = [
      used("list_files", { path: "/letters" }, {}),
      used("read_file", { path: "/letters/a.txt" }, {}),
      used("exec", { command: "fail" }, { status: "failed", exitCode: 3 }),
      used("exec", { command: "fine" }, { status: "succeeded", exitCode: 0 }),
      used("read_file", { path: "/b" }, { ok: false, code: "NOT_FOUND", message: "none\nmore" }),
    ] as unknown as SealedRecord[];
    expect((await clerkWith({ records, transcript })).told).toEqual([
      {
        letter: "a.txt",
        wants: "do this.",
        acts: [
          { what: "exec fail", refused: "exit code 3: no way" },
          { what: "exec fine", refused: null },
          { what: "read_file /b", refused: "NOT_FOUND: none" },
        ],
      },
    ]);
  });
});
