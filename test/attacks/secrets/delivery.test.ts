import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openFleetProject } from "../../fleet/fleet-fixture.ts";
import { shownCell } from "../../run/outside-cell.ts";
import { sh } from "../../run/project-fixture.ts";
import { openSessionIn } from "../../run/session/session-fixture.ts";
import { isAgain } from "../../tiers/again.ts";
import { canaryKey, tracesBelow } from "../canary-key.ts";
import { compares, openWithSecret, secretSpec } from "./secret-project.ts";

/* The value of a secret is a file in the cell of the worker that declares it, and nowhere else. */

/* Debian 12's `ls` and `stat` fail for one path in cells of gVisor. */
const LIST = "find /run/secrets -mindepth 1 -printf '%f\\n'";
const STAT = `perl -e '@s = stat shift; printf "%o %d %d\\n", $s[2] & 07777, $s[4], $s[7]' /run/secrets/token`;

/** Looks in all that it can read; in halves, so as not to find its own question. */
const search = ([first, second]: readonly [string, string]): string => `
  printf '%s%s' '${first}' '${second}' > /tmp/text
  ${LIST} 2>/dev/null
  cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /tmp/text
  grep -rlsF -f /tmp/text / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev | grep -v '^/tmp/text$'
  echo searched`;

describe("the cell of a worker that declares a secret", () => {
  it("has its value in a file of its user alone, in memory, and in no environment", async () => {
    const canary = canaryKey();
    const command = sh(`
      ${compares("/run/secrets/token", canary.halves)}
      ${STAT}
      ${LIST}
      stat -f -c %T /run/secrets
      cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /run/secrets/token
      cat; cat /run/secrets/token`);
    await using opened = await openWithSecret({ workers: { w: { command, secrets: ["token"] } } }, {}, canary);
    const result = await opened.project.run("w", { input: "its input" });
    expect(result).toMatchObject({ status: "succeeded", stderr: "" });
    expect(result.stdout).toBe(`same\n400 65532 ${canary.key.length}\ntoken\ntmpfs\n0\n"its input"\n[secret]`);
  });

  it("shows nothing of it outside: not in what its driver says of it, nor in its files, arguments or labels", async () => {
    const command = sh("cp /run/secrets/token /tmp/copy; echo ready; until [ -e /in/go ]; do sleep 0.05; done");
    const worker = { command, secrets: ["token"], sandbox: { zones: [{ name: "in" }] } };
    await using opened = await openWithSecret({ workers: { w: worker }, zones: { in: "ro" } });
    const { project, canary } = opened;
    const running = project.run("w");
    await project.printed("w", "ready");
    const { run: id } = project.events[0] ?? { run: "" };
    const cell = await shownCell(project.stateDir, id);
    const texts = [...((await cell?.texts()) ?? []), (await cell?.exported()) ?? ""];
    const written = await Promise.all(cell?.folders.map((dir) => tracesBelow(dir, canary)) ?? []);
    await writeFile(join(project.dir, "in/go"), "");
    expect(await running).toMatchObject({ status: "succeeded" });
    // The search sees what is there.
    expect(texts.join()).toContain("/run/secrets");
    expect(texts.filter((text) => canary.isIn(text))).toEqual([]);
    expect(written.flat()).toEqual([]);
    expect(JSON.stringify(project.planOf("w").secrets)).toBe('["token"]');
    expect(canary.isIn(JSON.stringify(project.planOf("w")))).toBe(false);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
  });

  // Which cell gets which secret is the host's to choose.
  it.skipIf(isAgain())(
    "is the only one: not that of a sibling that runs beside it, nor that of a worker that it calls",
    async () => {
      const canary = canaryKey();
      const spec = {
        workers: {
          boss: { command: sh(`echo begun; corral-call callee '{}'; sleep 2`), calls: ["callee"], secrets: ["token"] },
          callee: { command: sh(search(canary.halves)) },
          sibling: { command: sh(search(canary.halves)), secrets: ["other"] },
        },
      };
      await using opened = await openWithSecret(spec, {}, canary);
      const boss = opened.project.run("boss");
      await opened.project.printed("boss", "begun");
      const sibling = await opened.project.run("sibling");
      expect(sibling.stdout).toBe("other\n0\nsearched\n");
      const [called] = (await boss).calls;
      expect(called).toMatchObject({ status: "succeeded", stdout: "0\nsearched\n" });
    },
  );

  it.skipIf(isAgain())("gives a called worker only what it declares and its caller has", async () => {
    const canary = canaryKey();
    const show = sh(`${LIST} 2>/dev/null; echo end`);
    await using opened = await openWithSecret(
      {
        workers: {
          boss: {
            command: sh("corral-call same '{}'; corral-call more '{}'; true"),
            calls: ["same", "more"],
            secrets: ["token"],
          },
          same: { command: show, secrets: ["token"] },
          more: { command: show, secrets: ["token", "other"] },
        },
      },
      {},
      canary,
    );
    const { calls } = await opened.project.run("boss");
    expect(calls[0]).toMatchObject({ status: "succeeded", stdout: "token\nend\n" });
    expect(calls[1]).toMatchObject({
      status: "refused",
      violations: [{ code: "SECRET_NOT_AVAILABLE", asked: "other", by: "boss", valid: ["token"] }],
    });
  });

  it("can remove its copies, which ends with the cell: the next run has them again", async () => {
    const command = sh(`rm /run/secrets/token && ${LIST}; touch /run/secrets/planted; echo end`);
    await using opened = await openWithSecret({ workers: { w: { command, secrets: ["token"] } } });
    for (const _ of [1, 2])
      expect(await opened.project.run("w")).toMatchObject({ status: "succeeded", stdout: "end\n", stderr: "" });
  });

  it("reads large inputs and several secrets of the longest values apart", async () => {
    const long = "x".repeat(9_000) + "yz".repeat(500);
    const command = sh("wc -c < /run/secrets/token; wc -c < /run/secrets/other; wc -c");
    await using opened = await openWithSecret(
      { workers: { w: { command, secrets: ["token", "other"] } } },
      { engineEnv: { OTHER_OF_TEST: long } },
    );
    const result = await opened.project.run("w", { input: "i".repeat(300_000) });
    expect(result.stdout).toBe(`${opened.canary.key.length}\n10000\n300003\n`);
  });
});

