import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** An image of its own with nothing but what this script makes in its root directory. Disposing removes it. */
export async function inImage(script: string): Promise<AsyncDisposable & { readonly name: string }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-image-"));
  const name = `corral-test/strange-${randomBytes(6).toString("hex")}:1`;
  try {
    await run("sh", ["-euc", `cd "$1"; mkdir -p tmp home etc proc sys dev; ${script}`, "sh", dir]);
    await run("sh", ["-euc", `tar -C "$1" -c . | timeout 60 docker import - "$2"`, "sh", dir, name]);
  } finally {
    await rm(dir, { recursive: true });
  }
  return {
    name,
    async [Symbol.asyncDispose]() {
      await run("timeout", ["60", "docker", "image", "rm", "-f", name]);
    },
  };
}
