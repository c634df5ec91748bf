import { describe, expect, it } from "vitest";
import type { FleetJob } from "../../../src/fleet/items/item-job.ts";
import type { ItemRequest } from "../../../src/fleet/model/item.ts";
import type { AskedElsewhere } from "../../../src/fleet/model/work.ts";
import { fleetPermission } from "../../../src/fleet/running/fleet-parts.ts";
import { decidedHere, judgedQuestion } from "../../../src/fleet/running/machine-questions.ts";
import { answerText, parsedAnswer } from "../../../src/fleet/stored/rows.ts";
import { SPEC } from "../../fleet/fleet-fixture.ts";
import { personWho } from "../../run/grants/person.ts";
import { memoryEngine } from "../../run/memory-engine.ts";
import { openProject } from "../../run/project-fixture.ts";

const ITEM: ItemRequest = { index: 0, key: "k", place: "", attachments: [], fields: {} };
const NARROWED: ItemRequest = { ...ITEM, allowWrite: ["/out/k"] };
const signal = new AbortController().signal;
const ask = { write: "ask", delete: "ask" };

/** A fleet of `root`, which calls `helper` with consent, which calls `deep` without. */
async function coordinator(...answers: ("once" | "tree" | "no")[]) {
  const person = personWho(...answers);
  const project = await openProject(
    {
      policy: "default",
      sandbox: {
        network: { allow: ["one.example:443"], dynamic: { within: ["*.example:443"] } },
        zones: {
          data: { path: "./data" },
          out: { path: "./out", mode: "rw", approval: ask },
          other: { path: "./other", mode: "rw" },
        },
      },
      files: { "data/a": "a", "out/.keep": "", "other/x": "x" },
      yaml: { approval: { rules: [{ operation: "exec", command: "rm **", decide: "deny", why: "never" }] } },
      workers: {
        root: {
          command: ["w"],
          calls: ["helper"],
          sandbox: {
            approval: { call: "ask" },
            zones: [{ name: "data" }, { name: "out", mode: "rw", approval: ask }],
            network: { allow: ["one.example:443"], dynamic: { within: ["*.example:443"] } },
          },
        },
        helper: {
          command: ["w"],
          calls: ["deep"],
          shell_rules: { default: "ask", rules: [{ pattern: "curl **", approval: "blocked" }] },
          sandbox: { inherit: true },
        },
        deep: { command: ["w"], sandbox: { zones: [{ name: "data" }] } },
        stranger: { command: ["w"], sandbox: { inherit: true } },
      },
    },
    { engine: memoryEngine({ programs: { w: async () => 0 } }).open, person },
  );
  const run = project.corral.environment;
  const permission = await fleetPermission({ ...SPEC, worker: "root" }, run);
  if (!permission.ok) throw new Error(JSON.stringify(permission));
  const { worker, caller, sandbox } = permission;
  const job: FleetJob = { worker, caller, sandbox, reads: ["/"], env: run };
  const asked = (question: object, number = 0): AskedElsewhere => ({
    ...{
      fleet: "f",
      index: 0,
      attempt: 1,
      number,
      request: JSON.stringify(question).includes("/out") ? NARROWED : ITEM,
      run: "aaaaaaaaaaaa",
      machine: "mallory",
    },
    json: typeof question === "string" ? question : JSON.stringify(question),
  });
  const troubles: string[] = [];
  return {
    person,
    troubles,
    judge: async (question: object) => await judgedQuestion(asked(question), job),
    decide: async (question: object, number = 0) =>
      await decidedHere(job, (detail) => void troubles.push(detail))(asked(question, number), signal),
    [Symbol.asyncDispose]: () => project[Symbol.asyncDispose](),
  };
}

const chain = { worker: "helper", through: ["root", "helper"] };
const exec = (line: string, command = line) => ({ ...chain, operations: ["exec"], paths: [], command, line });

const CALL = { worker: "root", operations: ["call"], paths: [], callee: "helper" };
const HOST = { worker: "root", operations: ["grant_network"], paths: [], to: "two.example:443" };

