import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/connect.ts";
import { openCorral } from "../../src/run/open/corral.ts";
import { writeProject } from "../run/project-fixture.ts";
import { HANDY, openHandySession } from "../run/session/session-fixture.ts";

const CLI = join(import.meta.dirname, "../../src/cli/corral.ts");

describe("a command that attacks its cell", () => {
  it("cannot end the keeper or the init, whose user is another", async () => {
    await using s = await openHandySession();
    const before = await s.exec("echo kept > /tmp/kept; cat /proc/[0-9]*/status | grep ^Uid: | cut -f2 | sort -u");
    expect(before.stdout.trim().split("\n")).toEqual(["65532", "65533"]);
    const kill = "for p in $(ls /proc | grep -x '[0-9]*'); do kill -KILL $p 2>&1; kill -STOP $p 2>&1; done";
    const attack = await s.exec(`( trap '' TERM; ${kill} ) ; kill -9 -1; kill -9 1; exit 0`);
    expect(attack.cellReplaced).toBe(false);
    expect((await s.exec("cat /tmp/kept")).stdout).toBe("kept\n");
    const traced = await s.exec("for p in /proc/[0-9]*; do cat $p/environ; done 2>&1 | grep -c 'Permission denied'");
    expect(Number(traced.stdout)).toBeGreaterThanOrEqual(2);
  });

  it("cannot write where long output is kept, nor change what stands there", async () => {
    await using s = await openHandySession();
    await s.exec("seq 10000");
    const attack = await s.exec(
      "cd /.corral/output; echo x > 1.stdout; echo x > x; rm -f 1.stdout; mv 1.stdout y; ln -s / z; chmod 777 .; ls -A",
    );
    expect(attack.stdout).toBe("1.stdout\n");
    expect(attack.stderr.match(/Read-only file system/g)?.length).toBeGreaterThanOrEqual(5);
    expect((await s.exec("seq 10000 | cmp - /.corral/output/1.stdout")).status).toBe("succeeded");
  });

  it("sees nothing of other sessions' output, sockets or processes", async () => {
    await using one = await openHandySession();
    await using other = await openHandySession();
    await one.exec("seq 10000; sleep 4741 > /dev/null 2>&1 &");
    const look =
      "ls /.corral/output; ls -A /.corral; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat /proc/self/mountinfo";
    const { stdout } = await other.exec(look);
    expect(stdout).toMatch(/^busybox\noutput\nsocket\n/);
    expect(stdout).not.toContain("4741");
    expect(stdout).not.toContain(one.project.dir.split("/")[2]);
  });

  it("that ends whatever comes to end it has its cell replaced, and is told as timed out", async () => {
    await using s = await openHandySession();
    // Of the worker's own user, like what is to end it: signals all but itself as fast as it can.
    const hunts = "exec /usr/bin/env sh -c 'trap \"\" TERM; while :; do kill -KILL -1; done'";
    const answer = await s.exec(hunts, { timeoutMs: 500 });
    expect(answer.status).toBe("timed_out");
    expect((await s.exec("echo after")).stdout).toBe("after\n");
    expect(await s.processes()).toEqual([]);
  });

  it("cannot say of itself that it was let in, nor how it ended", async () => {
    await using s = await openHandySession();
    expect(await s.exec("echo 'corral-begun 99'; kill -9 $$")).toMatchObject({
      status: "signaled",
      stdout: "corral-begun 99\n",
    });
  });

  it("that fills the memory of the cell for good does not keep the next one from running", async () => {
    await using s = await openHandySession({ limits: { memory: "32m" } });
    await s.exec(
      "for i in 1 2 3 4 5 6; do ( setsid tail /dev/zero & ) ; done > /dev/null 2>&1; sleep 1; dd if=/dev/zero of=/tmp/x bs=1M count=60",
      {
        timeoutMs: 3000,
      },
    );
    const after = [await s.exec("echo after"), await s.exec("rm -f /tmp/x; echo after")];
    expect(after.map(({ stdout }) => stdout)).toContain("after\n");
  });
});

describe("a session whose orchestrator is killed", () => {
  it("ends by itself, its commands with it, and the next that opens removes what is left", async () => {
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    try {
      const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
      await writeProject(projectDir, { workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
      const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
      const args = [CLI, "shell", "w", "--project", projectDir];
      const orchestrator = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
      orchestrator.stdin.write("setsid sleep 4742 > /dev/null 2>&1 &\necho begun\nsleep 4743\n");
      await once(orchestrator.stdout, "data");
      orchestrator.kill("SIGKILL");
      await once(orchestrator, "exit");
      await using _ = await openCorral({
        projectDir: await otherProject(base),
        stateDir: join(base, "o"),
        engineEnv: process.env,
      });
      const { docker } = await connect(process.env);
      const [left] = (await docker.listContainers({ all: true })).filter(({ Labels }) =>
        Labels["dev.corral.owner"]?.includes(`${orchestrator.pid}`),
      );
      if (left === undefined) throw new Error("the session's cell is not there");
      await expect.poll(async () => (await docker.getContainer(left.Id).inspect()).State.Running).toBe(false);
      await using next = await openCorral({ projectDir, stateDir, engineEnv: process.env });
      expect(next.reaped).toMatchObject({ cells: [left.Labels["dev.corral.run"]], directories: [expect.any(String)] });
      expect(await next.environment.driver.list()).toEqual([]);
    } finally {
      await rm(base, { recursive: true, force: true });
    }
  });
});

/** Of another state directory, so that opening it removes nothing. */
async function otherProject(base: string): Promise<string> {
  const dir = join(base, "q");
  await writeProject(dir, { workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
  return dir;
}
