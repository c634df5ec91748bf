import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ApprovalRequest } from "../../../src/approval/approver.ts";
import { sh, writable } from "../../run/project-fixture.ts";
import { HANDY, openSessionIn } from "../../run/session/session-fixture.ts";
import { canaryKey, tracesBelow } from "../canary-key.ts";
import { openWithSecret, secretSpec } from "./secret-project.ts";

/* What a worker that has a secret prints, names and writes is shown and stored without it. */

const IN_ALL_FORMS = `
  token=/run/secrets/token
  cat $token; echo
  cat $token >&2
  base64 -w0 $token; echo
  printf 'user:%s' "$(cat $token)" | base64 -w0; echo
  jq -cR . < $token
  jq -rR @uri < $token`;

describe("what a worker prints", () => {
  it("has no secret in the result, in the events, in the trail and in what is stored, in any usual encoding", async () => {
    await using opened = await openWithSecret({ workers: { w: { command: sh(IN_ALL_FORMS), secrets: ["token"] } } });
    const { project, canary } = opened;
    const result = await project.run("w");
    expect(result.stdout.split("\n")).toEqual([
      "[secret]",
      "[secret]",
      expect.stringContaining("[secret]"),
      '"[secret]"',
      "[secret]",
      "",
    ]);
    expect(result.stderr).toBe("[secret]");
    const shown = project.events.map((event) => (event.type === "output" ? event.chunk.toString() : event));
    for (const text of [JSON.stringify(result), JSON.stringify(shown)]) expect(canary.isIn(text)).toBe(false);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
  });

  it("has none that is split over pieces, byte for byte, and keeps bytes that are no text", async () => {
    const script = `
      text=$(cat /run/secrets/token)
      printf '\\377\\200'
      i=1; while [ $i -le \${#text} ]; do printf %s "$text" | cut -zc $i | tr -d '\\0'; sleep 0.02; i=$((i + 1)); done
      printf '\\377 sk-'`;
    await using opened = await openWithSecret({ workers: { w: { command: sh(script), secrets: ["token"] } } });
    const result = await opened.project.run("w");
    const pieces = opened.project.events.flatMap((event) => (event.type === "output" ? [event.chunk] : []));
    expect(Buffer.concat(pieces).toString("latin1")).toBe("\xff\x80[secret]\xff sk-");
    expect(result.status).toBe("succeeded");
  });

  it("has none as JSON, in its fields and in their names", async () => {
    const command = sh(`jq -cnR '[inputs] | {(.[0]): [.[0], 1]}' < /run/secrets/token`);
    await using opened = await openWithSecret({ workers: { w: { command, secrets: ["token"], output: "json" } } });
    expect(await opened.project.run("w")).toMatchObject({ output: { "[secret]": ["[secret]", 1] } });
  });

  it("reaches the worker that called it without the secret", async () => {
    await using opened = await openWithSecret({
      workers: {
        boss: {
          command: sh("corral-call w > /out/answer; wc -c < /run/secrets/token"),
          calls: ["w"],
          secrets: ["token"],
          sandbox: { zones: [writable("out")] },
        },
        w: { command: sh("cat /run/secrets/token; exit 4"), secrets: ["token"] },
      },
      zones: { out: "rw" },
    });
    const { project, canary } = opened;
    expect((await project.run("boss")).calls).toMatchObject([{ stdout: "[secret]" }]);
    const answer = await readFile(join(project.dir, "out/answer"), "utf8");
    expect(answer).toContain("[secret]");
    expect(canary.isIn(answer)).toBe(false);
  });
});

describe("what a worker changes", () => {
  const zones = { out: "rw" } as const;
  const sandbox = { zones: [{ name: "out", mode: "rw", stage: true, approval: "pre_approved" }] };

  it("is refused where it has the secret: in a content, in a name, in the target of a link; the rest is applied", async () => {
    const command = sh(`
      cd /out; token=$(cat /run/secrets/token); name=$(printf %s "$token" | base64 -w0 | tr / _)
      echo fine > fine
      head -c 1048570 /dev/zero > large; cat /run/secrets/token >> large
      echo x > "$name"; mkdir "$name.d"; echo x > "$name.d/inner"
      ln -s "$token" link
      mv kept moved; cat /run/secrets/token >> moved`);
    const w = { command, secrets: ["token"], sandbox };
    await using opened = await openWithSecret({ workers: { w }, zones, files: { "out/kept": "kept\n" } });
    const { project, canary } = opened;
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", error: { code: "CHANGES_REFUSED" } });
    const reason = "it contains the secret `token`";
    const outcomes = result.changes.map(({ path, outcome, reason: why }) => [path, outcome, why]);
    expect(outcomes).toContainEqual(["/out/large", "refused", reason]);
    expect(outcomes).toContainEqual(["/out/moved", "refused", reason]);
    expect(outcomes).toContainEqual(["/out/fine", "applied", null]);
    expect(outcomes.filter(([, , why]) => why === reason)).toHaveLength(6);
    expect(canary.isIn(JSON.stringify(result))).toBe(false);
    expect((await readdir(join(project.dir, "out"))).sort()).toEqual(expect.arrayContaining(["fine"]));
    expect(await tracesBelow(project.dir, canary)).toEqual([]);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
  });

  it("waits without it if the run failed: what is stored for a person has no secret", async () => {
    const command = sh("cat /run/secrets/token > /out/copy; echo fine > /out/fine; exit 3");
    await using opened = await openWithSecret({ workers: { w: { command, secrets: ["token"], sandbox } }, zones });
    const { project, canary } = opened;
    const result = await project.run("w");
    expect(result.changes.map(({ path, outcome }) => [path, outcome])).toEqual([
      ["/out/copy", "refused"],
      ["/out/fine", "held"],
    ]);
    expect(await readdir(join(project.stateDir, "changes"))).toContain(result.run);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
  });
});

