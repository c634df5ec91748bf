import { chmod, readdir, readFile, stat } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import type { Approver } from "../../src/approval/approver.ts";
import { isAgain } from "../tiers/again.ts";
import { openProject, python, sh, writable } from "./project-fixture.ts";

/** Pids on this host whose command line holds a text that only this test has. */
async function hostProcesses(mark: string): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return pids.filter((_, index) => lines[index]?.includes(mark));
}

/* Output, keys and consent are the host's to judge: that is tried on one driver. */

describe("the status of a run", () => {
  it("is succeeded, with both streams apart, for a worker that ends with exit code 0", async () => {
    await using project = await openProject({ workers: { w: { command: sh("cat; echo err >&2") } } });
    const result = await project.run("w", { input: { a: [1, "ü"] } });
    expect(result).toMatchObject({ status: "succeeded", exitCode: 0, signal: null, error: null, truncated: false });
    expect(result).toMatchObject({ stdout: '{"a":[1,"ü"]}\n', stderr: "err\n", violations: [], calls: [] });
    expect(await project.traces()).toEqual([]);
  });

  it("is failed with the worker's own exit code", async () => {
    await using project = await openProject({ workers: { w: { command: sh("exit 3") } } });
    expect(await project.run("w")).toMatchObject({ status: "failed", exitCode: 3, error: { code: "FAILED" } });
  });

  it("is signaled for a worker that dies of SEGV, TERM or ABRT", async () => {
    const sent = ["SEGV", "TERM", "ABRT"];
    const workers = Object.fromEntries(
      sent.map((name) => [name.toLowerCase(), { command: sh(`echo up; env | grep ^TINI; kill -${name} $$; sleep 5`) }]),
    );
    await using project = await openProject({ workers });
    const results = await Promise.all(sent.map((name) => project.run(name.toLowerCase())));
    expect(results).toMatchObject(
      sent.map((name) => ({ status: "signaled", exitCode: null, signal: `SIG${name}`, stdout: "up\n" })),
    );
  });

  it("is timed_out for a worker that ignores TERM and hides children in sessions of their own, and none of them is left", async () => {
    const mark = `61.${process.pid}`;
    const script = `trap '' TERM; setsid sleep ${mark} & (setsid sh -c 'trap "" TERM; (sleep ${mark} &); sleep ${mark}' &); echo up; while :; do sleep ${mark}; done`;
    await using project = await openProject({ workers: { w: { command: sh(script), limits: { timeout: "1s" } } } });
    const running = project.run("w");
    await project.printed("w", "up");
    await expect.poll(() => hostProcesses(mark)).not.toEqual([]);
    expect(await running).toMatchObject({ status: "timed_out", exitCode: null, signal: "SIGKILL", stdout: "up\n" });
    expect(await hostProcesses(mark)).toEqual([]);
    expect(await project.traces()).toEqual([]);
  });

  it("is timed_out, with what the worker did about it, where it ends when asked to", async () => {
    const script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.1; done";
    await using project = await openProject({ workers: { w: { command: sh(script), limits: { timeout: "2s" } } } });
    expect(await project.run("w")).toMatchObject({ status: "timed_out", exitCode: 7, stdout: "up\nbye\n" });
  });

  it("is oom_killed for a worker that itself uses more memory than it may", async () => {
    const command = python("b = []\nwhile True: b.append(bytearray(1 << 20))");
    await using project = await openProject({
      workers: { w: { image: "corral/python", command, limits: { memory: "48m" } } },
    });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "oom_killed", exitCode: null, signal: "SIGKILL" });
    expect(result).toMatchObject({ usage: { outOfMemory: true }, error: { code: "OUT_OF_MEMORY" } });
  });

  it("is succeeded where only a child was killed for memory, and says that one was", async () => {
    const hog = "b = []\nwhile True: b.append(bytearray(1 << 20))";
    const script = `import subprocess, sys\nprint(subprocess.run([sys.executable, "-c", ${JSON.stringify(hog)}]).returncode)`;
    const worker = { image: "corral/python", command: python(script), limits: { memory: "64m" } };
    await using project = await openProject({ workers: { w: worker } });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "succeeded", exitCode: 0, stdout: "-9\n", usage: { outOfMemory: true } });
  });

  it("is disk_limit for a worker that writes a file larger than it may", async () => {
    const worker = {
      command: sh("exec head -c 2000000 /dev/zero > /out/large"),
      limits: { disk: "1m" },
      sandbox: { zones: [writable("out")] },
    };
    await using project = await openProject({ workers: { w: worker }, zones: { out: "rw" } });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "disk_limit", signal: "SIGXFSZ", error: { code: "DISK_LIMIT" } });
    expect((await stat(`${project.dir}/out/large`)).size).toBe(1 << 20);
    const itself = await openProject({ workers: { w: { ...worker, command: sh("exit 153") } }, zones: { out: "rw" } });
    await using _ = itself;
    expect(await itself.run("w")).toMatchObject({ status: "failed", exitCode: 153, signal: null });
  });

  it.skipIf(isAgain())(
    "is failed for output that is not the JSON that was declared, and keeps that output",
    async () => {
      await using project = await openProject({
        workers: {
          bad: { command: sh("echo 'no: json'"), output: "json" },
          deep: { command: sh("head -c 100000 /dev/zero | tr '\\0' '['"), output: "json" },
          good: { command: sh("cat"), output: "json" },
        },
      });
      const bad = await project.run("bad");
      expect(bad).toMatchObject({ status: "failed", exitCode: 0, output: null, stdout: "no: json\n" });
      expect(bad.error?.code).toBe("OUTPUT_NOT_JSON");
      expect(await project.run("deep")).toMatchObject({ status: "failed", error: { code: "OUTPUT_NOT_JSON" } });
      expect(await project.run("good", { input: { n: 1 } })).toMatchObject({ status: "succeeded", output: { n: 1 } });
    },
  );

  it("is refused for a command that the image does not hold", async () => {
    await using project = await openProject({
      workers: {
        w: { command: ["no-such-program"] },
        crlf: { command: ["/in/crlf"], sandbox: { zones: [{ name: "in" }] } },
      },
      zones: { in: "ro" },
      files: { "in/crlf": "#!/bin/sh\r\necho hi\r\n" },
    });
    await chmod(`${project.dir}/in/crlf`, 0o755);
    const crlf = await project.run("crlf");
    expect(crlf.violations).toMatchObject([{ code: "COMMAND_NOT_FOUND", interpreter: "/bin/sh\r" }]);
    expect(crlf.error?.message).toContain("lines end with CR LF");
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", exitCode: null, violations: [{ code: "COMMAND_NOT_FOUND" }] });
    expect(result.error?.message).toContain("no-such-program");
    expect(await project.traces()).toEqual([]);
  });

  it("is refused for an image that the Engine does not have", async () => {
    await using project = await openProject({ workers: { w: { image: "corral/nowhere", command: ["true"] } } });
    const result = await project.run("w");
    expect(result).toMatchObject({
      status: "refused",
      violations: [{ code: "IMAGE_MISSING", image: "corral/nowhere" }],
    });
    expect(await project.traces()).toEqual([]);
  });

  it.skipIf(isAgain())("is failed for an agent whose key is not to be had, and nobody is asked anything", async () => {
    const engineEnv = { ...process.env, ANTHROPIC_API_KEY: undefined };
    await using project = await openProject({ workers: { w: { model: "anthropic/some-model" } } }, { engineEnv });
    expect(await project.run("w")).toMatchObject({
      status: "failed",
      error: { code: "MODEL_KEY", message: expect.stringContaining("ANTHROPIC_API_KEY is not set") },
    });
  });

  it.skipIf(isAgain())(
    "is denied where what it wrote must be asked for and nobody agrees, and nothing is written",
    async () => {
      const spec = {
        workers: { w: { command: sh("echo no > /out/f"), sandbox: { zones: [{ name: "out", mode: "rw" }] } } },
        zones: { out: "rw" },
      } as const;
      const codes = { auto_deny: "APPROVAL_DENIED", interactive: "CHANGES_HELD" } as const;
      for (const approvalMode of ["auto_deny", "interactive"] as const) {
        await using project = await openProject(spec, { approvalMode });
        const result = await project.run("w");
        expect(result).toMatchObject({ status: "denied", exitCode: 0, error: { code: codes[approvalMode] } });
        expect(result.error?.message).toContain("/out/f");
        expect(await readdir(`${project.dir}/out`)).toEqual([]);
      }
    },
  );

  it.skipIf(isAgain())("is denied, and says that nobody answered, where the person who is asked does not", async () => {
    const person: Approver = { decide: async () => ({ outcome: "timed_out", scope: "once", reason: "" }) };
    const w = { command: sh("echo no > /out/f"), sandbox: { zones: [{ name: "out", mode: "rw" }] } };
    await using project = await openProject({ workers: { w }, zones: { out: "rw" } }, { person });
    expect(await project.run("w")).toMatchObject({ status: "denied", error: { code: "APPROVAL_TIMED_OUT" } });
  });

  it.skipIf(isAgain())("is succeeded where the person who is asked agrees", async () => {
    await using project = await openProject(
      {
        workers: { w: { command: sh("echo yes > /out/f"), sandbox: { zones: [{ name: "out", mode: "rw" }] } } },
        zones: { out: "rw" },
      },
      { approvalMode: "approve_all" },
    );
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
    expect(await readFile(`${project.dir}/out/f`, "utf8")).toBe("yes\n");
  });

  it("rests on a measurement, where the worker ran long enough for one", async () => {
    const worker = { command: sh("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 1.5") };
    await using project = await openProject({
      workers: { w: { ...worker, sandbox: { zones: [writable("out")] } } },
      zones: { out: "rw" },
    });
    const { usage, durationMs } = await project.run("w");
    expect(usage.cpuMs).toBeGreaterThan(100);
    expect(usage.memoryBytesPeak).toBeGreaterThan(100_000);
    expect(usage.outOfMemory).toBe(false);
    expect(durationMs).toBeGreaterThan(1000);
  });
});
