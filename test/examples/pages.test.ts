import { execFile } from "node:child_process";
import { chmod, chown, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";
import { giveGate } from "../tiers/give-gate.ts";

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const WORKER_UID = 65532;

/** The fenced blocks of one language, in order. */
async function blocksOf(page: string, language: string): Promise<string[]> {
  const markdown = await readFile(join(ROOT, page), "utf8");
  return [...markdown.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, name, text = ""]) =>
    name === language ? [text] : [],
  );
}

const blockWith = async (page: string, language: string, text: string): Promise<string> =>
  (await blocksOf(page, language)).find((block) => block.includes(text)) ?? "";

/** The smallest PDF that says something. */
function pdf(text: string): string {
  const stream = `BT /F 12 Tf 40 800 Td (${text}) Tj ET`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R /Resources << /Font << /F 3 0 R >> >> >>",
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
  ];
  let out = "%PDF-1.4\n";
  const starts = objects.map((object, index) => {
    const start = out.length;
    out += `${index + 1} 0 obj\n${object}\nendobj\n`;
    return `${String(start).padStart(10, "0")} 00000 n \n`;
  });
  const table = `xref\n0 6\n0000000000 65535 f \n${starts.join("")}`;
  return `${out}${table}trailer << /Size 6 /Root 1 0 R >>\nstartxref\n${out.length}\n%%EOF\n`;
}

let dir = "";
let project = "";
let env: NodeJS.ProcessEnv = {};

/** A line of a page, in the project, as somebody types it who has installed Corral. */
const typed = async (line: string) => await execute("sh", ["-c", line], { cwd: project, env });

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-pages-"));
  project = join(dir, "project");
  await mkdir(join(project, "workers"), { recursive: true });
  await mkdir(join(dir, "bin"));
  for (const [name, drop] of [
    ["corral", ""],
    ["npx", "shift; "],
  ]) {
    await writeFile(join(dir, "bin", `${name}`), `#!/bin/sh\n${drop}exec '${process.execPath}' '${PROGRAM}' "$@"\n`);
    await chmod(join(dir, "bin", `${name}`), 0o755);
  }
  const { ANTHROPIC_API_KEY: _, ...rest } = process.env;
  const PATH = `${join(dir, "bin")}${delimiter}${process.env.PATH}`;
  env = { ...rest, PATH, HOME: dir, NO_COLOR: "1", CORRAL_STATE_DIR: join(dir, "state") };
  await giveGate(join(dir, "state"));
  await writeFile(join(project, "corral.yaml"), await blockWith("README.md", "yaml", "# corral.yaml"));
  const worker = await blockWith("README.md", "yaml", "# workers/extract-text.worker");
  await writeFile(join(project, "workers/extract-text.worker"), worker);
  await writeFile(join(project, "workers/summarize.worker"), await blockWith("README.md", "text", "Summarize"));
  await mkdir(join(dir, "Downloads"));
  await writeFile(join(dir, "Downloads/paper.pdf"), pdf("a paper"));
  await cp(join(dir, "Downloads/paper.pdf"), join(project, "in.pdf"));
  const [folders = ""] = commandsOf(await blockWith("README.md", "sh", "extract-text"));
  await typed(folders);
  await chown(join(project, "text"), WORKER_UID, WORKER_UID);
  for (const name of ["a", "b"]) await writeFile(join(project, "inbox", `${name}.pdf`), pdf(`document ${name}`));
});
afterAll(async () => {
  await rm(dir, { recursive: true, force: true });
});

const extracted = async (path: string): Promise<string> =>
  (await readFile(join(project, "text", path, "out.txt"), "utf8").catch(() => "nothing")).trim();

/** One command a line, but for lines that end in a backslash. */
const commandsOf = (block: string): string[] =>
  block
    .trim()
    .replaceAll(/\\\n\s*/g, "")
    .split("\n");

describe("what the README prints", () => {
  it("runs its worker on one document, and on many", async () => {
    const [, run = "", map = ""] = commandsOf(await blockWith("README.md", "sh", "extract-text"));
    await typed(run);
    expect(await extracted("")).toBe("a paper");
    await typed(map);
    expect([await extracted("a"), await extracted("b")]).toEqual(["document a", "document b"]);
  });

  it("does the same from a program, and has a worker's tools", async () => {
    await mkdir(join(project, "node_modules"), { recursive: true });
    await symlink(ROOT, join(project, "node_modules/corral"));
    await writeFile(join(project, "main.mts"), await blockWith("README.md", "ts", "project.map("));
    const { stdout } = await execute(process.execPath, ["main.mts"], { cwd: project, env });
    const ended = stdout.trim().split("\n").toSorted();
    expect(ended).toEqual([expect.stringMatching(/a\.pdf \w+$/), expect.stringMatching(/b\.pdf \w+$/)]);
    expect(ended.filter((line) => !/ (succeeded|cached)$/.test(line))).toEqual([]);
  });
});

