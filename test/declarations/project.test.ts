import { chown, lstat, readdir, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { makeZoneFolders } from "../../src/declarations/place/zone-folder.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

async function problemsIn(dir: string): Promise<string[]> {
  try {
    await loadProject(dir);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(
      ({ file, line, column, path, message }) => `${file.replace(`${dir}/`, "")}:${line}:${column} ${path} ${message}`,
    );
  }
}

function project(corralYaml: string, files: Record<string, string> = {}) {
  return projectFolder({ "corral.yaml": corralYaml, ...files });
}

describe("a project's declaration", () => {
  it("is two writable zones under .sandbox, which are not made yet, where there is no corral.yaml", async () => {
    const dir = await projectFolder({ "notes.md": "" });
    const loaded = await loadProject(dir);
    expect(loaded).toEqual({
      dir,
      file: null,
      declaration: {
        mounts: [
          { name: "cache", path: "/cache", host: join(dir, ".sandbox/cache"), mode: "rw" },
          { name: "workspace", path: "/workspace", host: join(dir, ".sandbox/workspace"), mode: "rw" },
        ],
        rooted: false,
        ownPaths: true,
      },
      newZones: ["cache", "workspace"].map((name) => ({
        host: join(dir, ".sandbox", name),
        declared: expect.objectContaining({ path: `sandbox.zones.${name}`, line: 1 }),
      })),
      policyName: "default",
      policiesDir: null,
      fleetsDir: join(dir, "fleets"),
      ownFiles: expect.not.arrayContaining([dir]),
      approval: { mode: "interactive", timeoutMs: 300_000, inbox: "shared", rules: [] },
      delegation: { maxDepth: 5, maxCalls: 100, maxParallel: 4 },
      history: { days: 30, runs: 1000 },
      models: expect.any(Map),
      workers: new Map(),
      fleet: {},
      secrets: new Map(),
      registries: new Map(),
    });
    expect(await readdir(dir)).toEqual(["notes.md"]);
    await makeZoneFolders(loaded);
    expect(await readdir(join(dir, ".sandbox"))).toEqual(["cache", "workspace"]);
    expect((await loadProject(dir)).newZones).toEqual([]);
  });

  it("grants no files where corral.yaml says nothing about them, and makes no folder", async () => {
    const dir = await project(
      "version: 1\nfleet: { concurrency: 3, retries: 2, max_failures: 5, reuse: scrubbed, cache: false, timeout: 30s }\n",
    );
    const { declaration, file, fleet } = await loadProject(dir);
    expect({ declaration, file, fleet }).toEqual({
      declaration: { mounts: [], rooted: false, ownPaths: true },
      file: join(dir, "corral.yaml"),
      fleet: {
        concurrency: 3,
        retries: 2,
        maxFailures: 5,
        reuse: "scrubbed",
        cache: false,
        timeoutMs: 30_000,
      },
    });
    expect(await readdir(dir)).toEqual(["corral.yaml"]);
  });

  it("puts sandboxed zones at their path below the root, and direct ones at their path", async () => {
    const zones = "zones: { data: { path: ./data, mode: ro }, out: { path: ./deep/out, mode: rw, approval: ask } }";
    const files = { "data/": "", "deep/out/": "" };
    const sandboxed = await project(`version: 1\nsandbox: { mode: sandboxed, root: box, ${zones} }`, files);
    const direct = await project(`version: 1\nsandbox: { mode: direct, ${zones} }`, files);
    const hosts = async (dir: string) =>
      (await loadProject(dir)).declaration.mounts.map(({ host }) => host.replace(dir, ""));
    expect(await hosts(sandboxed)).toEqual(["/box/data", "/box/deep/out"]);
    expect(await hosts(direct)).toEqual(["/data", "/deep/out"]);
    expect((await loadProject(direct)).declaration.mounts[1]).toMatchObject({
      mode: "rw",
      approval: { write: "ask", delete: "ask" },
    });
  });

  it("takes paths with constraints, single files, and links in the owner's own configuration", async () => {
    const text = `version: 1
sandbox:
  paths:
    portfolio: { root: ./linked, mode: rw, suffixes: [.PDF, md], max_file_bytes: 10m, description: What we own }
    rules: { root: rules.txt }
  network: { allow: ["example.org:443"] }
  limits: { timeout: 1h }
  working_dir: portfolio/drafts
`;
    const dir = await project(text, { "real/": "", "rules.txt": "" });
    await symlink("real", join(dir, "linked"));
    expect((await loadProject(dir)).declaration).toEqual({
      mounts: [
        {
          name: "portfolio",
          path: "/portfolio",
          host: join(dir, "real"),
          mode: "rw",
          suffixes: [".md", ".pdf"],
          maxFileBytes: 10_485_760,
        },
        { name: "rules", path: "/rules", host: join(dir, "rules.txt"), mode: "ro" },
      ],
      rooted: false,
      network: { allow: [{ to: "example.org:443" }] },
      limits: { timeoutMs: 3_600_000 },
      workingDir: "/portfolio/drafts",
    });
  });

  it("takes a root, which appears as /", async () => {
    const dir = await project("version: 1\nsandbox: { root: { root: ., readonly: true, suffixes: [.md] } }");
    expect((await loadProject(dir)).declaration).toEqual({
      mounts: [{ name: "/", path: "/", host: dir, mode: "ro", suffixes: [".md"] }],
      rooted: true,
    });
  });

  it("is found through a link to the project", async () => {
    const dir = await project("version: 1\nsandbox: { mode: direct, zones: { data: { path: ./data } } }", {
      "data/": "",
    });
    const links = await projectFolder({});
    await symlink(dir, join(links, "here"));
    expect((await loadProject(join(links, "here"))).declaration.mounts[0]?.host).toBe(join(dir, "data"));
  });

  it("reads the rest of corral.yaml", async () => {
    const text = `version: 1
policy: strict
policies: ./rules
workers: ./jobs
approval: { mode: auto_deny, timeout: 30s }
delegation: { max_depth: 2, max_calls: 9, max_parallel: 1 }
`;
    const dir = await project(text, {
      "rules/": "",
      "jobs/a.worker": "---\ncommand: [a]\n---\n",
      "jobs/README.md": "",
    });
    const { policyName, policiesDir, approval, delegation, workers } = await loadProject(dir);
    expect({ policyName, policiesDir, approval, delegation, workers: [...workers.keys()] }).toEqual({
      policyName: "strict",
      policiesDir: join(dir, "rules"),
      approval: { mode: "auto_deny", timeoutMs: 30_000, inbox: "shared", rules: [] },
      delegation: { maxDepth: 2, maxCalls: 9, maxParallel: 1 },
      workers: ["a"],
    });
  });
});

describe("zone folders", () => {
  it.runIf(process.getuid?.() === 0)(
    "that root makes belong to the project's owner, or to nobody in a project of root",
    async () => {
      const ofRoot = await projectFolder({});
      await makeZoneFolders(await loadProject(ofRoot));
      const owners = async (dir: string) =>
        Promise.all([".sandbox", ".sandbox/cache"].map(async (path) => (await stat(join(dir, path))).uid));
      expect(await owners(ofRoot)).toEqual([0, 65532]);

      const ofSomebody = await projectFolder({});
      await chown(ofSomebody, 1234, 1234);
      await makeZoneFolders(await loadProject(ofSomebody));
      expect(await owners(ofSomebody)).toEqual([1234, 1234]);
    },
  );

  it.runIf(process.getuid?.() === 0)("that exist keep their owner", async () => {
    const dir = await projectFolder({ ".sandbox/cache/": "" });
    await makeZoneFolders(await loadProject(dir));
    expect((await stat(join(dir, ".sandbox/cache"))).uid).toBe(0);
  });

  it("are neither made nor found outside of the project through a link", async () => {
    const outside = await projectFolder({ "cache/": "" });
    const dir = await projectFolder({});
    await symlink(outside, join(dir, ".sandbox"));
    expect((await problemsIn(dir))[0]).toContain("leads out of the project through a symbolic link");
    expect(await readdir(outside)).toEqual(["cache"]);

    const dangling = await projectFolder({});
    await symlink(join(outside, "new"), join(dangling, ".sandbox"));
    expect((await problemsIn(dangling))[0]).toContain("does not exist");
    await expect(lstat(join(outside, "new"))).rejects.toThrow("ENOENT");
  });

  it.each(["../elsewhere", ".", "./x/..", "/tmp"])("stay below the project, whatever root says: %s", async (root) => {
    const dir = await project(`version: 1\nsandbox:\n  root: ${root}\n  zones: { a: {}, b: {} }\n`);
    expect(await problemsIn(dir)).toEqual([
      "corral.yaml:3:9 sandbox.root must be a folder below the project; write `root: { root: . }` to give the project itself as `/`",
    ]);
    expect(await readdir(dir)).toEqual(["corral.yaml"]);
  });

  it.each(["../out", ".", "/tmp"])("stay below their root, whatever their path says: %s", async (path) => {
    const dir = await project(`version: 1\nsandbox:\n  zones: { a: { path: ${path} } }\n`);
    expect(await problemsIn(dir)).toEqual([
      "corral.yaml:3:23 sandbox.zones.a.path must be a folder below `root` with `mode: sandboxed`",
    ]);
  });

  it("are folders: a file in the place of one is refused", async () => {
    const dir = await projectFolder({ ".sandbox/cache": "" });
    expect((await problemsIn(dir))[0]).toContain("is not a folder");
  });

  it("are not made through a link that came after the project was read", async () => {
    const outside = await projectFolder({});
    const dir = await projectFolder({});
    const loaded = await loadProject(dir);
    await symlink(outside, join(dir, ".sandbox"));
    await expect(makeZoneFolders(loaded)).rejects.toThrow("a symbolic link that was made meanwhile");
    expect(await readdir(outside)).toEqual([]);
  });
});

describe("problems of a project", () => {
  it("come from all its files at once, in their order", async () => {
    const dir = await project("version: 2\nsandbox:\n  zones: { data: { mode: rx }, etc: {} }\npolice: x\n", {
      "workers/a.worker": "---\ncommand: ls\n---\n",
      "workers/b.worker": "---\ncommand: [ls]\ncalls: [a, c]\n---\n",
    });
    expect(await problemsIn(dir)).toEqual([
      "corral.yaml:1:10 version must be 1, not 2",
      'corral.yaml:3:26 sandbox.zones.data.mode must be "ro" or "rw", not "rx"',
      "corral.yaml:3:32 sandbox.zones.etc is reserved: it would hide a system directory of the cell",
      "corral.yaml:4:1 police unknown key `police`, did you mean `policy`?",
      "workers/a.worker:2:10 command must be a list of words; write it as [ls]",
      "workers/b.worker:3:12 calls.1 `b` cannot call `c`, which does not exist, did you mean `a`?",
    ]);
    expect(await readdir(dir)).toEqual(["corral.yaml", "workers"]);
  });

  it("has workers that are only for sessions, which no other calls or has as a service", async () => {
    const dir = await project("version: 1\n", {
      "workers/desk.worker": "---\n{}\n---\n",
      "workers/b.worker": "---\ncommand: [ls]\ncalls: [desk]\nservices: { db: { worker: desk, ports: [80] } }\n---\n",
    });
    expect(await problemsIn(dir)).toEqual([
      "workers/b.worker:3:9 calls.0 `b` cannot call `desk`, which has no `command` and is only for sessions",
      "workers/b.worker:4:27 services.db.worker `desk` has no `command` and is only for sessions",
    ]);
  });

  it.each([
    ["{ zones: {}, paths: {} }", "`zones` and `paths` cannot be used together"],
    ["{ zones: {}, root: { root: . } }", "`zones` and `root` cannot be used together"],
    ["{ paths: {}, root: . }", "`paths` and `root` cannot be used together"],
    ["{ root: . }", "write `root: { root: FOLDER }` to give it as `/`"],
    ["{ mode: sandboxed, root: . }", "must be a folder below the project"],
    ["{ mode: direct, paths: {} }", "`paths` and `mode` cannot be used together"],
    ["{ network: true }", "declares no files; use exactly one of zones, paths, root"],
    ["{ mode: direct, root: x, zones: {} }", "is only for `mode: sandboxed`"],
    ["{ mode: direct }", "`direct` needs `zones`"],
    ["{ mode: direct, zones: { a: {} } }", "is missing; `mode: direct` needs it"],
    ["{ mode: direct, zones: { a: { path: ./none } } }", "does not exist"],
    ["{ paths: { a: { root: ./none } } }", "does not exist"],
    ["{ root: { root: ./corral.yaml } }", "is not a folder"],
    ["{ zones: { .a: {} } }", "not begin with a dot"],
    ["{ zones: { a: {} }, working_dir: /b }", "is outside of the declared folders: /a"],
    ["{ zones: { a: {} }, working_dir: ~/b }", "there is no home directory"],
    ["{ zones: { a: {} }, network: { allow: [x] } }", "a port is missing"],
  ])("sandbox: %s is refused at a place in the file", async (sandbox, expected) => {
    const problems = await problemsIn(await project(`version: 1\nsandbox: ${sandbox}\n`));
    expect(problems[0]).toMatch(/^corral\.yaml:2:\d+ sandbox/);
    expect(problems.join("\n")).toContain(expected);
  });

  it("are misspelt zones, each with the nearest name that the project or any worker's own paths have", async () => {
    const worker = (zones: string) => `---\ncommand: [cat]\nsandbox: { ${zones} }\n---\n`;
    const files = {
      "data/": "",
      "workers/a.worker": worker("zones: [{ name: dta }, { name: data }, { name: scratch }, { name: scrtch }]"),
      "workers/b.worker": worker("paths: { scratch: { root: ./data } }"),
      // It is refused when it is run: it may be of another project.
      "workers/c.worker": worker("zones: [{ name: far-off }]"),
    };
    const dir = await project("version: 1\nsandbox: { mode: direct, zones: { data: { path: ./data } } }\n", files);
    expect(await problemsIn(dir)).toEqual([
      "workers/a.worker:3:28 sandbox.zones.0.name the project has no zone `dta`, did you mean `data`?",
      "workers/a.worker:3:78 sandbox.zones.3.name the project has no zone `scrtch`, did you mean `scratch`?",
    ]);
  });

  it("name a folder that corral.yaml names and that is not there", async () => {
    const dir = await project("version: 1\nworkers: ./jobs\npolicies: corral.yaml\n");
    expect(await problemsIn(dir)).toEqual([
      "corral.yaml:2:10 workers does not exist",
      "corral.yaml:3:11 policies is not a folder",
    ]);
  });

  it("hold those of the workers even where corral.yaml cannot be read", async () => {
    const dir = await project("version: [1\n", { "workers/a.worker": "nothing" });
    expect((await problemsIn(dir)).map((text) => text.split(" ")[0])).toEqual([
      "corral.yaml:2:1",
      "workers/a.worker:1:1",
    ]);
  });

  it("say so where the project itself is missing, or a worker is a folder", async () => {
    const dir = await projectFolder({ "workers/a.worker/": "" });
    expect(await problemsIn(dir)).toEqual(["workers/a.worker:1:1  is a folder, not a file"]);
    await expect(loadProject(join(dir, "none"))).rejects.toThrow("the project's folder does not exist");
  });
});
