import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { OpenedProject } from "../../../src/index.ts";

/** The workers that make the documents. If one of them changes, the documents are made again. */
const MAKERS = ["collect", "compose"] as const;

/** Makes the real documents of the inbox, unless the same workers have already made them. */
export async function collectDocuments(
  project: OpenedProject,
  signal: AbortSignal,
  say: (line: string) => void,
): Promise<void> {
  const marker = join(project.definition.dir, ".work/collected-by");
  const makers = await fingerprint(project.definition.dir);
  if ((await readFile(marker, "utf8").catch(() => "")) === makers) return;
  say("collecting documents (once)");
  const result = await project.run("collect", { signal });
  if (result.status !== "succeeded") {
    throw new Error(`the documents could not be made: ${result.error?.message}\n${result.stderr}`);
  }
  await writeFile(marker, makers);
}

async function fingerprint(projectDir: string): Promise<string> {
  const hash = createHash("sha256");
  for (const name of MAKERS) hash.update(await readFile(join(projectDir, "workers", `${name}.worker`)));
  return hash.digest("hex");
}
