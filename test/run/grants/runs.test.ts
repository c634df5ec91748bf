import { chown, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Approver } from "../../../src/approval/approver.ts";
import { callbackApprover } from "../../../src/approval/queued-approver.ts";
import { openProject, type ProjectFixture, sh, WORKER_UID, type WorkerSpec } from "../project-fixture.ts";
import { makeHostFolder } from "./host-folder.ts";
import { personWho } from "./person.ts";

/** Asks at the run's socket; prints the answer on one line. */
const ASK = `ask() { curl -s --unix-socket "$CORRAL_SOCKET" -d "$2" "http://corral/v1/$1"; }`;

let host = "";
let opened: ProjectFixture | null = null;

beforeEach(async () => {
  host = await makeHostFolder();
  await mkdir(join(host, "src"));
  await writeFile(join(host, "src/a"), "A\n");
  for (const path of ["src", "src/a"]) await chown(join(host, path), WORKER_UID, WORKER_UID);
});

afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
  await rm(host, { recursive: true, force: true });
});

const worker = (
  script: string,
  more: WorkerSpec = {},
  sandbox: Readonly<Record<string, unknown>> = {},
): WorkerSpec => ({
  command: sh(`${ASK}; SRC=${join(host, "src")}; ${script}`),
  sandbox: { dynamic: true, ...sandbox },
  ...more,
});

async function open(person: Approver, workers: Readonly<Record<string, WorkerSpec>>): Promise<ProjectFixture> {
  opened = await openProject(
    { workers, zones: { inbox: "ro", out: "rw" }, files: { "inbox/a.txt": "a document\n" } },
    { person },
  );
  return opened;
}

const READ = `ask tools/read_file '{"path":"'$SRC'/a"}'`;

/** What a worker printed, an answer a line. */
function answersIn(stdout: string): Record<string, unknown>[] {
  return stdout
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
}

describe("a request of a called worker", () => {
  it("is one question for the whole chain, and every caller that lacked it has it afterwards", async () => {
    const person = personWho("session");
    const project = await open(person, {
      root: worker(`corral-call middle; ${READ}`, { calls: ["middle"] }),
      middle: worker(`corral-call leaf; ${READ}`, { calls: ["leaf"] }),
      leaf: worker(READ),
    });
    const result = await project.run("root");
    const answers = answersIn(result.stdout);
    expect(answers.map(({ text }) => String(text).split("\n")[0])).toEqual(["A", "A", "A"]);
    expect(person.asked).toMatchObject([
      { worker: "leaf", operations: ["grant_read"], directory: join(host, "src"), through: ["root", "middle", "leaf"] },
    ]);
  });

  it("is told to whoever asks what the run may do, for as long as it has it", async () => {
    const look = `curl -s --unix-socket "$CORRAL_SOCKET" http://corral/v1/sandbox`;
    const project = await open(personWho("session"), { root: worker(`${look}; ${READ}; ${look}`) });
    const [before, , after] = answersIn((await project.run("root")).stdout);
    expect(before).toMatchObject({ granted: [], readablePaths: [] });
    expect(after).toMatchObject({ granted: [{ path: join(host, "src"), mode: "read" }], readablePaths: [] });
  });

  it("is refused where a caller is not dynamic, which is named, and nobody is asked", async () => {
    const person = personWho("session");
    const project = await open(person, {
      root: worker("corral-call leaf", { calls: ["leaf"] }, { dynamic: false }),
      leaf: worker(READ),
    });
    const [answer] = answersIn((await project.run("root")).stdout);
    expect(answer).toMatchObject({ code: "GRANT_NOT_DYNAMIC" });
    expect(answer?.message).toContain("The worker 'root', through which it would come,");
    expect(person.asked).toEqual([]);
  });

  it("is granted from the caller that has it, dynamic or not", async () => {
    const person = personWho("session");
    const project = await open(person, {
      root: worker("corral-call leaf", { calls: ["leaf"] }, { dynamic: false, zones: [{ name: "inbox" }] }),
      leaf: worker(`ask tools/read_file '{"path":"/inbox/a.txt"}'`),
    });
    const [answer] = answersIn((await project.run("root")).stdout);
    expect(answer).toMatchObject({ ok: true });
    expect(person.questions()).toEqual(["grant_read /inbox"]);
  });

  it("goes nowhere past what its caller took away for that call", async () => {
    const person = personWho("session");
    const zones = [{ name: "inbox" }, { name: "out" }];
    const project = await open(person, {
      root: worker("corral-call leaf --allow-read /out", { calls: ["leaf"] }, { zones }),
      leaf: worker(`ask tools/read_file '{"path":"/inbox/a.txt"}'`, {}, { inherit: true }),
    });
    const [answer] = answersIn((await project.run("root")).stdout);
    expect(answer).toMatchObject({ code: "GRANT_LIMITED_CALL" });
    expect(person.asked).toEqual([]);
  });

  it("for writing lands in its caller's view first, and on the host when all has ended well", async () => {
    const project = await open(personWho("session"), {
      root: worker(`corral-call leaf; ${READ}; test ! -e $SRC/new`, { calls: ["leaf"] }),
      leaf: worker(`ask tools/write_file '{"path":"'$SRC'/new","content":"made"}'`),
    });
    const result = await project.run("root");
    expect(result, JSON.stringify(result)).toMatchObject({ status: "succeeded" });
    expect(result.changes).toMatchObject([{ path: join(host, "src/new"), outcome: "applied" }]);
    expect(await readFile(join(host, "src/new"), "utf8")).toBe("made");
  });
});

