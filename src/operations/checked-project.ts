import { loadProject } from "../declarations/project.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import { type CheckReport, check, checkDeclaration } from "../run/explain/check.ts";
import { openPreview } from "../run/open/preview.ts";
import type { Machine } from "./machine.ts";

/** Every call path of a project's folder that would be refused, or the mistakes in its files. Runs nothing, and needs no Engine. */
export async function checkProject(dir: string, machine: Machine): Promise<CheckReport> {
  try {
    return await check(await openPreview(await loadProject(dir, machine.engineEnv), machine));
  } catch (error) {
    if (error instanceof DeclarationError) return checkDeclaration(error);
    throw error;
  }
}
