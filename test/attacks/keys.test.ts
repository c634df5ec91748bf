import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunEvent } from "../../src/run/model/events.ts";
import { statePaths } from "../../src/state/state-dir.ts";
import { APIS, type SpokenApi } from "../agent/provider-apis.ts";
import type { Behaviour, ModelTurn } from "../agent/servers/behaviour.ts";
import type { RecordedRequest } from "../agent/servers/recorded-request.ts";
import { cliProject } from "../cli/cli-project.ts";
import { modelAt, type ServedAgents, servedAgents } from "../run/agent/served-agent.ts";
import { sh, writable } from "../run/project-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { onRunc } from "../tiers/on-runc.ts";
import { type CanaryKey, canaryKey, tracesBelow } from "./canary-key.ts";

/** Looks for a text in the environment and in all of the files, given in halves so as not to find the question. */
const search = ([first, second]: CanaryKey["halves"]): string =>
  `printf '%s%s' '${first}' '${second}' > /tmp/text
   env | grep -c -F -f /tmp/text
   cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /tmp/text
   grep -rlsF -f /tmp/text / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev | grep -v '^/tmp/text$'
   echo searched`;

const turn = (made: ModelTurn): Behaviour => ({ type: "turn", turn: made });
const unicode = (text: string): string =>
  [...text].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** Everything that a server can do to have its key written down, one after another; and then an answer. */
function echoes(canary: CanaryKey): ((key: string) => Behaviour)[] {
  const write = (path: string, content: string) => ({ name: "write_file", input: { path, content } });
  return [
    (key) => turn({ text: `I know ${key}, I do: ${key}`, calls: [write("/out/plain.txt", `it is ${key}.`)] }),
    (key) => turn({ calls: [write(`/out/${encodeURIComponent(key)}.txt`, encodeURIComponent(key))] }),
    (key) => turn({ calls: [write("/out/base64.txt", Buffer.from(key).toString("base64"))] }),
    (key) => turn({ calls: [write("/out/x", "")], rawArguments: `{"path":"/out/u.txt","content":"${unicode(key)}"}` }),
    (key) => turn({ calls: [write("/out/y", "")], rawArguments: `{"path": ${JSON.stringify(key)}, no JSON` }),
    (key) => turn({ calls: [{ ...write("/out/id.txt", "by its id"), id: `call_${key}` }] }),
    (key) => turn({ calls: [{ name: `no_tool_${key}`, input: { [key]: { deep: [key] } } }] }),
    (key) => turn({ calls: [{ name: "exec", input: { command: `cat > /out/printed`, stdin: key } }] }),
    (key) =>
      turn({ calls: [{ name: "exec", input: { command: `echo ${JSON.stringify(key)} >&2`, env: { K: key } } }] }),
    () => turn({ calls: [{ name: "exec", input: { command: search(canary.halves) } }] }),
    (key) => ({ type: "stream-error", after: 9, turn: { text: `It broke off: ${key}` }, message: `${key} is over` }),
    (key) => ({
      type: "status",
      status: 500,
      body: { type: "error", error: { message: `no service for ${key}`, type: "x" } },
    }),
    (key) => turn({ calls: [{ name: "spy", input: { input: { key, halves: canary.halves } } }] }),
    (key) => ({ type: "cut", after: 12, turn: { text: `${key}${key}` } }),
    (key) => turn({ text: `The key is ${key}, or ${JSON.stringify({ key })}, or ${encodeURIComponent(key)}.` }),
  ];
}

const SPY = `cat > /tmp/in; jq -r '.halves | add' < /tmp/in > /tmp/text
  env | grep -c -F -f /tmp/text; grep -c -F -f /tmp/text /tmp/in
  cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /tmp/text; sleep 0.5; echo spied`;

const AGENT = {
  tools: ["write_file", "exec"],
  calls: ["spy"],
  sandbox: { zones: [{ ...writable("out"), stage: true }] },
  shell_rules: { default: "pre_approved" },
};

