/** Builds dist/ if a source file or a compiler setting is newer than the last build. `--unchecked`: types are checked elsewhere, which takes longer than the rest. */
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, globSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeSchemas } from "../src/cli/shell/schema.ts";
import { bundlePrograms } from "./bundle.ts";
import { removeUnreachable, toleratePackages } from "./declarations.ts";
import { writeHelpTexts } from "./help-texts.ts";
import { buildPage } from "./web.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const manifest: { readonly dependencies: object } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const stamp = join(dist, ".built");
const inputs = ["src/**/*.*", "tsconfig*.json", "package.json", "scripts/*.ts"];

// The program is for all users of the machine, whatever its builder's own files are.
process.umask(0o022);
if (!isUpToDate()) await build();

/** Folders count too: a folder is newer after a file in it was deleted. */
function isUpToDate(): boolean {
  if (!existsSync(stamp)) return false;
  const built = statSync(stamp).mtimeMs;
  return globSync([...inputs, "src/**/"], { cwd: root }).every((path) => statSync(join(root, path)).mtimeMs <= built);
}

async function build(): Promise<void> {
  const started = new Date();
  rmSync(dist, { recursive: true, force: true });
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const unchecked = process.argv.includes("--unchecked") ? ["--noCheck", "--checkers", "1"] : [];
  const compiler = [tsc, "-p", "tsconfig.build.json", ...unchecked];
  const { status } = spawnSync(process.execPath, compiler, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
  removeUnreachable(dist, ["index.d.ts", "sandbox.d.ts"]);
  toleratePackages(dist, Object.keys(manifest.dependencies));
  await bundlePrograms(root, await buildPage(root));
  chmodSync(join(dist, "cli/corral.cjs"), 0o755);
  await writeHelpTexts(join(dist, "cli/help"));
  await writeSchemas(join(dist, "schemas"));
  // Dated before the compiler read its files: a file that changed meanwhile is built the next time.
  writeFileSync(stamp, "");
  utimesSync(stamp, started, started);
}
