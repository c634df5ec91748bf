import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { PROJECT_KINDS } from "../../src/operations/implied-project.ts";
import { type CliProject, cliProject } from "./cli-project.ts";

/** A project of `ci` is a repository of git: it has tests of its own below. */
const KINDS = Object.keys(PROJECT_KINDS).filter((kind) => kind !== "ci");

let folder: CliProject;

beforeAll(async () => {
  folder = await cliProject({ yaml: null, workers: {} });
});
afterAll(async () => {
  await folder[Symbol.asyncDispose]();
});

describe("corral init", () => {
  it.each(KINDS)("writes a project for %s whose next two commands work, and its check", async (kind) => {
    const { status, stdout } = await folder.built(["init", kind, `new/${kind}`]);
    expect(status).toBe(0);
    const [, listed = "", next = ""] =
      /^Wrote \d+ files:\n([\s\S]*)and their formats for editors, in .corral\/schemas\/\nNext:\n {2}cd \S+\n([\s\S]*)$/.exec(
        stdout,
      ) ?? [];
    const files = await readdir(join(folder.dir, "new", kind), { recursive: true, withFileTypes: true });
    const written = files
      .filter((one) => one.isFile() && !one.parentPath.endsWith("/.corral/schemas"))
      .map(({ name }) => name);
    expect(
      listed
        .trim()
        .split("\n")
        .map((line) => line.trim().split("/").at(-1))
        .toSorted(),
    ).toEqual(written.toSorted());
    expect(written).toContain(".gitignore");
    const commands = next
      .trim()
      .split("\n")
      .map((line) => line.trim());
    expect(commands).toHaveLength(2);
    for (const command of [...commands, "corral check"]) {
      const [, ...args] = command.split(" ");
      expect(await folder.corral(args, { cwd: `new/${kind}` }), command).toMatchObject({ status: 0 });
    }
  });

  it("names in each YAML file a schema that is there and fits it, and git does not ignore it", async () => {
    for (const kind of KINDS) {
      const project = join(folder.dir, "new", kind);
      const all = (await readdir(project, { recursive: true })).filter((path) =>
        /^(corral|fleets\/.*)\.yaml$/.test(path),
      );
      expect(all).toContain("corral.yaml");
      for (const path of all) {
        const [first = "", ...rest] = (await readFile(join(project, path), "utf8")).split("\n");
        const place = /^# yaml-language-server: \$schema=(\S+)$/.exec(first)?.[1] ?? "none";
        const schema = JSON.parse(await readFile(join(project, dirname(path), place), "utf8"));
        const fits = new Ajv2020({ strict: false }).compile(schema);
        expect([fits(parse(rest.join("\n"))), fits.errors], path).toEqual([true, null]);
        expect(schema.title).toBe(`Corral: ${path === "corral.yaml" ? path : "fleets/*.yaml"}`);
      }
      const written = (await readdir(join(project, ".corral/schemas"))).toSorted();
      expect(written).toEqual(["fleet", "policy", "project", "worker"].map((name) => `${name}.schema.json`));
      expect(await readFile(join(project, ".gitignore"), "utf8")).not.toContain("corral");
    }
  });

  it("makes text of the document, and ignores it in git", async () => {
    expect(await readFile(join(folder.dir, "new/documents/text/hello.txt"), "utf8")).toContain("Hello from a PDF.");
    expect(await readFile(join(folder.dir, "new/documents/.gitignore"), "utf8")).toBe("/text/\n");
  });

  it("overwrites nothing, and then writes nothing", async () => {
    const at = join(folder.dir, "taken");
    await mkdir(at);
    await writeFile(join(at, "corral.yaml"), "version: 1\n");
    const again = await folder.corral(["init", "documents", "taken"]);
    expect([again.status, again.stderr]).toEqual([2, expect.stringContaining("corral.yaml already exists")]);
    expect(await readdir(at)).toEqual(["corral.yaml"]);
    const linked = join(folder.dir, "linked");
    await mkdir(linked);
    await symlink("../taken", join(linked, "workers"));
    expect((await folder.corral(["init", "documents", "linked"])).stderr).toContain(
      "workers/extract.worker already exists",
    );
    expect([await readdir(at), await readdir(linked)]).toEqual([["corral.yaml"], ["workers"]]);
  });

  it("asks at a terminal only, and names the kinds elsewhere", async () => {
    expect(await folder.corral(["init"])).toMatchObject({
      status: 2,
      stderr: "corral: name a kind of project: corral init documents|batch|agent|ci\n",
    });
    expect((await folder.corral(["init", "docs"])).stderr).toContain("there are: documents, batch, agent, ci");
  });
});