describe("what docs/fleets.md prints", () => {
  it("runs on the README's project, the fleet of a file among it", async () => {
    await writeFile(join(project, "workers/translate.worker"), "---\ncommand: [cat]\noutput: json\n---\n");
    await writeFile(join(project, "items.jsonl"), '{"lang":"de"}\n{"lang":"fr"}\n');
    await mkdir(join(project, "fleets"), { recursive: true });
    await writeFile(join(project, "fleets/nightly.yaml"), await blockWith("docs/fleets.md", "yaml", "worker:"));
    await mkdir(join(project, "inbox/deep"), { recursive: true });
    await writeFile(join(project, "inbox/deep/c.pdf"), pdf("document c"));
    const block = await blockWith("docs/fleets.md", "sh", "corral map");
    for (const command of commandsOf(block)) await typed(command);
    expect(await extracted("c")).toBe("document c");
    const results = (await readFile(join(project, "results.jsonl"), "utf8")).trim().split("\n");
    const outputs = results.map((line) => (JSON.parse(line) as { output: { lang: string } }).output.lang);
    expect(outputs.toSorted()).toEqual(["de", "fr"]);
  });
});

describe("what docs/agents.md prints", () => {
  it("is one project with the README's, of which every call would run, and a script that plays", async () => {
    const agents = join(dir, "agents");
    await mkdir(join(agents, "workers"), { recursive: true });
    const zones = "{ inbox: { mode: ro }, notes: { mode: rw }, text: { mode: rw } }";
    const sandbox = `version: 1\nsandbox: { mode: sandboxed, zones: ${zones} }\npolicy: untrusted\n`;
    await writeFile(join(agents, "corral.yaml"), sandbox + (await blockWith("docs/agents.md", "yaml", "models:")));
    await cp(join(project, "workers/extract-text.worker"), join(agents, "workers/extract-text.worker"));
    const agent = await blockWith("docs/agents.md", "yaml", "name: summarise");
    await writeFile(join(agents, "workers/summarise.worker"), agent);
    await writeFile(join(agents, "played.yaml"), await blockWith("docs/agents.md", "yaml", "- say:"));
    const player =
      "---\nmodel: script/played.yaml\ntools: [list_files, read_file]\nsandbox: { inherit: true }\n---\nGo.\n";
    await writeFile(join(agents, "workers/player.worker"), player);
    for (const folder of ["notes", "text", "inbox"]) {
      await mkdir(join(agents, ".sandbox", folder), { recursive: true });
      await chown(join(agents, ".sandbox", folder), WORKER_UID, WORKER_UID);
    }
    await writeFile(join(agents, ".sandbox/inbox/a.md"), "# a\n");
    const { stdout } = await execute("corral", ["check"], { cwd: agents, env });
    expect(stdout).toContain("3 workers, 4 call paths: all would run");
    const played = await execute("corral", ["run", "player"], { cwd: agents, env });
    expect(played.stdout).toBe("Two documents.\n");
  });
});

describe("what docs/formats/approvals.md prints", () => {
  it("is a program that the compiler takes, and that decides", async () => {
    const printed = await blockWith("docs/formats/approvals.md", "ts", "callbackApprover(");
    const asked = (more: string) =>
      `(await approver.decide({ run: "r", root: "r", worker: "w", ${more} }, new AbortController().signal)).outcome`;
    const program = `import { callbackApprover, openProject } from "corral";
${printed}console.log(${asked('operations: ["write"], paths: ["/text/a"]')}, ${asked('operations: ["exec"], paths: []')});
`;
    await mkdir(join(project, "node_modules"), { recursive: true });
    await symlink(ROOT, join(project, "node_modules/corral")).catch(() => {});
    await symlink(join(ROOT, "node_modules/@types"), join(project, "node_modules/@types")).catch(() => {});
    await writeFile(join(project, "approver.mts"), program);
    const options = {
      target: "ES2022",
      module: "NodeNext",
      strict: true,
      noEmit: true,
      skipLibCheck: true,
      types: ["node"],
    };
    await writeFile(
      join(project, "tsconfig.json"),
      JSON.stringify({ compilerOptions: options, files: ["approver.mts"] }),
    );
    await execute(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "--checkers", "1", "-p", project]);
    const { stdout } = await execute(process.execPath, ["approver.mts"], { cwd: project, env });
    expect(stdout).toBe("approved denied\n");
  });
});
