import { execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { loadPolicy } from "../../../src/declarations/policy/policy.ts";
import { loadProject } from "../../../src/declarations/project.ts";
import { judgeGrant } from "../../../src/run/grants/judge.ts";
import { suggestedConfiguration } from "../../../src/run/grants/suggestion/suggestion.ts";
import type { RunEnvironment } from "../../../src/run/model/environment.ts";
import type { DirectoryGrantRecord } from "../../../src/run/model/grantee.ts";
import { permissionOf, rootSandbox } from "../../../src/run/model/permission.ts";
import { carve, governingMount } from "../../../src/sandbox/access.ts";
import { projectSandbox } from "../../../src/sandbox/declare.ts";
import { originOf } from "../../../src/sandbox/mount.ts";
import { projectFolder } from "../../declarations/project-folder.ts";
import { at, child } from "../../sandbox/sandboxes.ts";
import { level } from "./chain.ts";

const ZONES = `version: 1
sandbox:
  mode: direct
  zones:
    inbox: { path: ./p/inbox } # what comes in
    out: { path: ./p/out, mode: rw }
workers: ./w
`;

type Asked = readonly [directory: string, mode: "read" | "write", mount?: string];

/** A project whose worker `w` was granted these; a directory that begins with `./` is one of the host. */
async function suggested(workers: Readonly<Record<string, string>>, asked: readonly Asked[], yaml = ZONES) {
  const files = Object.fromEntries(Object.entries(workers).map(([name, text]) => [`w/${name}.worker`, text]));
  const folders = { "p/inbox/2024/": "", "p/out/": "", "src/deep/": "", "other/": "" };
  const dir = await projectFolder({ "corral.yaml": yaml, ...files, ...folders });
  const grants = asked.map(([directory, mode, mount = null], index): DirectoryGrantRecord => {
    const host = mount === null ? join(dir, directory) : join(dir, "p", directory);
    return {
      id: `${index}`,
      run: "r",
      root: "r",
      worker: "w",
      through: ["w"],
      granted: Object.keys(workers),
      directory: mount === null ? host : directory,
      host,
      mount,
      mode,
      scope: "session",
      why: "",
      grantedAt: "",
    };
  });
  const project = await loadProject(dir);
  const suggestion = suggestedConfiguration({
    project: { dir, file: "corral.yaml", text: yaml },
    mounts: project.declaration.mounts,
    workers: new Map(Object.entries(workers).map(([name, text]) => [name, { file: `w/${name}.worker`, text }])),
    grants,
  });
  return { dir, grants, suggestion };
}

/** What of the grants a run of `w` would still have to ask for, when the suggested files are in their places. */
async function stillAsked({ dir, grants, suggestion }: Awaited<ReturnType<typeof suggested>>): Promise<string[]> {
  for (const { file, text } of suggestion.files) await writeFile(join(dir, file), text);
  const project = await loadProject(dir);
  const env = { project, policyNamed: (name: string) => loadPolicy(name, { dirs: [] }) } as unknown as RunEnvironment;
  const root = await rootSandbox(env, null);
  const worker = project.workers.get("w");
  if (worker === undefined) throw new Error("the project is not what it was");
  const derivation = await permissionOf(worker, root, null, env);
  if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations));
  const { sandbox } = derivation;
  return grants
    .filter(({ directory, host, mode }) => {
      // By the same path as before.
      const mount = governingMount(sandbox, at(directory));
      if (mount === undefined || originOf(carve(mount, at(directory))) !== host) return true;
      return mode === "write" && (mount.mode !== "rw" || mount.approval?.write !== "pre_approved");
    })
    .map(({ directory, mode }) => `${mode} ${directory}`);
}

const worker = (sandbox: string) => `---
# what it is for
command: [ls] # nothing else
${sandbox}
---
For people.
`;

