import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../platform/errno.ts";

/**
 * The address of the database that has the fleets of a project: CORRAL_QUEUE, else `queue` of its `corral.yaml`; null: they are on
 * this machine. What is not valid is an error, since its fleets would be looked for elsewhere.
 */
export async function queueOf(
  projectDir: string,
  { CORRAL_QUEUE }: Readonly<Record<string, string | undefined>>,
): Promise<string | null> {
  if (CORRAL_QUEUE) return CORRAL_QUEUE;
  const text = await readIfThere(join(projectDir, "corral.yaml"));
  // Most projects have none, and need no parser here.
  if (!/\bqueue\b/.test(text)) return null;
  const { readCorral } = await import("./corral-file.ts");
  const { DeclarationError } = await import("./yaml/problem.ts");
  const { checked } = await readCorral(projectDir, "corral.yaml", null);
  if (!checked.ok) throw new DeclarationError(checked.problems);
  return checked.value.queue ?? null;
}

async function readIfThere(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return "";
    throw error;
  }
}
