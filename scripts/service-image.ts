/** Builds corral/service, the image of compose.yaml, from the package as `npm pack` makes it. `--base IMAGE`: in place of Node's own image; `--tag NAME`. */
import { spawnSync } from "node:child_process";
import { cpSync, globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

const root = join(import.meta.dirname, "..");
const { values } = parseArgs({
  options: { base: { type: "string" }, tag: { type: "string", default: "corral/service" } },
});

const dir = mkdtempSync(join(tmpdir(), "corral-service-image-"));
try {
  run(process.execPath, [join(root, "scripts/build.ts")]);
  // The build is done already, and npm's own scripts are not needed for a bundle.
  run("npm", ["pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", dir], "ignore");
  const [archive] = globSync("*.tgz", { cwd: dir });
  if (archive === undefined) throw new Error("npm pack made no archive");
  const quiet = ["--no-fund", "--no-audit", "--loglevel=error", "--ignore-scripts", "--omit=peer"];
  run("npm", ["install", ...quiet, "--prefix", join(dir, "app"), join(dir, archive)], "ignore");
  cpSync(join(root, "compose/Dockerfile"), join(dir, "Dockerfile"));
  rmSync(join(dir, archive));
  const base = values.base === undefined ? [] : ["--build-arg", `BASE=${values.base}`];
  run("docker", ["build", "--quiet", "--tag", values.tag, ...base, dir]);
} finally {
  rmSync(dir, { recursive: true, force: true });
}

function run(program: string, args: readonly string[], stdout: "inherit" | "ignore" = "inherit"): void {
  const { status, error } = spawnSync(program, args, { cwd: root, stdio: ["ignore", stdout, "inherit"] });
  if (error !== undefined) throw error;
  if (status !== 0) process.exit(status ?? 1);
}
