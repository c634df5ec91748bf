import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSession } from "../../src/run/open-session.ts";
import { type Person, personWho } from "../run/grants/person.ts";
import { openProject, type ProjectFixture, sh } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

const signal = new AbortController().signal;

describe("a directory whose reading needs consent", () => {
  let project: ProjectFixture;
  let person: Person;

  beforeAll(async () => {
    person = personWho("no");
    const zones = { open: { path: "./open" }, asks: { path: "./asks", approval: { read: "ask" } } };
    const ask = (route: string, body: object) =>
      `curl -s --unix-socket "$CORRAL_SOCKET" -d '${JSON.stringify(body)}' http://corral/v1/${route}`;
    const tries = [
      ask("tools/read_file", { path: "/asks/a" }),
      ask("tools/copy_file", { from: "/asks/a", to: "/open/b" }),
      ask("tools/list_files", { path: "/", pattern: "**" }),
      ask("access", { path: "/asks" }),
      ask("tools/exec", { command: "cat /asks/a /open/../asks/a; grep asks /proc/self/mountinfo" }),
      ask("calls", { worker: "all", attachments: ["/asks/a"] }),
      ask("calls", { worker: "all" }),
    ];
    project = await openProject(
      {
        workers: {
          tries: { command: sh(tries.join("; echo; ")), sandbox: { allow_read: ["/open"] }, calls: ["all"] },
          all: { command: sh("cat /asks/a /attachments/* 2>/dev/null"), sandbox: { inherit: true } },
          hands: { command: ["true"], sandbox: { inherit: true }, shell_rules: { default: "pre_approved" } },
        },
        sandbox: { zones },
        files: { "open/a": "open\n", "asks/a": "SECRET\n" },
      },
      { person },
    );
  });

  afterAll(async () => {
    await project[Symbol.asyncDispose]();
  });

  // Each of these tries is answered on the host.
  it.skipIf(isAgain())("is reached by no tool, command, call or request of a run that was not agreed to", async () => {
    const tried = await project.run("tries");
    expect(tried.status).toBe("succeeded");
    expect(JSON.stringify(tried)).not.toContain("SECRET");
    expect(await project.run("all")).toMatchObject({ status: "refused", violations: [{ code: "READ_NOT_APPROVED" }] });
  });

  it("is in the container of commands from the moment of the consent, and not before", async () => {
    person.answers = ["no", "tree"];
    const worker = project.corral.project.workers.get("hands");
    if (worker === undefined) throw new Error("no worker");
    const made = await openSession({ worker, signal }, project.corral.environment);
    if (!made.ok) throw new Error(JSON.stringify(made.violations));
    await using opened = made;
    const exec = async () => {
      const result = await opened.session.runTool("exec", { command: "cat /asks/a; ls /" }, signal);
      return JSON.stringify(result);
    };
    expect(await exec()).not.toMatch(/SECRET|asks\\n/);
    const read = () => opened.session.runTool("read_file", { path: "/asks/a" }, signal);
    expect(await read()).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(await exec()).not.toContain("SECRET");
    expect(await read()).toMatchObject({ ok: true, text: expect.stringContaining("new container that shows it") });
    expect(await exec()).toContain("SECRET");
  });
});