describe("what a session shows", () => {
  const tools = ["exec", "read_file", "write_file", "list_files", "commit_changes"];
  const worker = { command: ["true"], secrets: ["token"], shell_rules: { default: "pre_approved" }, tools };

  it("has no secret in a tool's answer, in a refusal, in a question for consent, in a commit and in the trail", async () => {
    const canary = canaryKey();
    const asked: ApprovalRequest[] = [];
    const zone = { name: "out", mode: "rw", approval: { write: "ask", delete: "ask" } };
    const [spec, options] = secretSpec(
      { workers: { w: { ...worker, sandbox: { zones: [zone] } } }, zones: { out: "rw" } },
      canary,
      {
        approvalMode: "interactive",
        person: {
          async decide(request) {
            asked.push(request);
            return { outcome: "approved", scope: "once", reason: "for this test" };
          },
        },
      },
    );
    await using s = await openSessionIn(spec, options);
    await s.exec("cp /run/secrets/token /out/copy; chmod 644 /out/copy");
    const read = await s.tool("read_file", { path: "/out/copy" });
    expect(read).toMatchObject({ ok: true });
    expect(read.ok && read.text).toContain("[secret]");
    // A program in the cell knows the value, and uses tools with it.
    const written = await s.tool("write_file", { path: "/out/second", content: `key = ${canary.key}\n` });
    const unknown = await s.tool("read_file", { path: `/out/${canary.key}` });
    const missing = await s.tool("exec", { command: 'cat "/out/$(cat /run/secrets/token)"; exit 3' });
    const commit = await s.tool("commit_changes", {});
    expect(asked.length).toBeGreaterThan(0);
    expect(JSON.stringify(commit)).toContain("it contains the secret `token`");
    const told = [read, written, missing, commit, asked, s.project.events];
    for (const text of told) expect(canary.isIn(JSON.stringify(text))).toBe(false);
    expect(unknown.ok).toBe(false);
    await s.finish();
    expect(await tracesBelow(s.project.dir, canary)).toEqual([]);
    await s.close();
    const trail = await tracesBelow(s.project.stateDir, canary);
    expect(trail).toEqual([]);
  });
});

describe("what an agent sees and leaves", () => {
  it("has no secret: in its model's messages, its transcript, its events and its answer", async () => {
    const script = [
      { calls: [{ exec: { command: "cat /run/secrets/token; cat /run/secrets/token >&2; exit 2" } }] },
      { calls: [{ w: { input: {} } }] },
      { say: "Done." },
    ];
    await using opened = await openWithSecret({
      workers: {
        a: {
          model: "script/scripts/a.yaml",
          tools: ["exec"],
          calls: ["w"],
          secrets: ["token"],
          shell_rules: { default: "pre_approved" },
        },
        w: { command: sh("cat /run/secrets/token"), secrets: ["token"] },
        boss: {
          command: sh(
            `jq -nR '{worker: "a", input: {key: input}}' < /run/secrets/token | curl -s --unix-socket "$CORRAL_SOCKET" http://c/v1/calls -d @- > /dev/null`,
          ),
          calls: ["a"],
          secrets: ["token"],
        },
      },
      files: { "scripts/a.yaml": JSON.stringify(script) },
    });
    const { project, canary } = opened;
    const result = await project.run("boss");
    const [agent] = result.calls;
    expect(agent?.calls).toMatchObject([{ worker: "w", stdout: "[secret]" }]);
    for (const text of [result, project.events]) expect(canary.isIn(JSON.stringify(text))).toBe(false);
    const files = await readdir(join(project.stateDir, "transcripts"), { recursive: true });
    expect(files.filter((name) => name.endsWith(".jsonl") || name.endsWith(".ndjson"))).not.toEqual([]);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
  });
});

describe("files of a session that has a secret", () => {
  it("are read as they are, and refused with their reason if they contain it", async () => {
    const canary = canaryKey();
    const worker = { ...HANDY, policy: "default", secrets: ["token"] };
    const spec = { workers: { w: worker }, zones: { docs: "ro", out: "rw" } } as const;
    await using s = await openSessionIn(...secretSpec(spec, canary));
    const got = async (path: string): Promise<Buffer> => {
      const taken = Promise.withResolvers<void>();
      try {
        const { content } = await s.session.get(path, taken.promise, AbortSignal.timeout(60_000));
        return Buffer.concat(await Array.fromAsync(content));
      } finally {
        taken.resolve();
      }
    };
    // The beginning of a secret at each end of a piece is held back, and comes.
    const begins = `printf '%s' ${canary.halves[0]}`;
    const parts = `(i=0; while [ $i -lt 40 ]; do head -c 70001 /dev/zero; ${begins}; i=$((i + 1)); done) > /out/tree/parts`;
    const made = await s.exec(
      `mkdir /out/tree; ${parts}; cat /run/secrets/token > /out/key; sha256sum < /out/tree/parts`,
    );
    const whole = await got("/out/tree/parts");
    expect(made.stdout).toContain(createHash("sha256").update(whole).digest("hex"));
    expect((await got("/out/tree")).includes(whole)).toBe(true);
    await expect(got("/out/key")).rejects.toMatchObject({
      code: "CONTAINS_SECRET",
      message: "Cannot get /out/key: it contains the secret `token` of the session.",
    });
    await s.exec("head -c 20000000 /dev/zero > /out/tree/large; cat /out/key >> /out/tree/large");
    await expect(got("/out/tree")).rejects.toMatchObject({ code: "CONTAINS_SECRET" });
    expect((await s.exec("echo on")).stdout).toBe("on\n");
  });
});