/** All that was told while runs went on: chunks of output as the text that they are. */
function told(events: readonly RunEvent[]): string {
  const shown = events.map((event) => (event.type === "output" ? { ...event, chunk: event.chunk.toString() } : event));
  return JSON.stringify(shown);
}

/** What is known outside of each cell that there is while `act` goes on: by the Engine, and in the files that runc reads and writes. */
async function inspectedWhile({ project }: ServedAgents, act: () => Promise<unknown>): Promise<string> {
  const { docker, stateDir } = project;
  const seen = new Set<string>();
  const over = new AbortController();
  const watching = (async () => {
    while (!over.signal.aborted) {
      // Cells of runc end while a busy Engine still answers.
      const filters = { label: ["dev.corral.run"] };
      for (const { Id } of onRunc() ? [] : await docker.listContainers({ filters })) {
        const inspected = await docker
          .getContainer(Id)
          .inspect()
          .catch(() => null);
        if (inspected !== null) seen.add(JSON.stringify(inspected));
      }
      for (const text of await textsBelow(statePaths(stateDir).runc)) seen.add(text);
      await new Promise((done) => setTimeout(done, 150));
    }
  })();
  await act().finally(() => over.abort());
  await watching;
  return [...seen].join("\n");
}

/** Of files and folders that may be removed meanwhile: what goes takes nothing else with it. */
async function textsBelow(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  const texts = entries.map(async (entry): Promise<string[]> => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return await textsBelow(path);
    return entry.name.endsWith(".json") ? [await readFile(path, "utf8").catch(() => "")] : [];
  });
  return (await Promise.all(texts)).flat();
}

// What a cell has of a key is the same whichever API the host speaks.
describe.each(APIS)("the key of a provider of $api", (spoken) => {
  it.each(AT_LENGTH || spoken === APIS[0] ? (["env", "command"] as const) : (["env"] as const))(
    "is nowhere but at its server, which repeats it in every way it can (from: %s)",
    async (from) => {
      const canary = canaryKey();
      const { key } = canary;
      const outside = await mkdtemp(join(tmpdir(), "corral-key-"));
      try {
        await writeFile(join(outside, "key"), `${key}\n`);
        const behaviours = echoes(canary);
        const behaviour = (request: RecordedRequest, index: number): Behaviour =>
          (behaviours[index] ?? (() => turn({ text: "?" })))(request.key);
        await using agents = await servedAgents(spoken, behaviour, {
          key,
          agent: AGENT,
          workers: { spy: { command: sh(SPY) } },
          provider: { key: from === "env" ? { env: "TEST_MODEL_KEY" } : { command: ["cat", join(outside, "key")] } },
        });
        let result: unknown;
        const inspected = await inspectedWhile(agents, async () => {
          result = await agents.run();
        });
        expect(result).toMatchObject({
          status: "succeeded",
          output: expect.stringContaining("The key is [secret], or"),
        });
        // It was sent, each time, and it came back.
        expect(agents.server.requests.map((request) => request.key)).toEqual(behaviours.map(() => key));
        expect(agents.acts().filter(({ kind }) => kind === "retry")).toHaveLength(3);
        // And the cells were looked into.
        const events = told(agents.project.events);
        expect(JSON.stringify(agents.server.requests.at(-1)?.messages)).toMatch(/0\\+n0\\+nsearched/);
        expect(result).toMatchObject({ calls: [{ worker: "spy", stdout: "0\n0\n0\nspied\n" }] });
        expect(inspected.includes('"dev.corral.worker":"spy"')).toBe(true);

        expect(canary.isIn(JSON.stringify(result))).toBe(false);
        expect(canary.isIn(events)).toBe(false);
        expect(canary.isIn(inspected)).toBe(false);
        await agents.close();
        expect(await tracesBelow(agents.project.stateDir, canary)).toEqual([]);
        expect(await tracesBelow(agents.project.dir, canary)).toEqual([]);
      } finally {
        await rm(outside, { recursive: true, force: true });
      }
    },
  );
});

