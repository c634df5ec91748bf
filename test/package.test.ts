import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, "..");
// The package asks for the Node that runs these tests, whichever one the system has.
const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env.PATH}` };

describe("the package, packed and installed elsewhere", () => {
  let dir = "";
  let corral = "";
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "corral-pack-"));
    // `npm test` has built dist/ already; building it again would pull it away from under other tests.
    await execute("npm", ["pack", "--ignore-scripts", "--pack-destination", dir], { cwd: ROOT, env });
    const [tarball = ""] = await readdir(dir);
    await execute(
      "npm",
      ["install", "--prefix", dir, "--no-audit", "--no-fund", "--prefer-offline", join(dir, tarball)],
      { cwd: dir, env },
    );
    corral = join(dir, "node_modules", ".bin", "corral");
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  it("has the command", async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
    expect((await execute(corral, ["--version"], { env })).stdout).toBe(`${version}\n`);
  });

  it("brings its policies and images, and runs a project", async () => {
    const state = { ...env, CORRAL_STATE_DIR: join(dir, "state") };
    const checked = await execute(corral, ["check", "--project", join(ROOT, "examples", "inbox")], { env: state });
    expect(checked.stdout).toMatch(/all would run/);
    const images = await execute(corral, ["images", "ls", "--json"], { env: state });
    expect(
      JSON.parse(images.stdout)
        .map(({ name }: { name: string }) => name)
        .sort(),
    ).toEqual(["base", "documents", "node", "python"]);
  });

  it("is a library", async () => {
    const program = `import { openProject } from "corral"; import { derive, sandboxOf } from "corral/sandbox";
      console.log(typeof openProject, typeof derive, typeof sandboxOf);`;
    const { stdout } = await execute(process.execPath, ["--input-type=module", "-e", program], { cwd: dir, env });
    expect(stdout).toBe("function function function\n");
  });

  it("checks values aside, in the bundled command line and in the library", async () => {
    const project = join(dir, "schemas");
    await mkdir(join(project, "workers"), { recursive: true });
    await writeFile(join(project, "corral.yaml"), "version: 1\nsandbox: { mode: sandboxed }\n");
    const schema = "{ type: object, properties: { id: { type: string, pattern: '^[a-z]+$' } } }";
    await writeFile(join(project, "workers", "w.worker"), `---\ncommand: ["true"]\ninput_schema: ${schema}\n---\n`);
    const state = { ...env, CORRAL_STATE_DIR: join(dir, "state") };
    const asked = ["run", "w", "--project", project, "--input", '{"id":"ABC"}'];
    const refused = await execute(corral, asked, { env: state }).catch((error: { stderr: string }) => error);
    expect(refused.stderr).toContain('/id must match pattern "^[a-z]+$"');
    const program = `import { openProject } from "corral";
      await using project = await openProject(${JSON.stringify(project)}, { env: process.env });
      console.log((await project.run("w", { input: { id: "ABC" } })).error.message);`;
    const ran = await execute(process.execPath, ["--input-type=module", "-e", program], { cwd: dir, env: state });
    expect(ran.stdout).toContain('/id must match pattern "^[a-z]+$"');
  });

  it("runs the library's examples, a container among them", async () => {
    const examples = join(dir, "examples");
    await cp(join(ROOT, "examples", "library"), examples, {
      recursive: true,
      filter: (path) => basename(path) !== ".work",
    });
    const state = { ...env, CORRAL_STATE_DIR: join(dir, "state") };
    const derived = await execute(process.execPath, [join(examples, "derive.ts")], { env });
    expect(derived.stdout).toContain("true false read");
    expect((await execute(process.execPath, [join(examples, "files.ts")], { env })).stdout).toContain("- mow hay");
    const ran = await execute(process.execPath, [join(examples, "agent.ts")], { env: state });
    expect(ran.stdout).toContain("applied create /notes/length.txt");
  });

  it("writes a project with all files of its template, .gitignore too, which no package of npm can hold", async () => {
    const program = join(dir, "node_modules", "corral", "dist", "cli", "corral.cjs");
    const { stdout } = await execute(process.execPath, [program, "init", "ci", join(dir, "ci"), "--json"], { env });
    expect(JSON.parse(stdout).files).toEqual([".gitignore", "code/test.sh", "corral.yaml", "workers/test.worker"]);
  });

  it("holds nothing that the oldest Node it asks for does not know", async () => {
    const dist = join(dir, "node_modules", "corral", "dist");
    const files = (await readdir(dist, { recursive: true })).filter((file) => file.endsWith(".js"));
    expect(files).toContain("index.js");
    const younger = /^\s*(for )?\(?(const )?(await )?using \w+ (=|of)|\bnew (Async)?DisposableStack\b/m;
    const found: string[] = [];
    for (const file of files) if (younger.test(await readFile(join(dist, file), "utf8"))) found.push(file);
    expect(found).toEqual([]);
  });

  it("brings one other package, and takes less than 60 MB", async () => {
    const modules = join(dir, "node_modules");
    expect((await readdir(modules)).filter((name) => !name.startsWith("."))).toEqual(["corral", "zod"]);
    const { stdout } = await execute("du", ["-sm", modules]);
    expect(Number.parseInt(stdout, 10)).toBeLessThan(60);
    const licences = await readFile(join(modules, "corral/dist/THIRD-PARTY.txt"), "utf8");
    expect(licences).toMatch(/^dockerode \d/m);
    expect(licences).not.toMatch(/^ssh2 \d/m);
  });

  it("holds no tests, no examples and no sources, nor maps to these", async () => {
    const all = await readdir(join(dir, "node_modules", "corral"), { recursive: true });
    expect(all.filter((name) => name.endsWith(".map"))).toEqual([]);
    const files = await readdir(join(dir, "node_modules", "corral"));
    expect(files.sort()).toEqual([
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "dist",
      "docs",
      "images",
      "package.json",
      "policies",
      "templates",
    ]);
  });
});
