import { describe, expect, it } from "vitest";
import { sh, writable } from "../../run/project-fixture.ts";
import { canaryKey, tracesBelow } from "../canary-key.ts";
import { compares, openWithSecret } from "./secret-project.ts";

/* The value of a secret is a file in the cell of the worker that declares it, and nowhere else. */

describe("the cell of a worker that declares a secret", () => {
  it("has its value in a file of its user alone, in memory, and what it prints of it is masked", async () => {
    const canary = canaryKey();
    const command = sh(`
      ${compares("/run/secrets/token", canary.halves)}
      stat -c '%a %u %s' /run/secrets/token
      ls /run/secrets
      stat -f -c %T /run/secrets
      env | grep -c -F "$(cat /run/secrets/token)"
      tr '\\0' '\\n' < /proc/self/environ | grep -c -F "$(cat /run/secrets/token)"
      cat; cat /run/secrets/token`);
    await using opened = await openWithSecret({ workers: { w: { command, secrets: ["token"] } } }, {}, canary);
    const result = await opened.project.run("w", { input: "its input" });
    expect(result).toMatchObject({ status: "succeeded", stderr: "" });
    expect(result.stdout).toBe(
      `same\n400 65532 ${canary.key.length}\ntoken\ntmpfs\n0\n0\n"its input"\n[secret]`,
    );
  });
});
