import { beforeAll, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/index.ts";
import { watchCells } from "./cells-made.ts";
import {
  openProject,
  type ProjectFixture,
  type ProjectSpec,
  sh,
  type WorkerSpec,
  writable,
} from "./project-fixture.ts";

/** What the caller got for one request at its socket. */
interface Told {
  readonly http: number;
  readonly answer: {
    readonly code: string;
    readonly message: string;
    readonly violations: readonly { code: string; message: string }[];
  };
}

/** Sends each request of its input to its own socket with plain curl, and prints the answers as one JSON list. */
const ASKING = sh(`jq -c '.[]' | while read -r request; do
  printf '%s' "$request" | curl -s --unix-socket "$CORRAL_SOCKET" -w '\\n%{http_code}\\n' --data-binary @- http://corral/v1/calls
done | jq -s '[range(0; length; 2) as $i | {http: .[$i + 1], answer: .[$i]}]'`);

const DOCS = { zones: [{ name: "docs" }] };

function spec(kids: Readonly<Record<string, WorkerSpec>>): ProjectSpec {
  const boss = {
    command: ASKING,
    output: "json",
    calls: Object.keys(kids),
    sandbox: DOCS,
    limits: { memory: "128m", timeout: "30s" },
  };
  return {
    workers: { boss, stranger: { command: sh("echo stranger") }, ...kids },
    zones: { docs: "ro", other: "rw" },
    files: { "docs/a.txt": "A", "other/secret.txt": "S" },
  };
}

/** Runs `boss` with these requests; answers with what it was told, after checking that no other cell was made. */
async function ask(
  project: ProjectFixture,
  requests: readonly unknown[],
): Promise<{ told: Told[]; result: RunResult }> {
  using made = watchCells(project);
  const result = await project.run("boss", { input: requests });
  expect(result, result.stderr).toMatchObject({ status: "succeeded" });
  expect(await made.runs(result.run)).toEqual([result.run]);
  const shown = JSON.stringify(result);
  for (const hostPath of [project.dir, project.stateDir, "/var/lib/docker"]) expect(shown).not.toContain(hostPath);
  return { told: result.output as Told[], result };
}

const KIDS: Readonly<Record<string, WorkerSpec>> = {
  writer: { command: sh(":"), sandbox: { zones: [{ name: "docs", mode: "rw", approval: "pre_approved" }] } },
  prefix: { command: sh(":"), sandbox: { allow_write: ["/docs/a"] } },
  reader: { command: sh(":"), sandbox: { zones: [{ name: "other" }] } },
  online: { command: sh(":"), sandbox: { network: true } },
  picky: { command: sh(":"), sandbox: { network: { allow: ["example.org:443"] } } },
  weak: { command: sh(":"), policy: "default" },
  large: { command: sh(":"), limits: { memory: "129m" } },
  long: { command: sh(":"), limits: { timeout: "31s" } },
  plain: { command: sh(":") },
};

/** What is asked, and the code of what is refused. All of it is asked by one run. */
const ESCALATIONS: readonly [string, { worker: string; attachments?: readonly unknown[] }, string][] = [
  ["to write where the caller reads", { worker: "writer" }, "WRITE_NOT_AVAILABLE"],
  ["to write below what the caller reads", { worker: "prefix" }, "WRITE_NOT_AVAILABLE"],
  ["for a mount that the caller lacks", { worker: "reader" }, "MOUNT_NOT_AVAILABLE"],
  ["for the network", { worker: "online" }, "NETWORK_NOT_AVAILABLE"],
  ["for a part of the network", { worker: "picky" }, "NETWORK_NOT_AVAILABLE"],
  ["for a weaker policy", { worker: "weak" }, "POLICY_WEAKER"],
  ["for more memory", { worker: "large" }, "LIMIT_TOO_LARGE"],
  ["for more time", { worker: "long" }, "LIMIT_TOO_LARGE"],
  ["for a worker that it may not call", { worker: "stranger" }, "CALL_NOT_LISTED"],
  ["for a worker that there is none of", { worker: "ghost" }, "CALL_NOT_LISTED"],
  ["for itself", { worker: "boss" }, "CALL_NOT_LISTED"],
  [
    "for an attachment from a mount that it lacks",
    { worker: "plain", attachments: ["/other/secret.txt"] },
    "ATTACHMENT_REFUSED",
  ],
  ["for an attachment of the host", { worker: "plain", attachments: ["/etc/passwd"] }, "ATTACHMENT_REFUSED"],
  [
    "for an attachment above its mounts",
    { worker: "plain", attachments: ["/docs/../other/secret.txt"] },
    "ATTACHMENT_REFUSED",
  ],
  [
    "for an attachment that leaves everything",
    { worker: "plain", attachments: ["../../../etc/passwd"] },
    "ATTACHMENT_REFUSED",
  ],
  ["for an attachment of its own socket", { worker: "plain", attachments: ["/.corral/socket"] }, "ATTACHMENT_REFUSED"],
  [
    "for an attachment under a name that leads elsewhere",
    { worker: "plain", attachments: [{ path: "/docs/a.txt", name: "../a" }] },
    "ATTACHMENT_REFUSED",
  ],
  ["for a directory as attachment", { worker: "plain", attachments: ["/docs"] }, "MOUNT_SOURCE_REFUSED"],
  ["for an attachment that is not there", { worker: "plain", attachments: ["/docs/b.txt"] }, "MOUNT_SOURCE_REFUSED"],
];

describe("a call that asks for more than its caller has", () => {
  let told: Told[];
  let result: RunResult;

  beforeAll(async () => {
    await using project = await openProject(spec(KIDS));
    const requests = ESCALATIONS.map(([, request]) => request);
    ({ told, result } = await ask(project, requests));
  });

  it.each(ESCALATIONS.map(([asked, { worker }, code], index) => ({ asked, worker, code, index })))(
    "$asked is refused before any cell is made, and told why",
    ({ worker, code, index }) => {
      const violations = told[index]?.answer.violations ?? [];
      expect(told[index]).toMatchObject({
        http: 403,
        answer: { message: violations.map(({ message }) => message).join("\n") },
      });
      expect(violations.map((violation) => violation.code)).toContain(code);
      expect(violations.every(({ message }) => message.length > 20)).toBe(true);
      expect(result.calls[index]).toMatchObject({ worker, status: "refused", exitCode: null, enforcement: null });
    },
  );

  it("in several ways at once is told all of them", async () => {
    const worst = {
      command: sh(":"),
      policy: "default",
      sandbox: { zones: [{ name: "docs", mode: "rw" }, { name: "other" }], network: true },
      limits: { memory: "1g", pids: 4096 },
    };
    await using project = await openProject(spec({ worst }));
    const { told } = await ask(project, [
      { worker: "worst", attachments: ["/other/secret.txt", "/docs/a.txt", "/etc/shadow"] },
    ]);
    expect(told[0]).toMatchObject({ http: 403, answer: { code: "REFUSED" } });
    const found = told[0]?.answer.violations
      .map(({ code, ...data }) => `${code} ${"limit" in data ? data.limit : ""}`.trim())
      .sort();
    expect(found).toEqual([
      "ATTACHMENT_REFUSED",
      "ATTACHMENT_REFUSED",
      "LIMIT_TOO_LARGE memoryBytes",
      "LIMIT_TOO_LARGE pids",
      "MOUNT_NOT_AVAILABLE",
      "NETWORK_NOT_AVAILABLE",
      "POLICY_WEAKER",
      "WRITE_NOT_AVAILABLE",
    ]);
  });

  it("is told by corral-call on standard error, with exit status 126", async () => {
    const boss = { command: sh("corral-call kid; echo $?"), calls: ["kid"] };
    const kid = { command: sh(":"), sandbox: { zones: [writable("docs")] } };
    await using project = await openProject({ workers: { boss, kid }, zones: { docs: "rw" } });
    const { stdout, stderr } = await project.run("boss");
    expect(stdout).toBe("126\n");
    expect(stderr).toMatch(/^corral-call: The directory 'docs' is not available/);
  });
});

describe("a chain of calls", () => {
  it("is refused at the sixth worker, with the path shown, and not before", async () => {
    const link = (n: number): [string, WorkerSpec] => [
      `w${n}`,
      { command: sh(`corral-call w${n + 1} --json; echo "w${n} $?"`), calls: n < 7 ? [`w${n + 1}`] : [] },
    ];
    await using project = await openProject({ workers: Object.fromEntries([1, 2, 3, 4, 5, 6, 7].map(link)) });
    using made = watchCells(project);
    const result = await project.run("w1");
    let deepest = result;
    for (; deepest.calls[0] !== undefined; deepest = deepest.calls[0]);
    const path = ["w1", "w2", "w3", "w4", "w5", "w6"];
    expect(deepest).toMatchObject({
      worker: "w6",
      status: "refused",
      violations: [{ code: "CALL_TOO_DEEP", path, max: 5 }],
    });
    expect(deepest.error?.message).toContain("w1 -> w2 -> w3 -> w4 -> w5 -> w6");
    expect(await made.runs(result.run)).toHaveLength(5);
  });

  it("is refused where it comes back to a worker, with the path shown", async () => {
    const calling = (other: string): WorkerSpec => ({ command: sh(`corral-call ${other}; echo $?`), calls: [other] });
    await using project = await openProject({ workers: { a: calling("b"), b: calling("a") } });
    using made = watchCells(project);
    const result = await project.run("a");
    expect(result.calls[0]).toMatchObject({
      worker: "b",
      stdout: "126\n",
      calls: [{ worker: "a", status: "refused", violations: [{ code: "CALL_CYCLE", path: ["a", "b", "a"] }] }],
    });
    expect(await made.runs(result.run)).toHaveLength(2);
  });
});

describe("a root run that asks for more than the project has", () => {
  it("is refused, all of it named, and no cell is made", async () => {
    const w = {
      command: sh(":"),
      sandbox: { zones: [writable("docs"), { name: "nothing" }], network: true },
      limits: { memory: "999g" },
    };
    await using project = await openProject({ workers: { w }, zones: { docs: "ro" } });
    using made = watchCells(project);
    const result = await project.run("w");
    expect(result.status).toBe("refused");
    expect(result.violations.map(({ code }) => code).sort()).toEqual([
      "LIMIT_TOO_LARGE",
      "MOUNT_NOT_AVAILABLE",
      "NETWORK_NOT_AVAILABLE",
      "WRITE_NOT_AVAILABLE",
    ]);
    expect(await made.runs(result.run)).toEqual([]);
  });

  it("is judged by what it asks for, where the project gives more than its policy allows", async () => {
    const offline = { command: sh(":") };
    const online = { command: sh(":"), sandbox: { network: true } };
    await using project = await openProject({
      workers: { offline, online },
      sandbox: { network: true, limits: { memory: "999g" } },
    });
    expect(await project.run("offline")).toMatchObject({ status: "succeeded", violations: [] });
    expect(await project.run("online")).toMatchObject({
      status: "refused",
      violations: [{ code: "NETWORK_NOT_AVAILABLE", has: false, by: "policy untrusted" }],
    });
  });
});

describe("a worker's own policy", () => {
  it("holds if the worker is run by itself, and is held against that of a user or a caller", async () => {
    const kid = { command: sh("true"), policy: "ci" };
    const boss = { command: sh("corral-call kid 2>&1 || true"), calls: ["kid"], policy: "untrusted" };
    await using project = await openProject({ workers: { kid, boss } });
    expect(await project.run("kid")).toMatchObject({ status: "succeeded" });
    expect(project.planOf("kid").policy).toBe("ci");
    expect(await project.run("kid", { policy: "untrusted" })).toMatchObject({
      status: "refused",
      violations: [{ code: "POLICY_WEAKER", asked: "ci", has: "untrusted" }],
    });
    expect((await project.run("boss")).calls).toMatchObject([{ violations: [{ code: "POLICY_WEAKER" }] }]);
  });
});
