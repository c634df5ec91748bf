import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, glob, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
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
    expect(JSON.parse(stdout).files).toEqual(
      expect.arrayContaining([".gitignore", "ci.yaml", ".github/workflows/corral.yml", ".github/corral/action.yml"]),
    );
  });

  it("holds nothing that the oldest Node it asks for does not know", async () => {
    const dist = join(dir, "node_modules", "corral", "dist");
    const files = (await readdir(dist, { recursive: true })).filter((file) => /\.c?js$/.test(file));
    expect(files).toEqual(expect.arrayContaining(["index.js", "cli/corral.cjs"]));
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

  it("lists what is in its program, with the digests of the lock file and the text of every licence, and doctor says where", async () => {
    const dist = join(dir, "node_modules/corral/dist");
    const { components, ...bom } = JSON.parse(await readFile(join(dist, "sbom.cdx.json"), "utf8"));
    expect(bom).toMatchObject({
      bomFormat: "CycloneDX",
      specVersion: "1.6",
      metadata: { component: { name: "corral" } },
    });
    const listed = new Map<string, Listed>(components.map((one: Listed) => [one.name, one]));
    const sources = await Array.fromAsync(glob("src/**/*.ts", { cwd: ROOT }), (file) =>
      readFile(join(ROOT, file), "utf8"),
    );
    const imported = sources
      .join("\n")
      .matchAll(/^(?:import|export) (?!type )[^;"]*?from "((?:@[\w.-]+\/)?[\w.-]+)[^"]*";/gm);
    const names = new Set(
      [...imported].map(([, name = ""]) => name).filter((name) => !/^node:|^(node|\.\.?)$/.test(name)),
    );
    expect(names).toContain("dockerode");
    expect([...names].filter((name) => !listed.has(name))).toEqual([]);

    const { packages } = JSON.parse(await readFile(join(ROOT, "package-lock.json"), "utf8"));
    const { version, integrity } = packages["node_modules/dockerode"];
    const content = Buffer.from(integrity.replace("sha512-", ""), "base64").toString("hex");
    const hashes = [{ alg: "SHA-512", content }];
    expect(listed.get("dockerode")).toMatchObject({ version, purl: `pkg:npm/dockerode@${version}`, hashes });

    const licences = (await readFile(join(dist, "THIRD-PARTY.txt"), "utf8")).split(/^-{80}$/m);
    expect(licences).toHaveLength(components.length);
    expect(licences.filter((text) => !/licen[sc]e|permission/i.test(text.replace(/^.*$/m, "")))).toEqual([]);

    const state = { ...env, CORRAL_STATE_DIR: join(dir, "state") };
    const { findings } = JSON.parse((await execute(corral, ["doctor", "--json"], { env: state })).stdout);
    const detail = `${components.length} in the program: ${join(dist, "sbom.cdx.json")}; licences: ${join(dist, "THIRD-PARTY.txt")}`;
    expect(findings).toContainEqual({ what: "packages", state: "ok", detail });
  });

  it("has what its pages link to", async () => {
    const at = join(dir, "node_modules", "corral");
    const all = (await readdir(at, { recursive: true })).filter((name) => !/^node_modules|^dist/.test(name));
    const pages = all.filter((name) => name.endsWith(".md"));
    expect(pages).toEqual(expect.arrayContaining(["docs/service.md", "examples/ci/README.md", "python/README.md"]));
    const broken: string[] = [];
    for (const page of pages) {
      const text = (await readFile(join(at, page), "utf8")).replace(/^```[\s\S]*?^```$|`[^`\n]*`/gm, "");
      for (const [, target = ""] of text.matchAll(/\]\(([^)\s#]+)[^)\s]*\)/g))
        if (!target.startsWith("https://") && !existsSync(join(at, page, "..", target)))
          broken.push(`${page}: ${target}`);
    }
    expect(broken).toEqual([]);
    expect(
      all.filter((name) => /__pycache__|\.work\/|\/tests?\//.test(name) && !name.startsWith("examples/ci/project")),
    ).toEqual([]);
  });

  it("holds no tests and no sources of its own, nor maps to these", async () => {
    const all = await readdir(join(dir, "node_modules", "corral"), { recursive: true });
    expect(all.filter((name) => name.endsWith(".map"))).toEqual([]);
    const files = await readdir(join(dir, "node_modules", "corral"));
    expect(files.sort()).toEqual([
      "AGENTS.md",
      "CHANGELOG.md",
      "CONTRIBUTING.md",
      "LICENSE",
      "README.md",
      "SECURITY.md",
      "action.yml",
      "compose",
      "compose.yaml",
      "dist",
      "docs",
      "examples",
      "images",
      "package.json",
      "policies",
      "python",
      "templates",
    ]);
  });
});

interface Listed {
  readonly name: string;
}

// This one is made with the umask 077 (test/tiers/engine-tier.ts).
it("a build is readable for all users, whatever the umask is", async () => {
  const { stdout } = await execute(
    "find",
    ["dist", "-type", "f", "!", "-perm", "-444", "-o", "-type", "d", "!", "-perm", "-555"],
    { cwd: ROOT },
  );
  expect(stdout).toBe("");
});
