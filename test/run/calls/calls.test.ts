import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { UnknownPolicyError } from "../../../src/declarations/policy/policy.ts";
import type { RunEvent } from "../../../src/index.ts";
import { openProject, sh, writable } from "../project-fixture.ts";

/** The most runs of one worker that were in a cell at once. */
function mostAtOnce(events: readonly RunEvent[], worker: string): number {
  let now = 0;
  let most = 0;
  for (const event of events.filter((each) => each.worker === worker)) {
    if (event.type === "started") most = Math.max(most, ++now);
    if (event.type === "ended") now -= 1;
  }
  return most;
}

describe("calls", () => {
  it("hand on input and attachments, and bring back output, errors and exit codes", async () => {
    const boss = {
      command: sh(`corral-call kid '{"n":1}' --attach /docs/a.txt=b.txt; echo "status $?"`),
      sandbox: { zones: [{ name: "docs" }] },
      calls: ["kid"],
    };
    const kid = { command: sh("cat; cat /attachments/b.txt; ls /docs 2>&1; echo oops >&2; exit 4") };
    await using project = await openProject({
      workers: { boss, kid },
      zones: { docs: "ro" },
      files: { "docs/a.txt": "A\n" },
    });
    const result = await project.run("boss");
    expect(result.stdout).toMatch(/^\{"n":1\}\nA\nls: .*\/docs.*\nstatus 4\n$/);
    expect(result.stderr).toContain("oops");
    expect(result.calls).toMatchObject([{ worker: "kid", status: "failed", exitCode: 4, stderr: "oops\n" }]);
    expect(project.events.find(({ worker }) => worker === "kid")).toMatchObject({
      attachments: ["b.txt"],
      root: result.run,
      parent: result.run,
    });
    expect(await project.traces()).toEqual([]);
  });

  it("go on at most as many at once as the project says", async () => {
    const boss = { command: sh("seq 6 | xargs -P 6 -I{} corral-call kid {}"), calls: ["kid"] };
    const kid = { command: sh("cat; sleep 0.5") };
    await using project = await openProject({ workers: { boss, kid }, yaml: { delegation: { max_parallel: 2 } } });
    const { calls } = await project.run("boss");
    expect(calls.map(({ stdout }) => stdout.trim()).sort()).toEqual(["1", "2", "3", "4", "5", "6"]);
    expect(mostAtOnce(project.events, "kid")).toBe(2);
  });

  it("stand in the result in the order in which they were asked for, refused ones among them", async () => {
    const script = "corral-call slow & sleep 0.4; corral-call nobody; sleep 0.1; corral-call fast; wait";
    const boss = { command: sh(script), calls: ["slow", "fast"] };
    await using project = await openProject({
      workers: { boss, slow: { command: sh("sleep 2") }, fast: { command: sh(":") } },
    });
    const { calls } = await project.run("boss");
    expect(calls.map(({ worker, status }) => `${worker} ${status}`)).toEqual([
      "slow succeeded",
      "nobody refused",
      "fast succeeded",
    ]);
    expect(project.events.filter(({ type }) => type === "ended").map(({ worker }) => worker)).toEqual([
      "nobody",
      "fast",
      "slow",
      "boss",
    ]);
  });

  it("are counted over the whole tree, and refused when there are too many", async () => {
    const boss = { command: sh("for i in 1 2 3; do corral-call middle; echo $?; done"), calls: ["middle"] };
    const middle = { command: sh("corral-call kid; echo $?"), calls: ["kid"] };
    const yaml = { delegation: { max_calls: 3 } };
    await using project = await openProject({ workers: { boss, middle, kid: { command: sh("echo kid") } }, yaml });
    const { stdout, stderr, calls } = await project.run("boss");
    expect(stdout).toBe("kid\n0\n0\n126\n0\n126\n");
    expect(stderr).toContain("used all of its 3 calls");
    expect(calls[2]).toMatchObject({ status: "refused", violations: [{ code: "CALL_LIMIT", max: 3 }] });
    expect(calls[1]?.calls).toMatchObject([{ status: "refused", violations: [{ code: "CALL_LIMIT", max: 3 }] }]);
  });

  it("that are refused for ever are answered for ever, but not all kept", async () => {
    const boss = {
      command: sh("for i in 1 2 3 4 5 6; do corral-call nobody 2> /dev/null; echo $?; done; corral-call kid"),
      calls: ["kid"],
    };
    const yaml = { delegation: { max_calls: 2 } };
    await using project = await openProject({ workers: { boss, kid: { command: sh("echo kid") } }, yaml });
    const { stdout, calls } = await project.run("boss");
    expect(stdout).toBe(`${"126\n".repeat(6)}kid\n`);
    expect(calls.map(({ worker }) => worker)).toEqual(["nobody", "nobody", "kid"]);
  });

  it("can narrow what the called worker asks for, to what it may read and write", async () => {
    const kid = {
      command: sh("ls -d /docs/* /out/* 2>/dev/null; for d in a b; do echo x > /out/$d/new && echo wrote $d; done"),
      sandbox: { inherit: true },
    };
    const boss = {
      command: sh(`corral-call kid --allow-read /docs/a --allow-read /out --allow-write /out/b 2>/dev/null
        corral-call kid --readonly 2>/dev/null
        corral-call kid --allow-read /else; echo $?`),
      sandbox: { zones: [{ name: "docs" }, writable("out")] },
      calls: ["kid"],
    };
    await using project = await openProject({
      workers: { boss, kid },
      zones: { docs: "ro", out: "rw" },
      files: { "docs/a/1": "", "docs/b/1": "", "out/a/old": "", "out/b/old": "" },
    });
    const { calls, stdout } = await project.run("boss");
    expect(calls.map((call) => call.stdout)).toEqual([
      "/docs/a\n/out/a\n/out/b\nwrote b\n",
      "/docs/a\n/docs/b\n/out/a\n/out/b\n",
      "",
    ]);
    expect(calls[2]).toMatchObject({ status: "refused", violations: [{ code: "PATH_NOT_AVAILABLE", asked: "/else" }] });
    expect(stdout.endsWith("126\n")).toBe(true);
    expect(await readFile(join(project.dir, "out/b/new"), "utf8")).toBe("x\n");
  });

  it("may hand on an attachment that the caller was itself given, and no other", async () => {
    const middle = {
      command: sh("corral-call kid --attach /attachments/m=k; corral-call kid --attach /docs/a.txt; echo $?"),
      calls: ["kid"],
    };
    const boss = {
      command: sh("corral-call middle --attach /docs/a.txt=m"),
      sandbox: { zones: [{ name: "docs" }] },
      calls: ["middle"],
    };
    await using project = await openProject({
      workers: { boss, middle, kid: { command: sh("cat /attachments/k") } },
      zones: { docs: "ro" },
      files: { "docs/a.txt": "A\n" },
    });
    const { calls } = await project.run("boss");
    expect(calls[0]).toMatchObject({ stdout: "A\n126\n", calls: [{ status: "succeeded" }, { status: "refused" }] });
  });
});

