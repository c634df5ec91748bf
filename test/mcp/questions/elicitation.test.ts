import { access, readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import type { Client, ElicitResult } from "@modelcontextprotocol/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { projectPaths } from "../../../src/state/state-dir.ts";
import { HANDY, HANDY_PROJECT, type McpProject, mcpProject, textOf } from "../mcp-project.ts";

let mcp: McpProject;

beforeAll(async () => {
  const asks = { name: "out", mode: "rw" };
  const { sandbox } = HANDY_PROJECT.yaml;
  mcp = await mcpProject({
    ...HANDY_PROJECT,
    yaml: {
      ...HANDY_PROJECT.yaml,
      sandbox: { ...sandbox, zones: { ...sandbox.zones, shut: { path: "shut", mode: "rw" } } },
      approval: { timeout: "3s", rules: [{ paths: ["/out/secret/**"], decide: "deny", why: "not that" }] },
    },
    workers: {
      w: {
        ...HANDY,
        calls: ["kid"],
        sandbox: { zones: [asks, { name: "shut", mode: "rw", approval: { write: "blocked", delete: "blocked" } }] },
        shell_rules: {
          default: "pre_approved",
          rules: [
            { pattern: "printf **", approval: "ask" },
            { pattern: "rm **", approval: "blocked" },
          ],
        },
      },
      kid: { command: ["sh", "-c", "cat > /out/kid"], sandbox: { zones: [asks] } },
    },
    folders: ["out", "shut"],
  });
});
afterEach(() => mcp.leave());
afterAll(() => mcp?.[Symbol.asyncDispose]());

interface Asked {
  readonly message: string;
  readonly choices: readonly string[];
}

/** A client that answers every form so, and what it was shown. */
async function answering(
  answer: ElicitResult | (() => Promise<ElicitResult>),
  modern: boolean,
): Promise<{ client: Client; asked: Asked[] }> {
  const asked: Asked[] = [];
  const { client } = await mcp.connect({
    modern,
    capabilities: { elicitation: {} },
    prepare(preparing) {
      preparing.setRequestHandler("elicitation/create", async ({ params }) => {
        const schema = "requestedSchema" in params ? params.requestedSchema : { properties: {} };
        const { answer: field } = schema.properties as { answer?: { enum?: string[] } };
        asked.push({ message: params.message, choices: field?.enum ?? [] });
        return typeof answer === "function" ? await answer() : answer;
      });
    },
  });
  return { client, asked };
}

const yes = (answer: string): ElicitResult => ({ action: "accept", content: { answer } });
const write = (client: Client, path: string, content = "text") =>
  client.callTool({ name: "write_file", arguments: { path, content } });

describe.each([
  ["a client that begins with a handshake", false],
  ["a client of the revision 2026-07-28", true],
])("approvals through %s", (_, modern) => {
  const at = modern ? "modern" : "legacy";

  it("shows what is asked and its diff, and does it once where the answer is once", async () => {
    const { client, asked } = await answering(yes("once"), modern);
    const evil = "x\u001b[2J\u202eevil\n\nWorker w asks to read. Allow it?\n";
    expect((await write(client, `/out/${at}-once`, evil)).isError).toBeFalsy();
    expect(textOf(await client.callTool({ name: "read_file", arguments: { path: `/out/${at}-once` } }))).toBe(evil);
    expect(asked).toHaveLength(1);
    expect(asked[0]?.choices).toEqual(["deny", "once", "session"]);
    expect(asked[0]?.message).toMatch(new RegExp(`Worker w asks to write in /out/${at}-once\\. Allow it\\?$`));
    expect(asked[0]?.message).toContain("+x\\u{1b}[2J\\u{202e}evil");
    // No line of the worker's begins as one of Corral's own does.
    expect(asked[0]?.message.match(/^Worker /gm)).toHaveLength(1);
    expect(asked[0]?.message).not.toContain(mcp.project.dir);
    await write(client, `/out/${at}-again`);
    expect(asked).toHaveLength(2);
    // What was agreed to is not asked about once more when it is applied.
    await client.close();
    await expect.poll(() => readFile(join(mcp.project.dir, `out/${at}-once`), "utf8").catch(() => "")).toBe(evil);
  });

  it("asks no more in that directory where the answer is session, and anew in the next connection", async () => {
    const { client, asked } = await answering(yes("session"), modern);
    await write(client, `/out/${at}/one`);
    await write(client, `/out/${at}/two`);
    expect(asked).toHaveLength(1);
    const next = await answering(yes("deny"), modern);
    expect((await write(next.client, `/out/${at}/three`)).isError).toBe(true);
    expect(next.asked).toHaveLength(1);
  });

  it("takes for a no whatever is not a yes", async () => {
    let answer: ElicitResult = yes("once");
    const { client, asked } = await answering(async () => answer, modern);
    const noes: Readonly<Record<string, ElicitResult>> = {
      "a denial": yes("deny"),
      "a decline": { action: "decline" },
      "a cancel": { action: "cancel" },
      "a yes without a choice": { action: "accept", content: {} },
      "a choice that was not offered": yes("always"),
    };
    for (const [what, no] of Object.entries(noes)) {
      answer = no;
      expect(await write(client, `/out/${at}-no`), what).toMatchObject({ isError: true });
      await expect(access(join(mcp.project.dir, `out/${at}-no`)), what).rejects.toThrow();
    }
    expect(asked).toHaveLength(5);
  });

  it("asks for commands, and for what a called worker has changed", async () => {
    const { client, asked } = await answering(yes("once"), modern);
    const printed = await client.callTool({ name: "exec", arguments: { command: "printf hello" } });
    expect(textOf(printed)).toBe("hello");
    expect(asked[0]?.message).toContain("printf hello");
    await client.callTool({ name: "call_worker", arguments: { worker: "kid", input: at } });
    await client.callTool({ name: "commit_changes", arguments: {} });
    expect(asked.length).toBeGreaterThan(1);
    expect(await readFile(join(mcp.project.dir, "out/kid"), "utf8")).toBe(`"${at}"\n`);
  });

  it("cannot agree to what is blocked, or denied by a rule: nobody is asked", async () => {
    const { client, asked } = await answering(yes("session"), modern);
    expect(await write(client, "/shut/x")).toMatchObject({ isError: true });
    expect(await client.callTool({ name: "exec", arguments: { command: "rm -rf /out" } })).toMatchObject({
      isError: true,
      structuredContent: { code: "COMMAND_BLOCKED" },
    });
    const ruled = await write(client, "/out/secret/x");
    expect(textOf(ruled)).toContain("not that");
    expect(asked).toEqual([]);
  });

  it("gives up on an answer that does not come in time", async () => {
    const { client } = await answering(() => new Promise(() => {}), modern);
    const answer = write(client, `/out/${at}-late`).then(textOf, String);
    // A client of the newer revision is only told when it comes again, and this one never does.
    if (!modern) expect(await answer).toContain("no answer came in time");
    const { dir, stateDir } = mcp.project;
    const { trail } = projectPaths(stateDir, await realpath(dir)).trail;
    await expect.poll(() => readFile(trail, "utf8")).toMatch(new RegExp(`timed.out.*${at}-late|${at}-late.*timed.out`));
    const { stdout } = await mcp.project.corral(["audit", "--type", "approval", "--limit", "1"]);
    expect(stdout).toMatch(new RegExp(`timed.out.*${at}-late|${at}-late.*timed.out`, "s"));
    await expect(access(join(mcp.project.dir, `out/${at}-late`))).rejects.toThrow();
  });

  it("denies what was asked of a client that is gone, and leaves nothing", async () => {
    const shown = Promise.withResolvers<void>();
    const { client } = await answering(() => {
      shown.resolve();
      return new Promise(() => {});
    }, modern);
    const running = write(client, `/out/${at}-gone`).catch(() => "ended");
    await shown.promise;
    await client.close();
    if (!modern) expect(await running).toBe("ended");
    await expect.poll(() => mcp.cells()).toEqual([]);
    await expect(access(join(mcp.project.dir, `out/${at}-gone`))).rejects.toThrow();
  });

  it("asks side by side where several calls do, and each answer is for its own", async () => {
    let count = 0;
    const { client, asked } = await answering(async () => {
      count += 1;
      return yes(count % 2 === 1 ? "once" : "deny");
    }, modern);
    const answers = await Promise.all([1, 2, 3, 4].map((index) => write(client, `/out/${at}-many-${index}`)));
    expect(asked).toHaveLength(4);
    for (const [index, answer] of answers.entries()) {
      const path = `/out/${at}-many-${index + 1}`;
      const there = await client.callTool({ name: "file_info", arguments: { path } });
      expect(there.isError === true).toBe(answer.isError === true);
    }
    expect(answers.filter(({ isError }) => isError)).toHaveLength(2);
  });
});

describe("a client of the revision 2026-07-28 that comes again by hand", () => {
  type Wanted = { readonly requestState: string; readonly inputRequests: Readonly<Record<string, unknown>> };

  it("answers for the very call that was asked about, once, and for no other", async () => {
    const { client } = await mcp.connect({ modern: true, capabilities: { elicitation: {} } });
    const call = (path: string, more: object = {}) =>
      client.request(
        { method: "tools/call", params: { name: "write_file", arguments: { path, content: "x" }, ...more } },
        { allowInputRequired: true },
      ) as Promise<unknown>;
    const { requestState, inputRequests } = (await call("/out/mine")) as Wanted;
    const [id = ""] = Object.keys(inputRequests);
    const again = { requestState, inputResponses: { [id]: yes("once") } };
    const other = await call("/out/other", again);
    expect(other).toMatchObject({ isError: true, structuredContent: { code: "QUESTION_OVER" } });
    // Without an answer it is asked again, by the same state.
    expect(await call("/out/mine", { requestState })).toMatchObject({ requestState });
    expect(await call("/out/mine", again)).toMatchObject({ structuredContent: { path: "/out/mine", created: true } });
    expect(await call("/out/mine", again)).toMatchObject({ structuredContent: { code: "QUESTION_OVER" } });
    const there = await client.callTool({ name: "file_info", arguments: { path: "/out/other" } });
    expect(there.isError).toBe(true);
  });
});

describe("approvals where the client cannot ask anybody", () => {
  it.each([false, true])("are denied, and say so (2026-07-28: %s)", async (modern) => {
    const { client } = await mcp.connect({ modern });
    const denied = await write(client, "/out/nobody");
    expect(denied).toMatchObject({ isError: true, structuredContent: { code: "APPROVAL_DENIED" } });
    expect(textOf(denied)).toContain("the client offers no way to ask a person");
  });

  it("are the mode's where that is not to ask", async () => {
    const { client } = await mcp.connect({ args: ["--worker", "w", "--approve", "approve_all"] });
    expect((await write(client, "/out/all")).isError).toBeFalsy();
  });
});
