import { describe, expect, it } from "vitest";
import { type Call, obey } from "./obeyed.ts";

describe("a model that asks for tools which it was not given", () => {
  it("gets none of them, by no spelling of their names", async () => {
    const names = [
      "exec",
      "EXEC",
      " read_file",
      "read_file ",
      "read_file\n",
      "read_file\0",
      "READ_FILE",
      "ｒead_file",
      "read_file/../exec",
      "../exec",
      "functions.exec",
      "mcp__corral__exec",
      "session.runTool",
      "call_worker",
      "git_push",
      "commit_changes",
      "",
      "a",
      "a".repeat(100_000),
      "\u202ecexe",
      "constructor",
      "__proto__",
      "prototype",
      "toString",
      "hasOwnProperty",
      "then",
    ];
    const calls = names.map((name): Call => [name, { command: "id", path: "/docs/a.txt", worker: "a" }]);
    const { result, outcomes, harm } = await obey([calls], { agent: { tools: ["read_file"] } });
    expect(result).toMatchObject({ status: "succeeded", output: "All done.", calls: [] });
    expect(outcomes).toHaveLength(names.length);
    for (const { code, text } of outcomes)
      expect([code, text.endsWith("The tools are: read_file.")]).toEqual(["NO_SUCH_TOOL", true]);
    expect(harm).toEqual([]);
  });

  it("gets nothing at all where its file names none", async () => {
    const calls: Call[] = [
      ["read_file", { path: "/docs/a.txt" }],
      ["exec", { command: "id" }],
      ["list_files", {}],
    ];
    const { codes, harm } = await obey([calls], { agent: { tools: [] } });
    expect(codes).toEqual(["read_file NO_SUCH_TOOL", "exec NO_SUCH_TOOL", "list_files NO_SUCH_TOOL"]);
    expect(harm).toEqual([]);
  });
});

describe("a model that gives its tools what is no input of theirs", () => {
  it("is told so, and nothing happens: prototype keys, other types, keys that no tool has", async () => {
    const inputs: unknown[] = [
      JSON.parse('{"__proto__": {"path": "/docs/a.txt"}}'),
      JSON.parse('{"path": "/docs/a.txt", "__proto__": {"isAdmin": true}}'),
      JSON.parse('{"constructor": {"prototype": {"path": "/docs/a.txt"}}}'),
      null,
      "/docs/a.txt",
      ["/docs/a.txt"],
      42,
      { path: ["/docs/a.txt"] },
      { path: { toString: "/docs/a.txt" } },
      { path: "" },
      { path: "x".repeat(5000) },
      { path: "/docs/a.txt", sandbox: { inherit: true } },
      { path: "/docs/a.txt", run: "root", approved: true },
      { path: "/docs/a.txt", offset: -1 },
      { path: "/docs/a.txt", max_chars: 1e300 },
    ];
    const calls = inputs.map((input): Call => ["read_file", input]);
    const { outcomes, harm } = await obey([calls]);
    expect(outcomes.map(({ code }) => code)).toEqual(inputs.map(() => "BAD_INPUT"));
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
    expect(harm).toEqual([]);
  });

  it("is told so of a pattern of which nothing is left, and goes on", async () => {
    const patterns = ["/", "./", "//", ".//"];
    const { result, codes } = await obey([patterns.map((pattern) => ["list_files", { path: "/docs", pattern }])]);
    expect(codes).toEqual(Array(4).fill("list_files FILE_SYSTEM"));
    expect(result.status).toBe("succeeded");
  });

  it("is told so of commands whose folder, environment or time is none", async () => {
    const inputs = [
      { command: "id", cwd: "/docs/../../etc" },
      { command: "id", cwd: "/etc" },
      { command: "id", env: { "LD_PRELOAD=x": "y" } },
      { command: "id", env: { A: "x\0y" } },
      { command: "id\0; echo more" },
      { command: "id", timeout_ms: -1 },
      { command: "id", timeout_ms: 1e12 },
      { command: "id", user: "root", privileged: true },
      { command: ["id"] },
    ];
    const { outcomes, harm } = await obey([inputs.map((input): Call => ["exec", input])]);
    for (const { code, text } of outcomes)
      expect([code, text]).toEqual([expect.stringMatching(/^(BAD_INPUT|BAD_DIRECTORY)/), text]);
    expect(harm).toEqual([]);
  });
});

