import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, sh, writable } from "../project-fixture.ts";

/** Asks for a tool by plain curl: the answer on one line, and its HTTP status on the next. */
const TOOL = `tool() { curl -s --unix-socket "$CORRAL_SOCKET" -d "$2" -w '%{http_code}\\n' "http://corral/v1/tools/$1"; }`;

const BASE = {
  sandbox: { zones: [{ name: "docs" }, writable("out")] },
  shell_rules: { default: "pre_approved" },
  output: "text",
};

async function opened(script: string, more: Readonly<Record<string, unknown>> = {}): Promise<ProjectFixture> {
  return await openProject({
    workers: {
      w: { ...BASE, command: sh(`${TOOL}; ${script}`), ...more },
      fails: { command: sh("exit 4"), sandbox: {} },
      kid: { command: sh("cat /attachments/a.txt"), sandbox: { zones: [{ name: "docs" }] } },
    },
    zones: { docs: "ro", out: "rw" },
    files: { "docs/a.txt": "a document\n" },
  });
}

interface Answer {
  readonly status: number;
  readonly body: { readonly [name: string]: unknown; readonly data?: Readonly<Record<string, unknown>> };
}

/** The answers in the order in which a worker printed them. */
function answersIn(stdout: string): Answer[] {
  const lines = stdout.trim().split("\n");
  return lines.flatMap((line, index) =>
    index % 2 === 1 ? [{ status: Number(line), body: JSON.parse(lines[index - 1] ?? "") }] : [],
  );
}