describe("a session's cell", () => {
  it("has its worker's secrets for its commands' user alone, and masks what they print", async () => {
    const canary = canaryKey();
    const worker = {
      command: ["true"],
      secrets: ["token"],
      shell_rules: { default: "pre_approved" },
      tools: ["exec", "read_file"],
    };
    await using s = await openSessionIn(...secretSpec({ workers: { w: worker } }, canary));
    const first = await s.exec(`${compares("/run/secrets/token", canary.halves)}; ${STAT}`);
    const { user } = (await s.session.cell(new AbortController().signal)).plan;
    expect(first.stdout).toBe(`same\n400 ${user.uid} ${canary.key.length}\n`);
    const printed = await s.tool("exec", { command: "cat /run/secrets/token; base64 -w0 /run/secrets/token >&2" });
    expect(printed).toMatchObject({ ok: true, data: { stdout: "[secret]", stderr: "[secret]" } });
    const [shown] = await s.project.corral.environment.driver.list();
    const texts = (await (await shownCell(s.project.stateDir, shown?.run ?? ""))?.texts()) ?? [];
    expect(texts.join()).toContain("/run/secrets");
    expect(texts.filter((text) => canary.isIn(text))).toEqual([]);
    const long = await s.tool("exec", { command: "yes $(cat /run/secrets/token) | head -n 2000" });
    expect(canary.isIn(JSON.stringify(long))).toBe(false);
    // The whole output is on the disk, while the session lasts.
    expect(await tracesBelow(s.project.stateDir, canary)).toEqual([]);
  });
});

describe("a fleet", () => {
  // The host decides which cells get a secret.
  it.skipIf(isAgain())(
    "gives no secret to a cell that serves many items, and stores none of what its items print",
    async () => {
      const canary = canaryKey();
      const command = sh("cat /run/secrets/token; cat /run/secrets/token >&2; exit 3");
      const batch = await readFile(new URL("../../../policies/batch.yaml", import.meta.url), "utf8");
      const allowed = '  secrets: { value: allowed, why: "for this test alone" }';
      const own = batch.replace("name: batch", "name: own").replace("  secrets: none", allowed);
      const [spec, options] = secretSpec(
        {
          workers: { w: { command, secrets: ["token"] } },
          policy: "own",
          files: { "policies/own.yaml": own },
          yaml: { policies: "policies" },
        },
        canary,
      );
      await using fleet = await openFleetProject(spec, options);
      expect(await fleet.open({ reuse: "scrubbed" }, [{ key: "a" }])).toEqual({
        ok: false,
        reason: "worker w has secrets inside, and a cell that serves many items holds none: use `reuse: fresh`",
      });
      const { results } = await fleet.map({ reuse: "fresh" }, [{ key: "a" }, { key: "b" }]);
      expect([...results.values()].map(({ exitCode, output }) => [exitCode, output])).toEqual([
        [3, "[secret]"],
        [3, "[secret]"],
      ]);
      expect(canary.isIn(JSON.stringify([[...results.values()], fleet.events, fleet.project.events]))).toBe(false);
      // Neither the journal nor anything else on the disk has it.
      expect(await tracesBelow(fleet.project.stateDir, canary)).toEqual([]);
    },
  );
});

describe("a worker that declares no secret", () => {
  it("has no such directory in its cell", async () => {
    await using opened = await openWithSecret({
      workers: { w: { command: sh("ls -d /run/secrets || grep -c secrets /proc/self/mountinfo") } },
    });
    expect((await opened.project.run("w")).stdout).toBe("0\n");
  });
});