describe("a question that a machine has forged", () => {
  it.each<[string, object | string, RegExp]>([
    ["no JSON", "{", /not that of a question/],
    ["an unknown key", { ...exec("ls"), session: true }, /not that of a question/],
    ["a run of its own choice", { ...exec("ls"), run: "bbbbbbbbbbbb" }, /not that of a question/],
    ["an operation that does not exist", { ...chain, operations: ["sudo"], paths: [] }, /not that of a question/],
    ["no answer for once", { ...exec("ls"), lastingOnly: true }, /not that of a question/],
    ["a call that is shown as a command", { ...CALL, command: "ls" }, /no `command`/],
    ["a call that is shown as a host", { ...CALL, to: "one.example:443" }, /no `to`/],
    ["a call with a change", { ...CALL, diff: "+fine" }, /no `diff`/],
    ["a command that is shown as a call", { ...exec("ls"), callee: "helper" }, /no `callee`/],
    ["a command with an input", { ...exec("ls"), input: "{}" }, /no `input`/],
    ["a host that is shown as a command", { ...HOST, command: "ls" }, /no `command`/],
    ["a host that is shown as a path", { ...HOST, paths: ["/data/a"] }, /no `paths`/],
    ["a host that is shown as a call", { ...HOST, callee: "helper" }, /no `callee`/],
    [
      "reading that is shown as a host",
      { worker: "root", operations: ["read"], paths: ["/data"], to: "a:1" },
      /no `to`/,
    ],
    [
      "a change that is shown as a command",
      { ...chain, operations: ["write"], paths: ["/out/k/a"], command: "ls" },
      /no `command`/,
    ],
    [
      "a worker of another fleet",
      { ...exec("ls"), worker: "stranger", through: ["stranger"] },
      /the item is of worker root/,
    ],
    [
      "a worker that is not called",
      { ...exec("ls"), worker: "stranger", through: ["root", "stranger"] },
      /does not call stranger/,
    ],
    [
      "a worker that is called by another one",
      { ...exec("ls"), worker: "deep", through: ["root", "deep"] },
      /root does not call deep/,
    ],
    ["a circle", { ...exec("ls"), worker: "root", through: ["root", "helper", "root"] }, /twice/],
    ["a worker that is not the last", { ...exec("ls"), worker: "root" }, /not the last/],
    ["another line than is shown", exec("rm -rf /data", "ls"), /not what would run/],
    ["a blocked command", exec("curl x"), /blocked/],
    ["a command without its line", { ...exec("ls"), line: undefined }, /no command is named/],
    [
      "a change of the item itself",
      { worker: "root", operations: ["write"], paths: ["/out/k/a"], diff: "+fine" },
      /at its end/,
    ],
    ["a change of a called worker elsewhere", { ...chain, operations: ["write"], paths: ["/other/x"] }, /not writable/],
    ["a change out of its folder", { ...chain, operations: ["delete"], paths: ["/out/k2/a"] }, /not writable/],
    ["a change on a way up", { ...chain, operations: ["write"], paths: ["/out/k/../x"] }, /not writable/],
    ["a change of nothing", { ...chain, operations: ["write"], paths: [] }, /no path/],
    [
      "a call of a worker that is not listed",
      { worker: "root", operations: ["call"], callee: "deep", paths: [] },
      /does not call deep/,
    ],
    ["a directory", { worker: "root", operations: ["grant_read"], paths: ["/etc"] }, /not possible/],
    ["a directory to write", { worker: "root", operations: ["grant_write"], paths: ["/other"] }, /not possible/],
    ["a push", { worker: "root", operations: ["push"], paths: ["/x"] }, /not possible/],
    ["a host, for an item with limits of its own", { ...HOST, why: "/out" }, /limits/],
    ["a host outside", { worker: "root", operations: ["grant_network"], paths: [], to: "evil.test:443" }, /within/],
    [
      "a host that it reaches",
      { worker: "root", operations: ["grant_network"], paths: [], to: "one.example:443" },
      /already reaches/,
    ],
    [
      "a host for a worker that may ask for none",
      { ...chain, operations: ["grant_network"], paths: [], to: "two.example:443" },
      /dynamic/,
    ],
    ["reading what is open", { worker: "root", operations: ["read"], paths: ["/data"] }, /no approval/],
    ["two things at once", { ...exec("ls"), operations: ["exec", "call"] }, /together/],
  ])("reaches no person with %s", async (_, question, why) => {
    await using c = await coordinator("tree");
    expect(await c.judge(question as object)).toMatchObject({ ok: false, why: expect.stringMatching(why) });
    expect(await c.decide(question as object)).toMatchObject({ outcome: "denied", reason: expect.stringMatching(why) });
    expect(c.person.asked).toEqual([]);
    expect(c.troubles).toHaveLength(1);
    // It may ask for ever.
    await c.decide(question as object, 1);
    expect(c.troubles).toHaveLength(1);
  });

  it("is about the item's own run and names the machine, whatever it says", async () => {
    await using c = await coordinator("once", "no", "once");
    expect(await c.decide({ ...HOST, why: "updates" })).toMatchObject({ outcome: "approved", scope: "once" });
    expect(await c.decide({ ...CALL, input: "{}" })).toMatchObject({ outcome: "denied" });
    expect(await c.decide(exec("ls -l"))).toMatchObject({ outcome: "approved" });
    expect(c.person.asked).toMatchObject([
      {
        run: "aaaaaaaaaaaa",
        root: "aaaaaaaaaaaa",
        machine: "mallory",
        reaches: ["one.example:443"],
        to: "two.example:443",
      },
      { run: "aaaaaaaaaaaa", callee: "helper", machine: "mallory" },
      { run: "aaaaaaaaaaaa", worker: "helper", through: ["root", "helper"], command: "ls -l" },
    ]);
  });

  it("is decided by the rules of the coordinator first", async () => {
    await using c = await coordinator("once");
    expect(await c.decide(exec("rm -rf /data"))).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("never"),
    });
    expect(c.person.asked).toEqual([]);
  });
});

describe("an answer in the queue", () => {
  const answer = answerText("the question", { outcome: "approved", scope: "session", reason: "fine", by: "ada" });

  it("is for its question alone, and never for longer than a tree of runs", () => {
    expect(parsedAnswer("the question", answer)).toEqual({
      outcome: "approved",
      scope: "tree",
      reason: "fine",
      by: "ada",
    });
    expect(parsedAnswer("another question", answer)).toBe(null);
  });

  it.each([
    ["{"],
    ["true"],
    [answer.replace('"tree"', '"session"')],
    [answer.replace("}", ',"directory":"/etc"}')],
    [answer.replace("approved", "yes")],
  ])("is none if it is %s", (text) => {
    expect(parsedAnswer("the question", text)).toBe(null);
  });
});