describe("an attachment that cannot be handed on", () => {
  it("is told by the path that its caller wrote, with what may be attached instead", async () => {
    const paths = ["/docs/none.txt", "/docs", "/elsewhere/a.txt", "/docs/a.bin"];
    const boss = {
      command: sh(paths.map((path) => `corral-call kid --attach ${path}=a`).join("; ")),
      sandbox: { zones: [{ name: "docs" }] },
      calls: ["kid"],
    };
    await using project = await openProject({
      workers: { boss, kid: { command: sh(":") } },
      sandbox: { zones: { docs: { path: "./docs", suffixes: [".txt"] } } },
      files: { "docs/a.txt": "A", "docs/a.bin": "B" },
    });
    const { calls } = await project.run("boss");
    expect(calls.map(({ error }) => error?.message)).toEqual([
      "'/docs/none.txt' cannot be attached: it does not exist. Attach another file.",
      expect.stringMatching(/^'\/docs' /),
      "'/elsewhere/a.txt' cannot be attached: it is outside the sandbox of the caller. Attach a file below one of: /docs.",
      "'/docs/a.bin' cannot be attached: files of this kind are not allowed there. Allowed suffixes: .txt (SUFFIX_NOT_ALLOWED). Attach a file below one of: /docs.",
    ]);
  });
});

describe("a worker whose policy does not exist", () => {
  it("is found before anything runs, also where it would only be called", async () => {
    const boss = { command: sh("corral-call broken"), calls: ["broken"] };
    const opening = openProject({ workers: { boss, broken: { command: ["true"], policy: "no-such" } } });
    await expect(opening).rejects.toThrow(UnknownPolicyError);
  });
});

describe("a root run's attachments", () => {
  it("must have names of files, each its own", async () => {
    await using project = await openProject({
      workers: { w: { command: sh("cat /attachments/*") } },
      files: { x: "X" },
    });
    const host = join(project.dir, "x");
    expect(await project.run("w", { attachments: [{ name: "a", host }] })).toMatchObject({
      status: "succeeded",
      stdout: "X",
    });
    for (const names of [["../a"], [".."], ["a/b"], [""], ["a", "a"], ["a\nb"]]) {
      const result = await project.run("w", { attachments: names.map((name) => ({ name, host })) });
      expect(result).toMatchObject({ status: "refused", violations: [{ code: "ATTACHMENT_REFUSED" }] });
    }
    expect(project.events.filter(({ type }) => type === "started")).toHaveLength(1);
  });
});
