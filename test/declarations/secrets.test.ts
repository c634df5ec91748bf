import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadProject } from "../../src/declarations/project.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

const DATA = "sandbox:\n  paths: { data: { root: data, mode: ro }, out: { root: out, mode: rw } }\n";

async function project(yaml: string, worker = "") {
  const dir = await projectFolder({
    "corral.yaml": `version: 1\n${yaml}`,
    "data/key": "k",
    "out/key": "k",
    "safe/key": "k",
    ...(worker === "" ? {} : { "workers/w.worker": worker }),
  });
  const problems = await loadProject(dir, { HOME: join(dir, "safe") }).then(
    () => [],
    (error: unknown) => (error as DeclarationError).problems.map(({ path, message }) => `${path}: ${message}`),
  );
  return { dir, problems };
}

describe("secrets of corral.yaml", () => {
  it("are sources by name", async () => {
    const dir = await projectFolder({
      "corral.yaml":
        "version: 1\nsecrets:\n  a: { env: KEY }\n  b: { command: [pass, show, b] }\n  c: { file: ~/key }\n",
      "safe/key": "k",
    });
    const { secrets, ownFiles } = await loadProject(dir, { HOME: join(dir, "safe") });
    expect([...secrets]).toEqual([
      ["a", { kind: "env", name: "KEY" }],
      ["b", { kind: "command", program: "pass", args: ["show", "b"] }],
      ["c", { kind: "file", path: "~/key" }],
    ]);
    expect(ownFiles).toContain(join(dir, "safe/key"));
  });

  it("have exactly one source, in the right form", async () => {
    const { problems } = await project(
      "secrets:\n  a: {}\n  b: { env: A, file: /b }\n  c: { file: key }\n  d: { file: ~other/key }\n  '.e': { env: A }\n",
    );
    expect(problems).toEqual([
      expect.stringContaining("secrets.a: needs exactly one of `env`, `file` and `command`"),
      expect.stringContaining("secrets.b: needs exactly one of"),
      expect.stringContaining("secrets.c.file: must be an absolute path, or begin with `~/`"),
      expect.stringContaining("secrets.d.file: must be an absolute path"),
      expect.stringContaining("secrets..e: must be 1 to 64"),
    ]);
  });

  it("are not in a file that a worker reads or writes, or that does not exist", async () => {
    const dir = await projectFolder({ "data/key": "k", "out/key": "k" });
    const secrets = ["data", "out", "none"].map((name) => `  ${name}: { file: ${join(dir, name, "key")} }\n`);
    await writeFile(join(dir, "corral.yaml"), `version: 1\n${DATA}secrets:\n${secrets.join("")}`);
    const error = await loadProject(dir).catch((caught: DeclarationError) => caught);
    expect(error).toBeInstanceOf(DeclarationError);
    expect((error as DeclarationError).problems.map(({ path, message }) => `${path}: ${message}`)).toEqual([
      "secrets.data.file: is where a worker may read; put the secret outside of every directory that the project gives",
      "secrets.out.file: is where a worker may write; a worker could change what Corral runs there",
      "secrets.none.file: does not exist",
    ]);
  });

  it("are not below a home that is not known", async () => {
    const dir = await projectFolder({ "corral.yaml": "version: 1\nsecrets: { a: { file: ~/key } }\n" });
    await expect(loadProject(dir)).rejects.toThrow("Corral does not know your home");
  });

  it("are known wherever a rule sets one", async () => {
    const rule = (name: string) => `{ to: "api.example:443", set: { x-key: { secret: ${name} } } }`;
    const yaml = `sandbox:\n  zones: {}\n  network: { allow: [ ${rule("api_kee")} ] }\nsecrets: { api_key: { env: KEY } }\n`;
    const worker = `---\nimage: corral/base\ncommand: [/bin/true]\nsandbox:\n  network: { allow: [ ${rule("other")}, ${rule("api_key")} ] }\n---\n`;
    const { problems } = await project(yaml, worker);
    expect(problems).toEqual([
      "sandbox.network.allow.0.set.x-key.secret: there is no secret `api_kee`, did you mean `api_key`?",
      "sandbox.network.allow.0.set.x-key.secret: there is no secret `other`; there are: api_key",
    ]);
  });
});

