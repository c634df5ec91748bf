import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { sh } from "../../run/project-fixture.ts";
import { inImage } from "./image-of-a-stranger.ts";
import { openWithSecret } from "./secret-project.ts";

/* Ways to a secret that was not given, and to a place of secrets that is not Corral's. */

const SHOW = sh("ls -A /run/secrets; cat /run/secrets/*");

describe("a worker that asks for a secret", () => {
  it("is refused if the project does not give it to workers, and no cell is started", async () => {
    await using opened = await openWithSecret({
      workers: { w: { command: SHOW, secrets: ["token"] } },
      sandbox: { secrets: ["other"] },
    });
    expect(await opened.project.run("w")).toMatchObject({
      status: "refused",
      violations: [{ code: "SECRET_NOT_AVAILABLE", asked: "token", by: "project", valid: ["other"] }],
    });
    expect(opened.project.events.map(({ type }) => type)).toEqual(["requested", "ended"]);
  });

  it.each(["untrusted", "batch", "ci"])("is refused under the policy %s, the project's or its own", async (policy) => {
    const w = { command: SHOW, secrets: ["token"] };
    await using opened = await openWithSecret({
      workers: {
        w,
        own: { ...w, policy },
        boss: { command: sh("corral-call own; true"), calls: ["own"], secrets: ["token"] },
      },
    });
    const violation = expect.objectContaining({ code: "SECRET_NOT_AVAILABLE", by: `policy ${policy}`, valid: [] });
    const refused = { status: "refused", violations: expect.arrayContaining([violation]) };
    expect(await opened.project.run("w", { policy })).toMatchObject(refused);
    expect(await opened.project.run("own")).toMatchObject(refused);
    const { calls } = await opened.project.run("boss");
    expect(calls).toMatchObject([refused]);
  });

  it("cannot get it by a weaker policy than its caller's", async () => {
    await using opened = await openWithSecret({
      workers: {
        boss: { command: sh("corral-call w; true"), calls: ["w"], policy: "untrusted" },
        w: { command: SHOW, secrets: ["token"], policy: "default" },
      },
    });
    const [called] = (await opened.project.run("boss")).calls;
    expect(called).toMatchObject({ status: "refused" });
    expect(called?.violations.map(({ code }) => code)).toEqual(["POLICY_WEAKER", "SECRET_NOT_AVAILABLE"]);
  });

  it("cannot get it by `inherit`, and keeps its own if its caller narrows its files", async () => {
    const call = `curl -s --unix-socket "$CORRAL_SOCKET" http://c/v1/calls -d '{"worker":"w","narrow":{"readonly":true}}'`;
    await using opened = await openWithSecret({
      workers: {
        boss: { command: sh(`corral-call heir; ${call} > /dev/null`), calls: ["heir", "w"], secrets: ["token"] },
        heir: { command: SHOW, sandbox: { inherit: true } },
        w: { command: sh("wc -c < /run/secrets/token"), secrets: ["token"] },
      },
    });
    const { calls } = await opened.project.run("boss");
    expect(calls[0]).toMatchObject({ status: "failed", stdout: "" });
    expect(calls[1]).toMatchObject({ status: "succeeded", stdout: `${opened.canary.key.length}\n` });
  });
});