describe("a model that asks for too much at once", () => {
  it("has 128 of thousands of calls done, and is told of the rest", async () => {
    const calls = Array.from({ length: 5000 }, (_, n): Call => ["write_file", { path: `/out/${n}`, content: "" }]);
    const { result, codes, harm } = await obey([calls, [["list_files", { path: "/out" }]]]);
    expect(result).toMatchObject({ status: "succeeded", agent: { steps: 3 } });
    expect(codes.filter((code) => code === "write_file done")).toHaveLength(128);
    expect(codes.filter((code) => code === "write_file TOO_MANY_CALLS")).toHaveLength(5000 - 128);
    expect(codes.at(-1)).toBe("list_files done");
    expect(harm).toEqual([]);
  });

  it("is told what of giant inputs cannot be, and goes on", async () => {
    const nested = JSON.parse(`${"[".repeat(90)}${"]".repeat(90)}`);
    const calls: Call[] = [
      ["write_file", { path: "/out/big", content: "x".repeat(300_000) }],
      ["read_file", { path: `/docs/${"a/".repeat(100_000)}` }],
      ["exec", { command: `: ${"y".repeat(150_000)}` }],
      ["read_file", { path: "/docs/a.txt", nested }],
      ["edit_file", { path: "/out/big", edits: Array.from({ length: 3000 }, () => ({ old: "x", new: "y" })) }],
    ];
    const { result, codes, harm } = await obey([calls]);
    expect(result).toMatchObject({ status: "succeeded", output: "All done." });
    expect(codes.slice(0, 4)).toEqual([
      "write_file done",
      "read_file BAD_INPUT",
      "exec BAD_INPUT",
      "read_file BAD_INPUT",
    ]);
    expect(codes[4]).toMatch(/^edit_file (BAD_INPUT|EDIT_)/);
    expect(harm).toEqual([]);
  });

  it("ends with a result where an input is nested too deep to be worked with, and nothing of that answer is done", async () => {
    const nested = JSON.parse(`${"[".repeat(1000)}${"]".repeat(1000)}`);
    const { result, codes, harm } = await obey([
      [
        ["write_file", { path: "/out/x", content: "x" }],
        ["read_file", { path: "/docs/a.txt", nested }],
      ],
    ]);
    expect(result).toMatchObject({ status: "failed", changes: [] });
    expect(codes).toEqual([]);
    expect(harm).toEqual([]);
  });

  it("has no more answers than its steps, and what it wrote until then is told", async () => {
    const answers = Array.from({ length: 20 }, (): Call[] => [["read_file", { path: "/docs/a.txt" }]]);
    const { result, harm } = await obey(answers, { agent: { limits: { steps: 5 } } });
    expect(result).toMatchObject({ status: "failed", error: { code: "STEP_LIMIT" }, agent: { steps: 5 } });
    expect(harm).toEqual([]);
  });
});

describe("the search for canaries", () => {
  it("finds one that an agent was given to read, and one that it may change", async () => {
    const read: Call[] = [["read_file", { path: "/closed/canary" }]];
    const given = await obey([read], { agent: { sandbox: { zones: [{ name: "closed" }] } } });
    expect(given.harm).toEqual(
      expect.arrayContaining([expect.stringMatching(/^told: /), expect.stringMatching(/^left in .*transcripts/)]),
    );
    const changed = await obey([[["write_file", { path: "/closed/canary", content: "" }]]], {
      agent: { sandbox: { zones: [{ name: "closed", mode: "rw", approval: "pre_approved" }] } },
    });
    expect(changed.harm).toEqual([expect.stringMatching(/^changed: .*closed\/canary/)]);
    const copied = await obey(
      [
        [
          [
            "exec",
            {
              command:
                "base64 /closed/canary > /out/x; cat /out/x; rev /closed/canary; od -An -tx1 /closed/canary | tr -d ' \\n'",
            },
          ],
        ],
      ],
      { agent: { sandbox: { zones: [{ name: "closed" }, { name: "out", mode: "rw", approval: "pre_approved" }] } } },
    );
    expect(copied.harm.join()).toContain("told: ");
  });
});