describe("the tools at a run's socket", () => {
  it("act on its files, under its own sandbox", async () => {
    await using project = await opened(`
      tool write_file '{"path":"/out/x","content":"by tool"}'
      tool read_file '{"path":"/docs/a.txt"}'
      tool list_files '{}'
      tool write_file '{"path":"/docs/x","content":""}'
      cat /out/x >&2`);
    const { stdout, stderr } = await project.run("w");
    const [wrote, read, listed, refused] = answersIn(stdout);
    expect(wrote).toMatchObject({ status: 200, body: { ok: true, data: { path: "/out/x", bytes: 7 } } });
    expect(read).toMatchObject({ status: 200, body: { ok: true, text: "a document\n" } });
    expect(listed?.body.text).toBe("/docs/\n/out/");
    expect(refused).toMatchObject({ status: 403, body: { code: "PATH_NOT_WRITABLE", path: "/docs/x" } });
    expect(refused?.body.message).toContain("Writable paths: /out");
    expect(stderr).toBe("by tool");
    expect(stdout).not.toContain(project.dir);
    // No command was run: there was the worker's own cell, and no other.
    expect(project.events.filter((event) => event.type === "started")).toHaveLength(1);
  });

  it("run commands in a cell of their own, which the worker's programs are not in", async () => {
    await using project = await opened(`
      touch /tmp/mine; sleep 4731 > /dev/null 2>&1 &
      tool exec '{"command":"ls /tmp; cat /proc/[0-9]*/cmdline | tr -d \\"\\\\0\\"; echo by exec > /out/x; exit 3"}'
      cat /out/x >&2`);
    const { stdout, stderr } = await project.run("w");
    const [ran] = answersIn(stdout);
    expect(ran).toMatchObject({ status: 200, body: { ok: true, data: { status: "failed", exitCode: 3 } } });
    expect(ran?.body.data?.stdout).not.toMatch(/mine|4731/);
    expect(stderr).toBe("by exec\n");
    expect(await project.traces()).toEqual([]);
  });

  it.each([
    ["no_such_tool", "{}", 404, "NO_SUCH_TOOL", /The tools are: read_file, write_file/],
    ["Read-File", "{}", 404, "NO_SUCH_ROUTE", /POST \/v1\/tools\/NAME/],
    ["read_file", "{", 400, "BAD_REQUEST", /not JSON/],
    ["read_file", '{"path":3}', 400, "BAD_INPUT", /expected string[\s\S]*→ at path/],
    ["read_file", '{"path":"/docs","as":"root"}', 400, "BAD_INPUT", /Unrecognized key: "as"/],
    ["read_file", '{"path":"/etc/passwd"}', 403, "PATH_NOT_IN_SANDBOX", /Readable paths: \/docs, \/out/],
    ["exec", '{"command":"true","cwd":"/etc"}', 403, "BAD_DIRECTORY", /outside the sandbox/],
  ])("answer %s of %s with %i and %s", async (name, input, status, code, message) => {
    await using project = await opened(`tool ${name} '${input}'`);
    const [answer] = answersIn((await project.run("w")).stdout);
    expect(answer).toMatchObject({ status, body: { code } });
    expect(answer?.body.message).toMatch(message);
  });

  it("call only workers that are listed, and hand on what may be read", async () => {
    const script = `
      tool call_worker '{"worker":"kid","attachments":["/docs/a.txt"]}'
      tool call_worker '{"worker":"other"}'
      tool call_worker '{"worker":"kid","attachments":["/etc/passwd"]}'
      tool call_worker '{"worker":"fails"}'`;
    await using project = await opened(script, { calls: ["kid", "fails"] });
    const result = await project.run("w");
    const [called, notListed, notReadable, failed] = answersIn(result.stdout);
    expect(called).toMatchObject({ status: 200, body: { text: "a document\n", data: { status: "succeeded" } } });
    expect(notListed).toMatchObject({ status: 403, body: { code: "CALL_NOT_LISTED", status: "refused" } });
    expect(notReadable).toMatchObject({ status: 403, body: { code: "ATTACHMENT_REFUSED" } });
    // One that ran and failed is no refusal.
    expect(failed).toMatchObject({ status: 200, body: { ok: false, code: "FAILED", data: { exitCode: 4 } } });
    expect(result.calls.map(({ worker, status }) => `${worker} ${status}`)).toEqual([
      "kid succeeded",
      "other refused",
      "kid refused",
      "fails failed",
    ]);
  });

  it("end with the run, whatever they are at", async () => {
    await using project = await opened(`
      tool exec '{"command":"echo begun > /out/begun; sleep 1; echo late > /out/late; sleep 60"}' > /dev/null &
      until [ -e /out/begun ]; do sleep 0.05; done`);
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
    expect(await project.traces()).toEqual([]);
    expect(await readdir(join(project.dir, "out"))).toEqual(["begun"]);
  });

  it("run a command no longer than the run itself may last", async () => {
    await using project = await opened(`tool exec '{"command":"sleep 60","timeout_ms":60000}'; sleep 60`, {
      limits: { timeout: "2s" },
    });
    expect(await project.run("w")).toMatchObject({ status: "timed_out" });
    expect(await project.traces()).toEqual([]);
  });

  it("offer a command no second one to wait for: it would wait for itself", async () => {
    const inner = `curl -s --unix-socket \\"$CORRAL_SOCKET\\" -d @/out/inner http://corral/v1/tools/exec; curl -s --unix-socket \\"$CORRAL_SOCKET\\" http://corral/v1/sandbox > /out/view`;
    await using project = await opened(`
      echo '{"command":"true"}' > /out/inner
      tool exec '{"command":"${inner}","timeout_ms":5000}'`);
    const [answer] = answersIn((await project.run("w")).stdout);
    expect(answer?.body.data).toMatchObject({ status: "succeeded" });
    expect(JSON.parse(String(answer?.body.data?.stdout))).toMatchObject({ code: "EXEC_WITHIN_EXEC" });
    const view = JSON.parse(await readFile(join(project.dir, "out/view"), "utf8"));
    expect(view).toMatchObject({ worker: "w", readablePaths: ["/docs", "/out"], writablePaths: ["/out"] });
  });
});