describe("corral init ci", () => {
  const written = async (at: string): Promise<string[]> => {
    const all = await readdir(join(folder.dir, at), { recursive: true, withFileTypes: true });
    return all.filter((one) => one.isFile() && !one.parentPath.includes("/.git/")).map(({ name }) => name);
  };

  it.each([
    // The other version of Node would be fetched.
    ["npm", ["--matrix", "node=24"]],
    // Made by the Engine, whose own images are not unpacked for it: that takes longer than the rest.
    ["python", ["--driver", "engine"]],
    ["make", ["--driver", "engine"]],
  ])(
    "--%s writes jobs in at most 15 lines, a workflow in at most 15, and what is printed next runs at once",
    async (tool, part) => {
      const at = `ci/${tool}`;
      const { status, stdout } = await folder.corral(["init", "ci", at, `--${tool}`]);
      expect(status).toBe(0);
      for (const file of ["ci.yaml", ".github/workflows/corral.yml"])
        expect((await readFile(join(folder.dir, at, file), "utf8")).trimEnd().split("\n").length).toBeLessThanOrEqual(
          15,
        );
      const next =
        stdout
          .split("Next:\n")[1]
          ?.trimEnd()
          .split("\n")
          .map((line) => line.trim()) ?? [];
      const [go, ...commands] = next;
      expect(go).toBe(`cd ${at}`);
      const cwd = join(folder.dir, at);
      const author = ["GIT_AUTHOR", "GIT_COMMITTER"].flatMap((who) => [`${who}_NAME=a`, `${who}_EMAIL=a@localhost`]);
      for (const command of commands.filter((line) => line.startsWith("git ")))
        execFileSync("sh", ["-c", `env ${author.join(" ")} ${command} 2>&1`], { cwd });
      expect(commands.slice(-2)).toEqual(["corral ci check", "corral ci run"]);
      expect(await folder.corral(["ci", "check"], { cwd: at })).toMatchObject({ status: 0 });
      const ran = await folder.corral(["ci", "run", ...part], { cwd: at });
      expect(ran, ran.stderr).toMatchObject({ status: 0 });
      expect(execFileSync("git", ["status", "--porcelain"], { cwd }).toString()).toBe("");
    },
  );

  it("leaves a project that is there as it is, finds its tool, and overwrites nothing", async () => {
    const at = join(folder.dir, "ci/mine");
    await mkdir(at);
    await writeFile(join(at, "Makefile"), "test:\n");
    expect(await folder.corral(["init", "ci", "ci/mine"])).toMatchObject({ status: 0 });
    expect((await written("ci/mine")).toSorted()).toEqual(["Makefile", "action.yml", "ci.yaml", "corral.yml"]);
    expect(await readFile(join(at, "ci.yaml"), "utf8")).toContain("uses: make");
    expect(await readFile(join(at, "Makefile"), "utf8")).toBe("test:\n");
    await mkdir(join(folder.dir, "ci/uv"));
    for (const name of ["pyproject.toml", "uv.lock"]) await writeFile(join(folder.dir, "ci/uv", name), "");
    expect(await folder.corral(["init", "ci", "ci/uv"])).toMatchObject({ status: 0 });
    expect(await readFile(join(folder.dir, "ci/uv/ci.yaml"), "utf8")).toMatch(/uses: uv # the wheels of uv.lock/);
    const again = await folder.corral(["init", "ci", "ci/mine"]);
    expect(again).toMatchObject({ status: 2, stderr: expect.stringContaining("ci.yaml already exists") });
  });

  it("--go writes a project of Go, whose packages of Debian are too many to fetch for a test", async () => {
    expect(await folder.corral(["init", "ci", "ci/go", "--go"])).toMatchObject({ status: 0 });
    const { stdout, status } = await folder.corral(["ci", "check"], { cwd: "ci/go" });
    expect(status).toBe(0);
    expect(stdout).toMatch(/fetch\.go +go: fetch +corral\/base/);
  });

  it("takes one tool, and other kinds take none", async () => {
    expect((await folder.corral(["init", "ci", "ci/two", "--npm", "--make"])).stderr).toContain(
      "either --npm or --make",
    );
    expect((await folder.corral(["init", "agent", "ci/two", "--npm"])).stderr).toContain("--npm is for corral init ci");
  });
});

it("nothing is made by check and explain, not even the state directory", async () => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "corral-none-")));
  try {
    const env = { CORRAL_STATE_DIR: join(dir, "state") };
    const at = join(folder.dir, "fresh");
    await folder.corral(["init", "agent", "fresh"]);
    const before = (await readdir(at, { recursive: true })).toSorted();
    for (const args of [["check"], ["explain", "clerk"]])
      expect(await folder.corral(args, { cwd: "fresh", env })).toMatchObject({ status: 0 });
    expect(await readdir(dir)).toEqual([]);
    expect((await readdir(at, { recursive: true })).toSorted()).toEqual(before);
  } finally {
    await rm(dir, { recursive: true });
  }
});
