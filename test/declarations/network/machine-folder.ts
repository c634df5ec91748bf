import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";
import type { RegistryMachine } from "../../../src/declarations/network/registries/registry.ts";

/** A machine with these settings files. Names that begin with `~/` are below the home of its user, the others below `/`. */
export async function machineWith(
  files: Readonly<Record<string, string>>,
  env: Readonly<Record<string, string>> = {},
): Promise<RegistryMachine> {
  const dir = await mkdtemp(join(tmpdir(), "corral-machine-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const home = join(dir, "home");
  for (const [name, text] of Object.entries(files)) {
    const path = name.startsWith("~/") ? join(home, name.slice(2)) : join(dir, "root", name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  return { env: { HOME: home, ...env }, root: join(dir, "root") };
}
