import { chmod, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { namedSecrets, type SecretSource } from "../../src/secrets/read-secret.ts";

const { signal } = new AbortController();

async function home(content: string, mode = 0o600): Promise<{ HOME: string; path: string }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-secret-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const path = join(dir, "key");
  await writeFile(path, content);
  await chmod(path, mode);
  return { HOME: dir, path };
}

function secret(source: SecretSource, env: Record<string, string> = {}): Promise<string> {
  return namedSecrets(new Map([["key", source]]), env)("key", signal);
}

describe("a named secret", () => {
  it("is read from the environment, the line of a file or a program, without blank space around it", async () => {
    const { HOME, path } = await home("  of a file \n\n");
    expect(await secret({ kind: "env", name: "KEY" }, { KEY: " of a variable" })).toBe("of a variable");
    expect(await secret({ kind: "file", path })).toBe("of a file");
    expect(await secret({ kind: "file", path: "~/key" }, { HOME })).toBe("of a file");
    expect(await secret({ kind: "command", program: "echo", args: ["of a program"] })).toBe("of a program");
  });

  it("is read for each use", async () => {
    const { path } = await home("first");
    const secretOf = namedSecrets(new Map([["key", { kind: "file", path }]]), {});
    expect(await secretOf("key", signal)).toBe("first");
    await writeFile(path, "second");
    expect(await secretOf("key", signal)).toBe("second");
  });

  it("follows links to its file, as those that a cluster makes", async () => {
    const { HOME, path } = await home("linked");
    await symlink(path, join(HOME, "link"));
    expect(await secret({ kind: "file", path: "~/link" }, { HOME })).toBe("linked");
  });

  it("is not available from a file that other users reach", async () => {
    for (const mode of [0o604, 0o602, 0o620, 0o777]) {
      const { path } = await home("canary", mode);
      await expect(secret({ kind: "file", path })).rejects.toThrow(/can be read or written by other users/);
    }
    const { path } = await home("for the group", 0o640);
    expect(await secret({ kind: "file", path })).toBe("for the group");
  });

  it("is not available from what is no file with one line, and the reason repeats nothing", async () => {
    const cases: [string, RegExp][] = [
      ["canary\ncanary", /has more than one line/],
      ["", /has no password, token or key/],
      ["canary\0", /has no password, token or key/],
      ["canary".repeat(20_000), /is larger than 65536 bytes/],
      ["canary ü", /has characters that an HTTP header cannot contain/],
    ];
    for (const [content, reason] of cases) {
      const { path } = await home(content);
      const error = await secret({ kind: "file", path }).catch((caught: Error) => caught);
      expect(error).toMatchObject({ name: "SecretUnavailable", message: expect.stringMatching(reason) });
      expect(String(error)).not.toContain("canary");
    }
    const { HOME } = await home("");
    await expect(secret({ kind: "file", path: HOME })).rejects.toThrow(/is not a regular file/);
    await expect(secret({ kind: "file", path: "~/none" }, { HOME })).rejects.toThrow(/cannot be opened/);
    await expect(secret({ kind: "file", path: "~/key" })).rejects.toThrow(/below a home that is not known/);
  });

  it("must be declared", async () => {
    await expect(namedSecrets(new Map(), {})("other", signal)).rejects.toThrow("there is no secret `other`");
  });
});