describe("a secret that cannot be read", () => {
  it("refuses the run before a cell is started, with its place and without any part of it", async () => {
    const home = await mkdtemp(join(tmpdir(), "corral-home-"));
    onTestFinished(() => rm(home, { recursive: true }));
    await writeFile(join(home, "open"), "a-value-that-others-know\n");
    await chmod(join(home, "open"), 0o644);
    await using opened = await openWithSecret({
      workers: { w: { command: SHOW, secrets: ["unset", "open", "fails", "short"] } },
      sandbox: { secrets: ["unset", "open", "fails", "short"] },
      yaml: {
        secrets: {
          unset: { env: "NOT_SET_IN_TEST" },
          open: { file: join(home, "open") },
          fails: { command: ["sh", "-c", "echo s3cret-part; exit 3"] },
          short: { command: ["echo", "short77"] },
        },
      },
    });
    const result = await opened.project.run("w");
    expect(result.status).toBe("refused");
    expect(result.violations.map(({ code, message }) => [code, message])).toEqual([
      ["SECRET_NOT_READ", expect.stringMatching(/`secrets.fails` of corral.yaml.* the program sh, .* failed \(3\)\.$/)],
      [
        "SECRET_NOT_READ",
        expect.stringMatching(/`secrets.open` of corral.yaml.* can be read or written by other users/),
      ],
      ["SECRET_NOT_READ", expect.stringMatching(/`secrets.short` of corral.yaml.* has fewer than 8 characters/)],
      ["SECRET_NOT_READ", expect.stringMatching(/`secrets.unset` of corral.yaml.* NOT_SET_IN_TEST is not set/)],
    ]);
    expect(JSON.stringify([result, opened.project.events])).not.toMatch(/s3cret-part|short77|a-value-that/);
    expect(opened.project.events.map(({ type }) => type)).toEqual(["requested", "ended"]);
    expect(await opened.project.traces()).toEqual([]);
  });
});

describe("a place of secrets that is another's", () => {
  it.each([
    ["is a link to a directory of the image", "mkdir -p run etc/taken && ln -s /etc/taken run/secrets"],
    ["is below a link", "rm -rf run && ln -s /tmp run"],
    ["is a link to where the worker writes", "mkdir -p run && ln -s /tmp run/secrets"],
  ])("refuses the run if it %s", async (_, script) => {
    await using image = await inImage(script);
    await using opened = await openWithSecret({
      workers: { w: { image: image.name, command: ["/.corral/busybox", "true"], secrets: ["token"] } },
    });
    expect(await opened.project.run("w")).toMatchObject({ status: "refused" });
    expect(opened.project.events.map(({ type }) => type)).toEqual(["requested", "ended"]);
  });

  it.each([
    ["a file by the name of the secret", "echo planted > run/secrets/token"],
    ["a link by its name", "ln -s /tmp/elsewhere run/secrets/token"],
    ["a directory that is closed", "mkdir run/secrets/x; chmod 555 run/secrets"],
    ["a directory that is open to all", "chmod 777 run/secrets"],
  ])("has nothing of the image, which has %s there", async (_, script) => {
    await using image = await inImage(`mkdir -p run/secrets; ${script}`);
    const look = "ls -A /run/secrets; wc -c < /run/secrets/token; stat -c '%a %u' /run/secrets /run/secrets/token";
    const worker = { image: image.name, command: ["/.corral/busybox", "sh", "-c", look], secrets: ["token"] };
    await using opened = await openWithSecret({ workers: { w: worker } });
    expect(await opened.project.run("w")).toMatchObject({
      status: "succeeded",
      stdout: `token\n${opened.canary.key.length}\n700 65532\n400 65532\n`,
    });
  });

  it("cannot be a mount, and an attachment of that name is another file", async () => {
    const place = { zones: { docs: { path: "./docs", mode: "ro", at: "/run/secrets" } } };
    await expect(openWithSecret({ workers: {}, files: { "docs/token": "planted" }, sandbox: place })).rejects.toThrow(
      "would hide a system directory of the cell",
    );
    await using opened = await openWithSecret({
      workers: { w: { command: sh("cat /attachments/token; wc -c < /run/secrets/token"), secrets: ["token"] } },
      files: { "in/token": "attached\n" },
    });
    const attachments = [{ name: "token", host: join(opened.project.dir, "in/token") }];
    const { stdout } = await opened.project.run("w", { attachments });
    expect(stdout).toBe(`attached\n${opened.canary.key.length}\n`);
    expect(
      await opened.project.run("w", { attachments: [{ name: "../run/secrets/token", host: "/etc/passwd" }] }),
    ).toMatchObject({ status: "refused" });
  });
});
