import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { GitRepo } from "../../src/declarations/git/repo.ts";
import type { SecretSource } from "../../src/secrets/read-secret.ts";
import { type HttpRemote, httpRemote } from "./http-remote.ts";
import { bareRemote, type Remote } from "./remote.ts";
import { never, refusal, repoAt, type WorkerSide, workerSide } from "./worker-side.ts";

const SECRET = "s3cr3t/+ with=signs&";
const FROM_ENV: SecretSource = { kind: "env", name: "NOTES_TOKEN" };

let remote: Remote;
let http: HttpRemote;
/** The argument lists of all processes of this machine, at each request to the remote. */
let argumentLists: string;
const opened: WorkerSide[] = [];

beforeEach(async () => {
  remote = bareRemote({ "a.md": "one\n" });
  remote.git("config", "http.receivepack", "true");
  argumentLists = "";
  http = await httpRemote(remote.path, SECRET, () => {
    argumentLists += allArgumentLists();
  });
});
afterEach(async () => {
  for (const worker of opened.splice(0).toReversed()) await worker[Symbol.asyncDispose]();
  await http[Symbol.asyncDispose]();
  remote.remove();
});

function allArgumentLists(): string {
  return fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return fs.readFileSync(join("/proc", pid, "cmdline"), "utf8");
      } catch {
        return "";
      }
    })
    .join("\n");
}

async function open(
  credentials: SecretSource | null,
  env: Record<string, string>,
  url = http.url,
): Promise<WorkerSide> {
  const repo: Partial<GitRepo> = { ...repoAt(url), credentials };
  const worker = await workerSide({ path: remote.path }, { repo, repositories: { env } });
  opened.push(worker);
  return worker;
}

function everyText(dir: string): string {
  return fs
    .readdirSync(dir, { recursive: true, encoding: "utf8" })
    .filter((name) => fs.statSync(join(dir, name)).isFile())
    .map((name) => fs.readFileSync(join(dir, name), "latin1"))
    .join("\n");
}

describe("a repository that wants a password", () => {
  it("is pulled from and pushed to, and the password stands in no argument, file, or commit", async () => {
    const w = await open(FROM_ENV, { NOTES_TOKEN: SECRET });
    expect((await w.pull()).created).toEqual(["/notes/a.md"]);
    w.write("a.md", "two\n");
    const { commit } = await w.stage(["a.md"]);
    await w.repository.push(commit, never);
    expect(remote.files()).toEqual({ "a.md": "two\n" });
    expect(new Set(http.seen)).toEqual(new Set([`git:${SECRET}`]));
    expect(argumentLists).toContain("remote-http");
    for (const text of [argumentLists, everyText(w.stateDir), everyText(remote.path)])
      expect(text).not.toContain("s3cr3t");
  });

  it("is given the user name that its address has, and what a program prints", async () => {
    const program: SecretSource = { kind: "command", program: "printf", args: ["%s\nmore", SECRET] };
    const w = await open(program, {}, http.url.replace("http://", "http://me@"));
    await w.pull();
    expect(http.seen).toContain(`me:${SECRET}`);
  });

  it("refuses in words that hold neither the password nor the address", async () => {
    const wrong = await open(FROM_ENV, { NOTES_TOKEN: "wr0ng" });
    const none = await open(null, {});
    for (const worker of [wrong, none]) {
      const told = await refusal(worker.pull());
      expect(told).toBe("GIT_CREDENTIALS: The repository notes did not accept the project's credentials for it.");
    }
  });

  it.each([
    ["is not set", FROM_ENV, {}],
    ["holds a line break", FROM_ENV, { NOTES_TOKEN: "a\nhost=evil.example" }],
    [
      "comes from a program that fails",
      { kind: "command", program: "sh", args: ["-c", "echo s3cr3t >&2; exit 3"] },
      {},
    ],
    ["comes from a program that prints nothing", { kind: "command", program: "true", args: [] }, {}],
    ["comes from a program that does not exist", { kind: "command", program: "no-such-program", args: [] }, {}],
  ] as const)("is not asked where the password %s", async (_, credentials, env) => {
    const w = await open(credentials, env);
    const refused = await w
      .pull()
      .catch((error: unknown) => error as { code: string; message: string; detail: string });
    expect(refused).toMatchObject({
      code: "GIT_CREDENTIALS",
      message: "The credentials of the repository notes are not available.",
    });
    expect(JSON.stringify(refused)).not.toContain("s3cr3t");
    expect(http.seen).toEqual([]);
  });

  it("that sends Corral elsewhere is not followed, so that no other host is given the password", async () => {
    await using other = await httpRemote(remote.path, SECRET);
    const w = await open(FROM_ENV, { NOTES_TOKEN: SECRET });
    await w.pull();
    http.redirectTo(other.url.replace("/remote.git", ""));
    expect(await refusal(w.pull())).toMatch(/^GIT_FAILED: /);
    expect(other.seen).toEqual([]);
  });

  it("that repeats the password in its answer does not get it shown to a person", async () => {
    const w = await open(FROM_ENV, { NOTES_TOKEN: SECRET });
    fs.mkdirSync(join(remote.path, "hooks"), { recursive: true });
    fs.writeFileSync(join(remote.path, "hooks/pre-receive"), `#!/bin/sh\necho "you said ${SECRET}" >&2\nexit 1\n`, {
      mode: 0o755,
    });
    w.write("n", "n");
    const { commit } = await w.stage(["n"]);
    const refused = await w.repository.push(commit, never).catch((error: unknown) => error as { detail: string });
    expect(refused).toMatchObject({ code: "GIT_FAILED", detail: expect.stringContaining("you said [secret]") });
  });
});