describe("access that a command worker asks for at its socket", () => {
  it("is there for tools, for exec and for whom it calls later, and not for its own container", async () => {
    const person = personWho("tree");
    const project = await open(person, {
      root: worker(
        `ask access '{"path":"'$SRC'/a","mode":"read"}'; cat $SRC/a 2>/dev/null && echo SEEN
        ask tools/exec '{"command":"cat '$SRC'/a"}'; corral-call leaf`,
        { calls: ["leaf"], shell_rules: { default: "pre_approved" } },
      ),
      leaf: worker("echo leaf: $(cat $SRC/a)", {}, { inherit: true }),
    });
    const { stdout } = await project.run("root");
    const [access, exec] = answersIn(stdout);
    expect(access).toMatchObject({ granted: true, path: join(host, "src"), mode: "read", scope: "tree" });
    expect(person.asked).toMatchObject([{ directory: join(host, "src"), lastingOnly: true }]);
    expect(access?.note).toContain("This container does not show it");
    expect(exec).toMatchObject({ text: "A\n" });
    expect(stdout).toContain("leaf: A");
    expect(stdout).not.toContain("SEEN");
  });

  it("is refused in words, with a code, and a request that is none is told so", async () => {
    const project = await open(personWho("no", "once"), {
      root: worker(`for path in $SRC $SRC /etc '' 'a\\u0000b'; do ask access '{"path":"'$path'"}'; done
        ask access '{"path":"/inbox","mode":"all"}'; ask access '[]'`),
    });
    const answers = answersIn((await project.run("root")).stdout);
    expect(answers.map(({ code }) => code)).toEqual([
      "APPROVAL_DENIED",
      "GRANT_FOR_ONE_OPERATION",
      "GRANT_RESERVED",
      "BAD_REQUEST",
      "PATH_NOT_IN_SANDBOX",
      "BAD_REQUEST",
      "BAD_REQUEST",
    ]);
  });
});

describe("what was agreed to for the session", () => {
  it("is granted to a later run of the same worker without a question", async () => {
    let questions = 0;
    const approver = callbackApprover(
      async () => {
        questions += 1;
        return "session" as const;
      },
      { timeoutMs: 60_000 },
    );
    const project = await open(approver, { root: worker(READ) });
    for (const _ of [1, 2]) {
      const [answer] = answersIn((await project.run("root")).stdout);
      expect(answer).toMatchObject({ ok: true });
    }
    expect(questions).toBe(1);
  });
});
