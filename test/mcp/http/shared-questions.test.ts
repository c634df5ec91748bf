import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { textOf } from "../mcp-project.ts";
import { connectedTo, type HttpClient, type Served, served, TOKEN } from "./served.ts";

let s: Served;
beforeEach(async () => {
  s = await served({ idleMs: 60_000, goneMs: 60_000 }, ["kept"]);
});
afterEach(() => s[Symbol.asyncDispose]());

interface Person extends HttpClient {
  readonly asked: { readonly message: string; readonly choices: readonly string[] }[];
}

/** A client of the revision 2026-07-28 whose person always answers so, once they have thought about it. */
async function person(answer: string, thought: Promise<unknown> = Promise.resolve()): Promise<Person> {
  const asked: Person["asked"] = [];
  const connected = await connectedTo(s.server.url, TOKEN, true, {
    capabilities: { elicitation: {} },
    prepare(client) {
      client.setRequestHandler("elicitation/create", async ({ params }) => {
        const schema = "requestedSchema" in params ? params.requestedSchema : { properties: {} };
        const { answer: field } = schema.properties as { answer?: { enum?: string[] } };
        asked.push({ message: params.message, choices: field?.enum ?? [] });
        await thought;
        return { action: "accept", content: { answer } };
      });
    },
  });
  return { ...connected, asked };
}

const exec = async ({ client }: HttpClient, command: string) =>
  textOf(await client.callTool({ name: "exec", arguments: { command } }));
const programWrites = (path: string) =>
  `curl -s --unix-socket "$CORRAL_SOCKET" -d '{"path":"${path}","content":"x"}' http://corral/v1/tools/write_file`;

describe("clients that share a session", () => {
  it("are asked for the programs of their own commands alone", async () => {
    const [no, yes] = [await person("deny"), await person("once")];
    // The cell is opened by somebody else's command, and another one waits behind.
    await exec(yes, "true");
    const asking = exec(no, `echo > /out/begun; sleep 1; ${programWrites("/kept/of-no")}`);
    const behind = exec(yes, "true");
    expect(await asking).toContain("the person at the client denied it");
    await behind;
    expect(no.asked).toHaveLength(1);
    expect(yes.asked).toEqual([]);
  });

  it("are not asked for a program that is left when no command runs", async () => {
    const thought = Promise.withResolvers<void>();
    const yes = await person("once", thought.promise);
    const begins = "until [ -e /out/begins ]; do sleep 0.1; done";
    await exec(yes, `(${begins}; ${programWrites("/kept/late")} > /out/answer) > /dev/null 2>&1 &`);
    // A call whose client could be asked is under way all the while.
    const waits = yes.client.callTool({ name: "write_file", arguments: { path: "/kept/asked", content: "x" } });
    await expect.poll(() => yes.asked.length).toBe(1);
    const { client } = await person("deny");
    await client.callTool({ name: "write_file", arguments: { path: "/out/begins", content: "" } });
    const answer = async () => textOf(await client.callTool({ name: "read_file", arguments: { path: "/out/answer" } }));
    await expect.poll(answer).toContain("APPROVAL_DENIED");
    thought.resolve();
    await waits;
    expect(yes.asked.map(({ message }) => message.includes("/kept/late"))).toEqual([false]);
  });

  it("agree to nothing for each other, nor for longer than once", async () => {
    const [lasting, no] = [await person("session"), await person("deny")];
    expect(await exec(lasting, "printf one")).toBe("one");
    expect(lasting.asked[0]?.choices).toEqual(["deny", "once"]);
    expect(await exec(no, "printf one")).toContain("the person at the client denied it");
    expect(await exec(lasting, "printf one")).toBe("one");
    expect(lasting.asked).toHaveLength(2);
  });

  it("are served while others leave more questions unanswered than there are places", async () => {
    const silent = await person("deny", new Promise(() => {}));
    const left = Array.from({ length: 40 }, (_, index) => exec(silent, `printf ${index}`).catch(() => "left"));
    await expect.poll(() => silent.asked.length).toBe(40);
    const other = await person("once");
    expect(textOf(await other.client.callTool({ name: "list_files", arguments: { path: "/" } }))).toContain("/docs/");
    expect(await exec(other, "printf mine")).toBe("mine");
    // All the while, no form of the others was given up.
    expect(await Promise.race([...left, "none"])).toBe("none");
    await silent.client.close();
  });

  it("have the oldest given up of more than 200 that wait, and its client is told so when it comes again", async () => {
    const thought = Promise.withResolvers<void>();
    const first = await person("once", thought.promise);
    const oldest = exec(first, "printf oldest");
    await expect.poll(() => first.asked.length).toBe(1);
    const silent = await person("deny", new Promise(() => {}));
    for (let count = 50; count <= 200; count += 50) {
      for (let index = 0; index < 50; index += 1) exec(silent, `printf ${count + index}`).catch(() => {});
      await expect.poll(() => silent.asked.length).toBe(count);
    }
    thought.resolve();
    expect(await oldest).toContain("The question is no longer open");
    await silent.client.close();
  });

  it("withdraw what a program asks for in the background when its command is over", async () => {
    const thought = Promise.withResolvers<void>();
    const slow = await person("once", thought.promise);
    const other = (await person("deny")).client;
    const written = async (path: string) =>
      textOf(await other.callTool({ name: "read_file", arguments: { path } }).catch(String));
    const asks = `(${programWrites("/kept/behind")} > /out/behind) > /dev/null 2>&1 &`;
    const over = exec(slow, `${asks} until [ -e /out/asked ]; do sleep 0.1; done`);
    await expect.poll(() => slow.asked.length).toBe(1);
    await other.callTool({ name: "write_file", arguments: { path: "/out/asked", content: "" } });
    await expect.poll(() => written("/out/behind")).toContain("the call is over");
    thought.resolve();
    await over;
    expect(slow.asked).toHaveLength(1);
  });
});
