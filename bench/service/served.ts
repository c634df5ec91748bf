import { chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A project and a state directory of its own, in a temporary folder. */
export interface BenchProject extends AsyncDisposable {
  readonly dir: string;
  readonly stateDir: string;
}

/** The user of cells under the default policy. */
const WORKER_UID = 65_532;

export async function benchProject(yaml: object, workers: Readonly<Record<string, object>>): Promise<BenchProject> {
  const root = await mkdtemp(join(tmpdir(), "corral-service-"));
  const dir = join(root, "project");
  await mkdir(join(dir, "workers"), { recursive: true });
  await mkdir(join(dir, "out"));
  await chown(join(dir, "out"), WORKER_UID, WORKER_UID);
  await writeFile(join(dir, "corral.yaml"), JSON.stringify({ version: 1, ...yaml }));
  for (const [name, worker] of Object.entries(workers))
    await writeFile(
      join(dir, `workers/${name}.worker`),
      `---\n${JSON.stringify({ image: "corral/base", ...worker })}\n---\n`,
    );
  return {
    dir,
    stateDir: join(root, "state"),
    [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }),
  };
}

/** A shell command for a worker. */
export const sh = (script: string): { readonly command: readonly string[] } => ({ command: ["sh", "-c", script] });
