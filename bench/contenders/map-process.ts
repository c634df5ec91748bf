import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Ours } from "./ours.ts";

const CORRAL = fileURLToPath(new URL("../../dist/cli/corral.cjs", import.meta.url));
const LOOK_MS = 50;
const ITEM = ["--attach", "{path}=in", "--allow-read", "/out/{name}", "--allow-write", "/out/{name}", "--no-cache"];

/** The peak resident memory of `corral map` over all items of the bench's project, with scrubbed cells. */
export async function mostResidentBytes({ projectDir, env }: Ours): Promise<number> {
  const over = ["--over", `${projectDir}/inbox/*`, "--reuse", "scrubbed", "--project", projectDir];
  const child = spawn(process.execPath, [CORRAL, "map", "item", ...over, ...ITEM], { env, stdio: "ignore" });
  let most = 0;
  const looking = setInterval(() => {
    most = Math.max(most, highWaterBytes(child.pid));
  }, LOOK_MS);
  try {
    const [code] = await once(child, "exit");
    if (code !== 0) throw new Error(`corral map ended with exit code ${code}`);
    return most;
  } finally {
    clearInterval(looking);
  }
}

/** The peak that the kernel reports; 0 if the process has ended. */
function highWaterBytes(pid: number | undefined): number {
  try {
    const [, kilobytes = "0"] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return Number(kilobytes) * 1024;
  } catch {
    return 0;
  }
}