describe("the suggested configuration", () => {
  it.each([
    ["of a worker with paths", "sandbox: { dynamic: true, paths: { in: { root: ./p/inbox } } }"],
    [
      "of a worker with paths on lines of their own",
      "sandbox:\n  dynamic: true\n  paths:\n    in: { root: ./p/inbox }",
    ],
    ["of a worker without files", "sandbox: { dynamic: true }"],
    ["of a worker with zones", "sandbox:\n  dynamic: true\n  zones:\n  - name: out # made\n  - { name: inbox }"],
  ])("%s needs no question any more, and keeps the comments", async (_, sandbox) => {
    const made = await suggested({ w: worker(sandbox) }, [
      ["/out", "write", "out"],
      ["./src/deep", "read"],
      ["./other", "write"],
    ]);
    expect(await stillAsked(made)).toEqual([]);
    const text = made.suggestion.files.at(-1)?.text ?? "";
    for (const kept of ["# what it is for", "# nothing else", "For people."]) expect(text).toContain(kept);
    expect(made.suggestion.notes).toEqual([]);
  });

  it("of a worker without files stays under the project's names where it needs no others", async () => {
    const made = await suggested({ w: worker("sandbox: { dynamic: true }") }, [["/inbox/2024", "read", "inbox"]]);
    expect(made.suggestion.files[0]?.text).toContain("allow_read: [ /inbox/2024 ]");
    expect(await stillAsked(made)).toEqual([]);
  });

  it("adds to what a worker may write, and lets it read what it could", async () => {
    const made = await suggested({ w: worker("sandbox: { dynamic: true, allow_write: [/out] }") }, [
      ["/inbox", "read", "inbox"],
    ]);
    expect(made.suggestion.files[0]?.text).toContain("allow_read: [ /out, /inbox ]");
    expect(await stillAsked(made)).toEqual([]);
  });

  it("adds a zone to the project where a worker asks by zones, once for all workers that need it", async () => {
    const zones = "sandbox: { dynamic: true, zones: [{ name: out }] }";
    const made = await suggested({ w: worker(zones), v: worker(zones) }, [
      ["./src", "read"],
      ["./src", "write"],
    ]);
    const [project, ...workers] = made.suggestion.files;
    expect(project).toMatchObject({ file: "corral.yaml" });
    expect(project?.text).toContain(
      `    src: { path: ./src, at: ${made.dir}/src, mode: rw, approval: { write: pre_approved } }\n`,
    );
    expect(project?.text).toContain("# what comes in");
    for (const { text } of workers)
      expect(text).toContain("{ name: src, mode: rw, approval: { write: pre_approved } }");
    expect(await stillAsked(made)).toEqual([]);
  });

  it("leaves to be granted what was granted for reading alone, and gives it when that was granted, too", async () => {
    const files = { w: worker("sandbox: { dynamic: true, zones: [{ name: out }] }") };
    const made = await suggested(files, [["./src", "read"]]);
    const [project, own] = made.suggestion.files;
    expect(project?.text).toContain(`    src: { path: ./src, at: ${made.dir}/src, grantable: rw }\n`);
    expect(await stillAsked(made)).toEqual([]);
    const { declaration } = await loadProject(made.dir);
    const root = projectSandbox(declaration, await loadPolicy("default", { dirs: [] }));
    const asked = { directory: at(`${made.dir}/src`), mode: "write" } as const;
    const grounds = { project: root, ownFiles: [], refusalOf: () => null };
    const judgement = judgeGrant(asked, [level("w", child(root, { zones: [{ name: "src" }] }))], grounds);
    expect(judgement).toMatchObject({ ok: true, had: false });
    // The next patch, over the files of the first one.
    const again = await suggested({ w: own?.text ?? "" }, [["./src", "write", "src"]], project?.text);
    const [next] = again.suggestion.files;
    expect(next?.text).toMatch(/src: \{ path: \.\/src, at: \S+\/src, mode: rw, approval: \{ write: pre_approved \} \}/);
  });

  it("upgrades what a worker declares for reading already", async () => {
    const made = await suggested({ w: worker("sandbox: { dynamic: true, paths: { out: { root: ./p/out } } }") }, [
      ["/out", "write", "out"],
    ]);
    expect(made.suggestion.files[0]?.text).toContain(
      "out: { root: ./p/out, mode: rw, approval: { write: pre_approved } }",
    );
    expect(await stillAsked(made)).toEqual([]);
  });

  it("says what the project's form has no place for", async () => {
    const sandboxed = "version: 1\nworkers: ./w\nsandbox: { mode: sandboxed, zones: { out: { mode: rw } } }\n";
    const made = await suggested(
      { w: worker("sandbox: { dynamic: true, zones: [{ name: out }] }") },
      [["./src", "read"]],
      sandboxed,
    );
    expect(made.suggestion.files).toEqual([]);
    expect(made.suggestion.notes).toEqual([expect.stringContaining(`has no place for ${made.dir}/src`)]);
  });

  it("does not say less agreement than the project asks for", async () => {
    const yaml = ZONES.replace("mode: rw }", "mode: rw, approval: ask }");
    const made = await suggested(
      { w: worker("sandbox: { dynamic: true, zones: [{ name: inbox }] }") },
      [["/out", "write", "out"]],
      yaml,
    );
    expect(made.suggestion.files.at(-1)?.text).toContain("{ name: out, mode: rw }");
    await stillAsked(made);
  });

  it("gives names that a folder can have: none that is reserved, taken, or none at all", async () => {
    const made = await suggested({ w: worker("sandbox: { dynamic: true, paths: { tmp-2: { root: ./p } } }") }, [
      ["./src/etc", "read"],
      ["./other/.hidden dir", "read"],
      ["./other/etc", "read"],
    ]);
    const { paths } = (await import("yaml")).parse(made.suggestion.files.at(-1)?.text.split("---\n")[1] ?? "").sandbox;
    expect(Object.keys(paths)).toEqual(["tmp-2", "files-etc", "hidden-dir", "files-etc-2"]);
  });

  it("is a patch that `patch` takes, and that touches only what it must", async () => {
    const sandbox = "sandbox:\n  dynamic: true\n  paths:\n    in: { root: ./p/inbox }";
    const made = await suggested({ w: worker(sandbox) }, [["./src/deep", "read"]]);
    // The project gives it too: it is the ceiling of the worker's own paths.
    expect(made.suggestion.files.map(({ file }) => file)).toEqual(["corral.yaml", "w/w.worker"]);
    const file = made.suggestion.files[1];
    const changed = file?.patch.split("\n").filter((line) => /^[+-][^+-]/.test(line));
    expect(changed).toEqual([`+    deep: { root: ./src/deep, at: ${made.dir}/src/deep }`]);
    const patch = join(made.dir, "x.patch");
    await mkdir(dirname(patch), { recursive: true });
    await writeFile(patch, file?.patch ?? "");
    await promisify(execFile)("git", ["apply", "--check", "-p1", patch], { cwd: made.dir });
  });

  it.each([
    ["a project without a sandbox", "version: 1\nworkers: ./w\n"],
    [
      "a project that leaves paths to its workers",
      `${ZONES.replace("mode: direct", "mode: direct\n  own_paths: allowed")}`,
    ],
  ])("of %s changes only the worker", async (_, yaml) => {
    const made = await suggested({ w: worker("sandbox: { dynamic: true }") }, [["./src", "read"]], yaml);
    expect(made.suggestion.files.map(({ file }) => file)).toEqual(["w/w.worker"]);
    expect(await stillAsked(made)).toEqual([]);
  });

  it("lets other workers keep their paths where the project gets its first sandbox", async () => {
    const workers = {
      w: worker("sandbox: { dynamic: true, inherit: true }"),
      v: worker("sandbox: { dynamic: true, paths: { o: { root: ./other } } }"),
    };
    const made = await suggested(workers, [["./src", "read"]], "version: 1\nworkers: ./w\n");
    expect(made.suggestion.files[0]?.text).toContain("own_paths: allowed");
    expect(await stillAsked(made)).toEqual([]);
  });

  it("leaves line ends and files alone that need nothing", async () => {
    const dos = worker("sandbox: { dynamic: true, paths: { in: { root: ./p/inbox } } }").replaceAll("\n", "\r\n");
    const made = await suggested({ w: dos }, [["./src", "read"]]);
    expect(
      made.suggestion.files
        .at(-1)
        ?.text.split("\n")
        .filter((line) => !line.endsWith("\r")),
    ).toEqual([""]);
    expect((await suggested({ w: dos }, [])).suggestion.files).toEqual([]);
  });
});
