import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { PROGRAM } from "../cli/program.ts";
import { giveGate } from "../tiers/give-gate.ts";

const execute = promisify(execFile);
const page = (name: string) => readFile(join(import.meta.dirname, "../../docs/how-to", name), "utf8");

const blocksOf = (text: string, language: string): string[] =>
  [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, found, block = ""]) =>
    found === language ? [block] : [],
  );

const hasAnalyzer = await execute("systemd-analyze", ["--version"]).then(
  () => true,
  () => false,
);

describe("docs/how-to/unattended.md", () => {
  it.runIf(hasAnalyzer)("has units that systemd accepts without a warning", async () => {
    const units = blocksOf(await page("unattended.md"), "ini");
    expect(units).toHaveLength(5);
    const dir = await mkdtemp(join(tmpdir(), "corral-units-"));
    try {
      const files: string[] = [];
      for (const unit of units) {
        const name = basename(/^# (\S+)$/m.exec(unit)?.[1] ?? "");
        // systemd looks if the program is there; here it is not installed.
        await writeFile(join(dir, name), unit.replaceAll("/usr/local/bin/corral", process.execPath));
        files.push(join(dir, name));
      }
      const { stdout, stderr } = await execute("systemd-analyze", ["verify", ...files]);
      const own = `${stdout}${stderr}`.split("\n").filter((line) => line.includes("corral-"));
      expect(own).toEqual([]);
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it("has no option that gives the service a mount namespace, which the Engine could not look into", async () => {
    const units = blocksOf(await page("unattended.md"), "ini").join("\n");
    expect(units).not.toMatch(/^(Protect(System|Home|Kernel\w+|ControlGroups|Proc)|Private\w+|\w*Paths|Bind\w+)=/m);
  });
});

describe("docs/how-to/moving-state.md", () => {
  const one = { command: ["echo", "kept"] };
  let project: CliProject;
  let moved = "";
  beforeAll(async () => {
    const zones = { out: { path: "./out", mode: "rw" } };
    const writing = { command: ["sh", "-c", "echo x > /out/x"], sandbox: { zones: [{ name: "out", mode: "rw" }] } };
    const yaml = { version: 1, sandbox: { mode: "direct", zones } };
    project = await cliProject({
      yaml,
      workers: { one, writing },
      folders: ["out"],
      files: { "i.jsonl": '{"id": 1}\n' },
    });
    moved = await mkdtemp(join(tmpdir(), "corral-moved-"));
    await project.corral(["run", "one"]);
    await project.corral(["run", "writing"]);
    await project.corral(["map", "one", "--manifest", "i.jsonl"]);
  });
  afterAll(async () => {
    await project[Symbol.asyncDispose]();
    await rm(moved, { recursive: true });
  });

  it("has commands that move state so that trail, runs, fleets and changes are there", async () => {
    const [, copy = "", unpack = ""] = blocksOf(await page("moving-state.md"), "sh");
    const env = { ...process.env, CORRAL_STATE_DIR: project.stateDir };
    await execute("sh", ["-ec", copy], { cwd: moved, env });
    const script = unpack.replace("/srv/corral-state", join(moved, "state")).replace("corral images build\n", "");
    expect(script).toContain(join(moved, "state"));
    await execute("sh", ["-ec", script], { cwd: moved, env });
    // Who is not root can copy nothing else.
    const unread = await execute("find", [join(moved, "state"), "-type", "f", "!", "-perm", "-u=r"]);
    expect(unread.stdout).toBe("");
    await giveGate(join(moved, "state"));

    const at = { env: { CORRAL_STATE_DIR: join(moved, "state") } };
    expect(await project.corral(["audit", "--verify"], at)).toMatchObject({ status: 0 });
    expect((await project.corral(["fleet", "ls"], at)).stdout).toMatch(/ one +done +1\/1 /);
    expect((await project.corral(["changes", "ls"], at)).stdout).toMatch(/ writing /);
    expect((await project.corral(["runs", "ls"], at)).stdout).toMatch(/ succeeded +one /);
    const again = await project.corral(["map", "one", "--manifest", "i.jsonl"], at);
    expect(again.stderr).toMatch(/1 +cached/);
    // Nothing of a copy is applied, as the page says: what was checked is known by its inode.
    const applied = await project.corral(["changes", "apply", "latest", "--yes"], at);
    expect(applied.stdout + applied.stderr).toContain("its new content was changed after it had been checked");
  });

  it("has commands that remove what Corral made, and leave the project", async () => {
    const [script = ""] = blocksOf(await page("moving-state.md"), "sh").filter((block) => block.includes("rm -r "));
    const bin = join(moved, "bin");
    await mkdir(bin);
    await writeFile(join(bin, "corral"), `#!/bin/sh\nexec '${process.execPath}' '${PROGRAM}' "$@"\n`, { mode: 0o755 });
    const state = join(moved, "uninstalled");
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}`, CORRAL_STATE_DIR: state };
    await giveGate(state);
    await project.corral(["run", "one"], { env: { CORRAL_STATE_DIR: state } });
    await execute("sh", ["-ec", script], { cwd: project.dir, env });
    expect(existsSync(state)).toBe(false);
    expect(existsSync(join(project.dir, "corral.yaml"))).toBe(true);
  });

  it("says rightly that a project at another path has no history", async () => {
    const elsewhere = join(moved, "project");
    await execute("cp", ["-a", project.dir, elsewhere]);
    const here = await project.corral(["audit", "--verify", "--project", elsewhere]);
    expect(here.stdout + here.stderr).toBe("Nothing is recorded.\n");
    expect((await project.corral(["runs", "ls", "--all-projects"])).stdout).toContain(project.dir);
  });
});
