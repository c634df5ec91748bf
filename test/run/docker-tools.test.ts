import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, sh, writable } from "./project-fixture.ts";
import { HANDY, openSessionIn } from "./session/session-fixture.ts";

/* What Docker's own tools show of cells of the Engine, and what Corral reports of what they did: docs/docker-tools.md. */

const program = promisify(execFile);
const docker = async (...words: string[]): Promise<string> => (await program("docker", words)).stdout.trim();

const SLEEP = "echo up; sleep 60";
let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({
    zones: { data: "ro", text: "rw", held: "rw" },
    workers: {
      "lists.files_2": {
        command: sh(SLEEP),
        sandbox: { zones: [{ name: "data", mode: "ro" }, writable("text"), { name: "held", mode: "rw" }] },
      },
      polite: { command: sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done") },
      stubborn: { command: sh("trap '' TERM; echo up; while :; do sleep 0.1; done") },
      plain: { command: sh(SLEEP) },
      reloads: { command: sh("trap 'exit 0' HUP; echo up; while :; do sleep 0.1; done") },
      quick: { command: sh("exit 0") },
    },
  });
});
afterAll(() => project[Symbol.asyncDispose]());

/** The name of the container of a run that has begun. */
async function begun(worker: string): Promise<{ running: ReturnType<ProjectFixture["run"]>; name: string }> {
  const running = project.run(worker);
  await Promise.race([project.printed(worker, "up"), running]);
  return { running, name: `corral-${worker}-${project.planOf(worker).run}` };
}

describe("Docker's tools", () => {
  it("show the worker and the run, and the host's folder of each mount, also that behind a view", async () => {
    const { running, name } = await begun("lists.files_2");
    const { run } = project.planOf("lists.files_2");
    expect(await docker("ps", "--filter", `label=dev.corral.run=${run}`, "--format", "{{.Names}}")).toBe(name);
    const labels = JSON.parse(await docker("inspect", "--format", "{{json .Config.Labels}}", name));
    expect(labels).toMatchObject({
      "dev.corral.worker": "lists.files_2",
      "dev.corral.run": run,
      "dev.corral.root": run,
      "dev.corral.parent": "",
      "dev.corral.project": project.dir,
      "dev.corral.mounts": "3",
      "dev.corral.mount.1": `${join(project.dir, "data")}:/data:ro`,
      "dev.corral.mount.2": `${join(project.dir, "held")}:/held:rw,staged`,
      "dev.corral.mount.3": `${join(project.dir, "text")}:/text:rw`,
    });
    expect(labels["dev.corral.mount.4"]).toBeUndefined();
    expect(await docker("top", name)).toContain("sleep 60");
    expect(await docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}", name)).toMatch(
      /^corral-lists\.files_2-\w+ [\d.]+[KM]iB \/ \d+MiB$/,
    );
    await docker("kill", name);
    expect(await running).toMatchObject({
      status: "signaled",
      exitCode: null,
      signal: "SIGKILL",
      error: { code: "SIGNALED", message: expect.stringContaining("was sent SIGKILL through the container engine") },
    });
  });
});

describe("a run that is ended with Docker's tools", () => {
  it("by docker stop has not succeeded, also if its worker handles the signal and ends with 0", async () => {
    const { running, name } = await begun("polite");
    await docker("stop", name);
    expect(await running).toMatchObject({
      status: "signaled",
      exitCode: 0,
      signal: "SIGTERM",
      stdout: "up\nbye\n",
      error: { message: expect.stringContaining("and ended with exit code 0") },
    });
  });

  it("by docker stop is signaled if its worker does not handle the signal, or ignores it", async () => {
    const [plain, stubborn] = [await begun("plain"), await begun("stubborn")];
    await Promise.all([docker("stop", plain.name), docker("stop", "-t", "1", stubborn.name)]);
    expect(await plain.running).toMatchObject({ status: "signaled", exitCode: null, signal: "SIGTERM" });
    expect(await stubborn.running).toMatchObject({ status: "signaled", exitCode: null, signal: "SIGKILL" });
  });

  it("has no exit code if its container was removed: it is signaled, or lost if the Engine was asked too late", async () => {
    const removed = await openProject({ workers: { w: { command: sh(SLEEP) } } });
    await using _ = removed;
    const running = removed.run("w");
    await removed.printed("w", "up");
    await docker("rm", "--force", `corral-w-${removed.planOf("w").run}`);
    expect(await running).toMatchObject({ status: expect.stringMatching(/^(lost|signaled)$/), exitCode: null });
    expect(await removed.traces()).toEqual([]);
  });

  it("is lost or signaled if its container was restarted, which runs nothing twice", async () => {
    await using restarted = await openProject({ workers: { w: { command: sh(SLEEP) } } });
    const running = restarted.run("w");
    await restarted.printed("w", "up");
    await docker("restart", `corral-w-${restarted.planOf("w").run}`);
    const result = await running;
    expect(result).toMatchObject({
      status: expect.stringMatching(/^(lost|signaled)$/),
      exitCode: null,
      stdout: "up\n",
    });
    expect(await restarted.traces()).toEqual([]);
  });

  it("of a session ends the command, whose status says so, and the next one has another container", async () => {
    await using s = await openSessionIn({ workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
    const stop = async (): Promise<void> => {
      const name = await docker(
        "ps",
        "--filter",
        `label=dev.corral.project=${s.project.dir}`,
        "--format",
        "{{.Names}}",
      );
      await docker("stop", "-t", "1", name);
    };
    const ended = await s.session.exec(
      { command: "echo begun; sleep 4725" },
      new AbortController().signal,
      () => void stop(),
    );
    expect(ended).toMatchObject({ status: "signaled", exitCode: 137, signal: "SIGKILL", stdout: "begun\n" });
    expect((await s.exec("echo after")).stdout).toBe("after\n");
  });

  it("has succeeded if the signal has another meaning for its worker, and if there was none", async () => {
    const { running, name } = await begun("reloads");
    await docker("kill", "--signal", "HUP", name);
    expect(await running).toMatchObject({ status: "succeeded", exitCode: 0, signal: null, error: null });
    expect(await project.run("quick")).toMatchObject({ status: "succeeded", exitCode: 0 });
    expect(await project.traces()).toEqual([]);
  });
});
