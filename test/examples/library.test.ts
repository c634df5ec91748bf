import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { anthropicServer } from "../agent/servers/anthropic-server.ts";
import { giveGate } from "../tiers/give-gate.ts";

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const EXAMPLES = join(ROOT, "examples/library");
const MAX_LINES = 25;

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-library-"));
  await giveGate(join(dir, "state"));
});
afterAll(async () => {
  await rm(dir, { recursive: true, force: true });
  await rm(join(EXAMPLES, ".work"), { recursive: true, force: true });
});

/** What a program prints. It has no key, and state of its own. */
async function printed(file: string, cwd = ROOT, more: Readonly<Record<string, string>> = {}): Promise<string> {
  const { ANTHROPIC_API_KEY: _, OPENAI_API_KEY: __, ...rest } = process.env;
  const env = { ...rest, NO_COLOR: "1", CORRAL_STATE_DIR: join(dir, "state"), ...more };
  const { stdout } = await execute(process.execPath, [file], { cwd, env });
  return stdout;
}

/** They import `corral` by its name, which is what `npm run build` made. */
describe("the examples of the library, as they stand in the repository", () => {
  it.each([
    ["run", ["started count", "succeeded 16"]],
    ["agent", ["succeeded The paper has 16 words", "called count succeeded 16", "applied create /notes/length.txt"]],
    ["map", ["paper.txt succeeded 16", "letter.txt succeeded 11"]],
    ["tools", ["1\ntodo.txt\n", "PATH_NOT_IN_SANDBOX", "Readable paths: /notes", "applied create /notes/todo.txt"]],
    ["ai-tools", ["text: 'hello\\n'", "code: 'PATH_NOT_IN_SANDBOX'", "I greeted, and may not see the rest."]],
    ["derive", ["[ '/docs', '/src' ] []", "true false read", "'reader' does not pass writing on"]],
    ["files", ["- mow hay", "writable: false", "SUFFIX_NOT_ALLOWED", "PATH_NOT_WRITABLE", "PATH_NOT_IN_SANDBOX"]],
    ["state", ["grants: 0", "audit trail: true", "UNKNOWN_FLEET no-such-fleet"]],
    ["plan", ["ro /.corral/busybox corral", "true [] []"]],
  ])("%s.ts does what it says", async (name, said) => {
    await rm(join(EXAMPLES, ".work"), { recursive: true, force: true });
    const output = await printed(join("examples/library", `${name}.ts`));
    for (const text of said) expect(output).toContain(text);
  });

  it("are short, and every one of them is run here", async () => {
    const names = (await readdir(EXAMPLES)).filter((name) => name.endsWith(".ts")).toSorted();
    expect(names).toEqual([
      "agent.ts",
      "ai-tools.ts",
      "derive.ts",
      "files.ts",
      "map.ts",
      "plan.ts",
      "run.ts",
      "state.ts",
      "tools.ts",
    ]);
    for (const name of names)
      expect((await readFile(join(EXAMPLES, name), "utf8")).split("\n").length, name).toBeLessThan(MAX_LINES);
  });

  it("are typed as a program of somebody else is", async () => {
    await execute(
      process.execPath,
      [join(ROOT, "node_modules/typescript/bin/tsc"), "--checkers", "1", "-p", EXAMPLES],
      { cwd: ROOT },
    );
  });
});

/** The fenced blocks of one language, in order. */
function blocksOf(markdown: string, language: string): string[] {
  return [...markdown.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, name, text = ""]) =>
    name === language ? [text] : [],
  );
}

async function printedAgent(page: string) {
  const markdown = await readFile(join(ROOT, page), "utf8");
  return {
    program: blocksOf(markdown, "ts").find((text) => text.includes('project.run("summarize"')),
    worker: blocksOf(markdown, "text").find((text) => text.includes("Summarize")),
  };
}

/** Every page that prints it; the README may. */
const PAGES = ["docs/library.md"];
if ((await printedAgent("README.md")).program !== undefined) PAGES.push("README.md");

describe("the agent in five lines", () => {
  it.each(PAGES)("runs as %s prints it", async (page) => {
    const { program = "", worker = "" } = await printedAgent(page);
    expect([program, worker].map((text) => text.trimEnd().split("\n").length)).toEqual([5, 5]);
    await using server = await anthropicServer([
      { type: "turn", turn: { calls: [{ name: "read_file", input: { path: "/attachments/paper.txt" } }] } },
      { type: "turn", turn: { text: "It can only be narrowed." } },
    ]);
    const project = await mkdtemp(join(dir, "p-"));
    await mkdir(join(project, "workers"));
    await mkdir(join(project, "node_modules"));
    await symlink(ROOT, join(project, "node_modules/corral"));
    // Where Anthropic is said to be is all that is not as printed.
    const models = { anthropic: { url: server.url } };
    await writeFile(join(project, "corral.yaml"), JSON.stringify({ version: 1, models }));
    await writeFile(join(project, "workers/summarize.worker"), worker);
    await writeFile(join(project, "paper.txt"), "A sandbox that can only be narrowed needs no trust.\n");
    await writeFile(join(project, "main.mts"), program);
    const output = await printed("main.mts", project, { ANTHROPIC_API_KEY: "sk-not-a-key" });
    expect(output).toBe("succeeded It can only be narrowed.\n");
    expect(server.requests).toHaveLength(2);
    expect(JSON.stringify(server.requests[1]?.body)).toContain("needs no trust.");
  });
});
