import { chown, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { makeHostFolder } from "../run/grants/host-folder.ts";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

let project: CliProject | null = null;
let host = "";

afterEach(async () => {
  await project?.[Symbol.asyncDispose]();
  project = null;
  await rm(host, { recursive: true, force: true });
});

/** A worker that asks for a directory and waits; a rule of the project decides in place of a person. */
async function open(script = ""): Promise<CliProject> {
  host = await makeHostFolder();
  await mkdir(join(host, "src"));
  await writeFile(join(host, "src/a"), "A\n");
  await mkdir(join(host, "more"));
  for (const folder of ["src", "more"]) await chown(join(host, folder), 65_532, 65_532);
  const ask = `ask() { curl -s --unix-socket "$CORRAL_SOCKET" -d "$2" "http://corral/v1/$1"; }; SRC=${host}/src; MORE=${host}/more`;
  const sandbox = { mode: "direct", zones: { inbox: { path: "inbox" } } };
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox,
      approval: {
        rules: [
          {
            operation: ["grant_read", "grant_write"],
            paths: [`${host}/src/**`, `${host}/src`, "/inbox"],
            decide: "approve",
          },
        ],
      },
    },
    workers: { w: { command: sh(`${ask}; ${script}`), sandbox: { dynamic: true } } },
    files: { "inbox/x": "x" },
  });
  return project;
}

const READ = `ask tools/read_file '{"path":"'$SRC'/a"}'`;

describe("corral grants", () => {
  it("lists what a run was granted while it goes on, takes it back, and gives what it has not asked for", async () => {
    const given = `ask tools/write_file '{"path":"'$MORE'/b","content":"B"}'`;
    const waits = `until ${given} | grep Created; do sleep 0.2; done`;
    const p = await open(`${READ}; until ${READ} | grep GRANT_REVOKED; do sleep 0.2; done; ${waits}`);
    const running = p.start(["run", "w"]);
    type Listed = { id: string; worker: string; directory: string; mode: string };
    let listed: Listed[] = [];
    while (listed.length === 0 && running.child.exitCode === null) {
      await sleep(200);
      listed = JSON.parse((await p.corral(["grants", "ls", "--json"])).stdout) as Listed[];
    }
    expect(listed).toMatchObject([{ worker: "w", through: ["w"], directory: `${host}/src`, mode: "read" }]);
    expect((await p.corral(["grants"])).stdout).toMatch(/^ID +WORKER +DIRECTORY/);
    const revoked = await p.corral(["grants", "revoke", listed[0]?.id ?? ""]);
    expect(revoked).toMatchObject({ status: 0 });
    const again = await p.corral(["grants", "add", "latest", join(host, "src")]);
    expect(again).toMatchObject({ status: 126, stderr: expect.stringContaining("GRANT_REVOKED") });
    const more = join(host, "more");
    const added = await p.corral(["grants", "add", "latest", `${more}:rw`, "--json"]);
    expect(JSON.parse(added.stdout)).toMatchObject({ directory: more, mode: "write", id: expect.any(String) });
    const { status, stdout, stderr } = await running.ended;
    expect({ status, stdout, stderr }).toMatchObject({ status: 0, stdout: expect.stringContaining("GRANT_REVOKED") });
    expect(await readFile(join(more, "b"), "utf8")).toBe("B");
    // What was taken back is nothing to be suggested.
    expect(stderr).not.toContain(`w: read ${host}/src`);
    expect(stderr).toContain(`w: write ${host}/more (tree)`);
    const { stdout: trail } = await p.corral(["audit", "--json"]);
    expect(trail).toMatch(/"type":"grant".*"type":"grant_revoked"/s);
  });

  it("says that there are none, and refuses an id that there is not", async () => {
    const p = await open();
    expect(await p.corral(["grants", "ls"])).toMatchObject({ status: 0, stderr: "There are no grants.\n" });
    const unknown = await p.corral(["grants", "revoke", "../../x"]);
    expect(unknown).toMatchObject({ status: 2, stderr: expect.stringContaining("there is no grant ../../x") });
    const none = await p.corral(["grants", "add", "latest", host]);
    expect(none).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("a running worker whose file has `dynamic`"),
    });
  });
});

describe("corral run, when something was granted", () => {
  it("suggests the declaration that makes the question unnecessary, and changes nothing itself", async () => {
    const write = `ask tools/write_file '{"path":"'$SRC'/b","content":"B","overwrite":true}'`;
    const p = await open(`${READ}; ${write}; echo "$(cat $SRC/a 2>/dev/null) in the cell"`);
    const before = await readFile(join(p.dir, "workers/w.worker"), "utf8");
    const { status, stdout, stderr } = await p.corral(["run", "w"]);
    expect({ status, stdout, stderr }).toMatchObject({ status: 0 });
    expect(stderr).toContain(`  w: read ${host}/src (`);
    expect(stderr).toContain("+++ b/corral.yaml");
    expect(stderr).toContain("+++ b/workers/w.worker");
    expect(await readFile(join(p.dir, "workers/w.worker"), "utf8")).toBe(before);
    const patch = stderr.slice(stderr.indexOf("--- a/"));
    await writeFile(join(p.dir, "x.patch"), patch.endsWith("\n") ? patch : `${patch}\n`);
    const { execFileSync } = await import("node:child_process");
    execFileSync("git", ["apply", "-p1", "x.patch"], { cwd: p.dir });
    // Applied, the same paths need no question: not of tools, and not in the worker's own container.
    const again = await p.corral(["run", "w"]);
    expect(again).toMatchObject({ status: 0, stderr: "" });
    expect(again.stdout).toContain('"text":"A\\n"');
    expect(again.stdout.trimEnd().split("\n").at(-1)).toBe("A in the cell");
    const { stdout: trail } = await p.corral(["audit", "--json"]);
    expect(trail.match(/"type":"grant"/g)).toHaveLength(2);
  });

  it("is silent where nothing was", async () => {
    const p = await open("true");
    expect(await p.corral(["run", "w"])).toMatchObject({ status: 0, stderr: "" });
  });
});

describe("corral tool", () => {
  it("suggests the same for one tool", async () => {
    const p = await open();
    const { status, stdout, stderr } = await p.corral(["tool", "list_files", '{"path": "/inbox"}', "--worker", "w"]);
    expect({ status, stdout }).toMatchObject({ status: 0, stdout: expect.stringContaining("/inbox/x") });
    expect(stderr).toMatch(/^\+.*allow_read/m);
  });
});