describe.each(APIS)("the key of a provider of $api, on the host", (spoken) => {
  it("is in no JSON that an agent answers with, however its escapes spell it", async () => {
    const canary = canaryKey();
    await using agents = await servedAgents(
      spoken,
      ({ key }) => turn({ text: `{"title":"${unicode(key)}","${unicode(key)}":1}` }),
      {
        key: canary.key,
        agent: { output_schema: { type: "object", required: ["title"] } },
        files: { "s/up.yaml": JSON.stringify([{ calls: [{ a: { input: {} } }] }, { say: "It came." }]) },
        workers: {
          up: { model: "script/s/up.yaml", calls: ["a"] },
          asks: { command: sh("corral-call a '{}'"), calls: ["a"] },
        },
      },
    );
    const clean = { title: "[secret]", "[secret]": 1 };
    const [alone, called, asked] = [await agents.run(), await agents.run("up"), await agents.run("asks")];
    expect(alone).toMatchObject({ status: "succeeded", output: clean, stdout: `${JSON.stringify(clean)}\n` });
    expect(called).toMatchObject({ output: "It came.", calls: [{ output: clean }] });
    expect(asked).toMatchObject({ status: "succeeded", stdout: expect.stringContaining("[secret]") });
    expect(canary.isIn(JSON.stringify([alone, called, asked]))).toBe(false);
    await agents.close();
    expect(await tracesBelow(agents.project.stateDir, canary)).toEqual([]);
  });

  it.each([(key: string) => `${key}  `, (key: string) => ` ${key}`])(
    "is told by nobody who was sent it without the blanks that stand around it (%#)",
    async (blanked) => {
      const canary = canaryKey();
      await using agents = await servedAgents(
        spoken,
        ({ key }) => turn({ text: `It is ${key}, it is ${key.trim()}.` }),
        {
          key: blanked(canary.key),
        },
      );
      expect(await agents.run()).toMatchObject({ output: "It is [secret], it is [secret]." });
      expect(canary.isIn(told(agents.project.events))).toBe(false);
      await agents.close();
      expect(await tracesBelow(agents.project.stateDir, canary)).toEqual([]);
    },
  );

  it("is not sent, and told for none, where it has what a header cannot have", async () => {
    await using agents = await servedAgents(spoken, () => turn({ text: "Hello." }), {
      key: "sk-\u2014canary-51c0ffee",
    });
    const { error } = await agents.run();
    expect(error).toMatchObject({ code: "MODEL_KEY" });
    expect(JSON.stringify(agents.project.events)).not.toContain("8212");
    expect(agents.server.requests).toEqual([]);
  });

  const failing: readonly (readonly [how: string, (key: string) => Behaviour])[] = [
    [
      "401",
      (key) => ({
        type: "status",
        status: 401,
        body: { type: "error", error: { message: `wrong key ${key}`, type: key } },
      }),
    ],
    ["400 that is no JSON", (key) => ({ type: "status", status: 400, body: `<p>${key}</p>` })],
    [
      "500",
      (key) => ({
        type: "status",
        status: 500,
        body: { type: "error", error: { message: `${"x ".repeat(485)}${key}`, type: "x" } },
      }),
    ],
    ["429 with a header", (key) => ({ type: "status", status: 429, headers: { "retry-after": key, "x-key": key } })],
    [
      "an error in its middle",
      (key) => ({ type: "stream-error", after: 5, turn: { text: key }, message: key, code: key }),
    ],
  ];
  it("is in no error, whatever the server answers", async () => {
    const canary = canaryKey();
    let behaviour: (key: string) => Behaviour = () => turn({ text: "?" });
    await using agents = await servedAgents(spoken, ({ key }) => behaviour(key), { key: canary.key });
    for (const [how, answered] of failing) {
      behaviour = answered;
      const before = agents.server.requests.length;
      const result = await agents.run();
      expect(result.status, how).toBe("failed");
      expect(agents.server.requests[before]?.key, how).toBe(canary.key);
      expect(canary.isIn(JSON.stringify(result)), how).toBe(false);
      expect(canary.isIn(told(agents.project.events)), how).toBe(false);
      // Not a part of it either, which a cut may leave.
      expect(told(agents.project.events), how).not.toContain("canary\\");
    }
    await agents.close();
    expect(await tracesBelow(agents.project.stateDir, canary)).toEqual([]);
  });

  it("is not told to another provider, whose agent called the one of this", async () => {
    const canary = canaryKey();
    const write = (key: string) => ({ name: "write_file", input: { path: "/out/below.txt", content: key } });
    await using below = await spoken.serve(({ key, messages }) =>
      JSON.stringify(messages).includes("again")
        ? { type: "status", status: 401, body: { type: "error", error: { message: key, type: "x" } } }
        : turn({ text: `It is ${key}`, calls: messages.length > 2 ? [] : [write(key)] }),
    );
    await using agents = await servedAgents(
      spoken,
      [
        turn({ calls: [{ name: "below", input: { input: "go" } }] }),
        turn({
          calls: [
            { name: "below", input: { input: "again" } },
            { name: "read_file", input: { path: "/out/below.txt" } },
          ],
        }),
        turn({ text: "I know nothing." }),
      ],
      {
        key: "sk-of-the-caller",
        agent: { tools: ["read_file"], calls: ["below"], sandbox: { zones: [writable("out")] } },
        workers: {
          below: { model: `there/${spoken.model}`, tools: ["write_file"], sandbox: { zones: [writable("out")] } },
        },
        yaml: {
          models: {
            there: { api: spoken.api, url: below.url, key: { command: ["printf", "%s\\n", canary.key] } },
          },
        },
      },
    );
    const result = await agents.run();
    expect(result).toMatchObject({ status: "succeeded", calls: [{ output: "It is [secret]" }, { status: "failed" }] });
    expect(below.requests[0]?.key).toBe(canary.key);
    const sent = JSON.stringify(agents.server.requests.map(({ headers, body }) => [headers, body]));
    expect(sent).toContain("It is [secret]");
    expect(sent).toContain("answered with HTTP status 401: [secret]");
    expect(canary.isIn(sent)).toBe(false);
    expect(canary.isIn(JSON.stringify(result))).toBe(false);
  });

  it("does not go where a redirect of any status points to", async () => {
    const statuses = [301, 302, 307, 308];
    const canary = canaryKey();
    const reached: string[] = [];
    const elsewhere = createServer((request, response) => {
      reached.push(JSON.stringify([request.url, request.headers]));
      response.end("{}");
    });
    elsewhere.listen(0, "127.0.0.1");
    await once(elsewhere, "listening");
    try {
      const { port } = elsewhere.address() as AddressInfo;
      const location = `http://127.0.0.1:${port}/v1/messages`;
      let status = 0;
      await using agents = await servedAgents(spoken, () => ({ type: "status", status, headers: { location } }), {
        key: canary.key,
      });
      for (status of statuses) {
        expect(await agents.run(), `${status}`).toMatchObject({
          status: "failed",
          error: { code: "MODEL_UNAVAILABLE", message: expect.stringContaining("redirect") },
        });
        expect(reached, `${status}`).toEqual([]);
      }
    } finally {
      elsewhere.closeAllConnections();
      elsewhere.close();
    }
  });
});