describe("presets and lock files of a project", () => {
  const LOCK = '{"lockfileVersion":3,"packages":{}}';

  it("become rules with the registries of the user and of the machine", async () => {
    const dir = await projectFolder({
      "corral.yaml": "version: 1\nsandbox:\n  zones: {}\n  network: { packages: [npm, pypi] }\n",
      "home/.npmrc": "registry=https://npm.example/\n",
      "machine/etc/pip.conf": "[global]\nindex-url=https://pypi.example/simple\n",
    });
    const { declaration, registries } = await loadProject(dir, { HOME: join(dir, "home") }, join(dir, "machine"));
    expect(declaration.network).toMatchObject({
      allow: [{ to: "npm.example:443", methods: ["GET", "HEAD"] }, { to: "pypi.example:443" }],
      limits: { uploadBytes: 4 * 1024 * 1024 },
    });
    expect([...registries.keys()]).toEqual(["npm", "pypi"]);
  });

  it("have an upload budget only if there is no other rule, and not in place of a declared one", async () => {
    const network = async (text: string) => {
      const dir = await projectFolder({ "corral.yaml": `version: 1\nsandbox:\n  zones: {}\n  network: ${text}\n` });
      return (await loadProject(dir, {}, dir)).declaration.network;
    };
    expect(await network('{ allow: ["a.example:443"], packages: [npm] }')).not.toHaveProperty("limits");
    expect(await network("{ packages: [npm], limits: { upload: 2k, requests: 5 } }")).toMatchObject({
      limits: { uploadBytes: 2048, requests: 5 },
    });
  });

  it("are read-only for every worker, whether it is there or not", async () => {
    const yaml = "sandbox:\n  root: { root: . }\n  network: { lockfiles: [app/package-lock.json] }\n";
    const dir = await projectFolder({ "corral.yaml": `version: 1\n${yaml}`, "app/package-lock.json": LOCK });
    const { declaration, ownFiles } = await loadProject(dir, {}, dir);
    expect(ownFiles).toContain(join(dir, "app/package-lock.json"));
    expect(declaration.mounts.find(({ path }) => path === "/app")).toMatchObject({ mode: "ro" });

    const worker =
      "---\nimage: corral/base\ncommand: [/bin/true]\nsandbox:\n  network: { lockfiles: [sub/Cargo.lock] }\n---\n";
    const other = await projectFolder({ "corral.yaml": "version: 1\n", "workers/w.worker": worker });
    await mkdir(join(other, "sub"));
    expect((await loadProject(other, {}, other)).ownFiles).toContain(join(other, "sub/Cargo.lock"));
  });

  it("are problems of corral.yaml at their place", async () => {
    const dir = await projectFolder({
      "corral.yaml":
        "version: 1\nsandbox:\n  zones: {}\n  network:\n    lockfiles:\n      - yarn.lock\n      - package-lock.json\n",
      "package-lock.json": '{"lockfileVersion":3,"packages":{\n"node_modules/a":{"version":"1.0.0"}}}',
    });
    const error = (await loadProject(dir, {}, dir).catch((caught: unknown) => caught)) as DeclarationError;
    expect(error.problems.map(({ line, path, message }) => `${line} ${path}: ${message}`)).toEqual([
      expect.stringMatching(/^6 sandbox\.network\.lockfiles\.0: is not a lock file that Corral knows/),
      expect.stringMatching(
        /^7 sandbox\.network\.lockfiles\.1: package-lock\.json:2: `node_modules\/a` has no `integrity`/,
      ),
    ]);
  });
});

describe("secrets inside of workers", () => {
  const SOURCES = "secrets: { github: { env: GITHUB_TOKEN }, npm: { env: NPM_TOKEN } }\n";
  const worker = (front: string): string => `---\ncommand: [w]\n${front}---\n`;

  it("are named by the project and by the worker", async () => {
    const dir = await projectFolder({
      "corral.yaml": `version: 1\nsandbox: { zones: {}, secrets: [npm, github] }\n${SOURCES}`,
      "workers/w.worker": worker("secrets: [npm, npm]\n"),
      "workers/x.worker": worker(""),
    });
    const { declaration, workers } = await loadProject(dir);
    expect(declaration.secrets).toEqual(["npm", "github"]);
    expect(workers.get("w")?.needs.secrets).toEqual(["npm"]);
    expect(workers.get("x")?.needs).not.toHaveProperty("secrets");
  });

  it("that do not exist are told at their place, with the nearest that does", async () => {
    const dir = await projectFolder({
      "corral.yaml": `version: 1\nsandbox:\n  zones: {}\n  secrets: [npm, githbu]\n${SOURCES}`,
      "workers/w.worker": worker("secrets:\n  - npm\n  - githbu\n  - other\n"),
    });
    const error = await loadProject(dir).catch((caught: DeclarationError) => caught);
    expect(
      (error as DeclarationError).problems.map(({ line, column, path, message }) => [line, column, path, message]),
    ).toEqual([
      [4, 18, "sandbox.secrets.1", "there is no secret `githbu`, did you mean `github`?"],
      [5, 5, "secrets.1", "there is no secret `githbu`, did you mean `github`?"],
      [6, 5, "secrets.2", "there is no secret `other`; there are: github, npm"],
    ]);
  });

  it("are lists of names, of a bounded length", async () => {
    const many = Array.from({ length: 17 }, (_, index) => `s${index}`).join(", ");
    const dir = await projectFolder({
      "corral.yaml": `version: 1\n${SOURCES}`,
      "workers/a.worker": worker("secrets: npm\n"),
      "workers/b.worker": worker("secrets: [../npm]\n"),
      "workers/c.worker": worker(`secrets: [${many}]\n`),
      "workers/d.worker": worker("secret: [npm]\n"),
    });
    const error = await loadProject(dir).catch((caught: DeclarationError) => caught);
    expect((error as DeclarationError).problems.map(({ path, message }) => `${path}: ${message}`)).toEqual([
      expect.stringMatching(/^secrets: .*list/),
      expect.stringMatching(/^secrets\.0: must be 1 to 64/),
      expect.stringMatching(/^secrets: .*16/),
      expect.stringMatching(/^secret: .*`secrets`/),
    ]);
  });
});