describe("keys of Corral's own environment", () => {
  const NAMES = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"];

  /** The packages of the providers read the process's own environment, if they are let. */
  async function withKeys(canary: CanaryKey, act: () => Promise<void>): Promise<void> {
    const before = NAMES.map((name) => [name, process.env[name]] as const);
    for (const name of NAMES) process.env[name] = canary.key;
    try {
      await act();
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  }

  it.each(
    APIS.flatMap(
      (spoken) =>
        [
          [spoken.api, "here", spoken],
          [spoken.api, spoken.api, spoken],
        ] as const,
    ),
  )(
    "are not sent to a server of the project's own that speaks as %s and is called `%s`",
    async (_, name, spoken: SpokenApi) => {
      const canary = canaryKey();
      await withKeys(canary, async () => {
        await using server = await spoken.serve([turn({ text: "Hello." })]);
        await using agents = await servedAgents(spoken, [], {
          yaml: { models: { [name]: { api: spoken.api, url: server.url } } },
          agent: { model: `${name}/${spoken.model}` },
        });
        expect(await agents.run()).toMatchObject({ status: "succeeded", output: "Hello." });
        expect(server.requests).toHaveLength(1);
        expect(canary.isIn(JSON.stringify(server.requests[0]?.headers))).toBe(false);
      });
    },
  );

  it.each(APIS)("are not sent along with the key that is meant for $api", async (spoken) => {
    const canary = canaryKey();
    await withKeys(canary, async () => {
      await using agents = await servedAgents(spoken, [turn({ text: "Hello." })], { key: "sk-its-own" });
      expect((await agents.run()).status).toBe("succeeded");
      expect(agents.server.requests[0]?.key).toBe("sk-its-own");
      expect(canary.isIn(JSON.stringify(agents.server.requests[0]?.headers))).toBe(false);
    });
  });
});

describe("corral run", () => {
  // Both streams and what is kept are the same whichever API the host speaks.
  it.each(AT_LENGTH ? APIS : APIS.slice(0, 1))(
    "tells no key of $api on its two streams, nor keeps one",
    async (spoken) => {
      const canary = canaryKey();
      await using server = await spoken.serve(({ key }, index): Behaviour => {
        const call = { name: "write_file", input: { path: `/out/${index}.txt`, content: key } };
        if (index % 3 === 0) return turn({ text: `I write ${key}.`, calls: [call, { name: key, input: key }] });
        if (index % 3 === 1) return turn({ text: `The key is ${key}.` });
        return { type: "status", status: 401, body: { type: "error", error: { message: `wrong: ${key}`, type: "x" } } };
      });
      await using project = await cliProject({
        yaml: {
          version: 1,
          policy: "untrusted",
          sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } },
          models: { here: { api: spoken.api, url: server.url, key: { env: "TEST_MODEL_KEY" } } },
        },
        workers: { a: { model: modelAt(spoken), tools: ["write_file"], sandbox: { zones: [writable("out")] } } },
        folders: ["out"],
      });
      const env = { TEST_MODEL_KEY: canary.key };
      const shown: string[] = [];
      for (const [status, args] of [
        [0, ["run", "a"]],
        [1, ["run", "a"]],
        [0, ["run", "a", "--json"]],
        [1, ["run", "a", "--json"]],
        [0, ["run", "a", "--tree"]],
        [1, ["run", "a", "--tree"]],
        [0, ["run", "a", "--stream"]],
        [1, ["run", "a", "--stream"]],
        [0, ["audit"]],
        [0, ["transcripts", "ls"]],
      ] as const) {
        const outcome = await project[shown.length < 4 ? "built" : "corral"](args, { env });
        expect(outcome, args.join(" ")).toMatchObject({ status });
        shown.push(outcome.stdout, outcome.stderr);
      }
      expect(server.requests.map(({ key }) => key)).toEqual(Array(12).fill(canary.key));
      expect(shown.join("\n")).toContain("The key is [secret].");
      expect(shown.join("\n")).toContain("answered with HTTP status 401: wrong: [secret]");
      expect(canary.isIn(shown.join("\n"))).toBe(false);
      expect(await readFile(join(project.dir, "out/0.txt"), "utf8")).toBe("[secret]");
      expect(await tracesBelow(project.dir, canary)).toEqual([]);
      expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
    },
  );
});
