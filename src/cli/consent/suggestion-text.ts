import { relative, resolve } from "node:path";
import type { Project } from "../../declarations/project.ts";
import { readDeclarationFile } from "../../declarations/yaml/document.ts";
import { suggestedConfiguration } from "../../run/grants/suggestion/suggestion.ts";
import type { GrantRecord } from "../../run/model/grantee.ts";
import { printable, printableLine } from "../../text/visible.ts";

/**
 * What was granted, and the changes to the project's files that would have made the questions unnecessary; null where
 * nothing was granted. `shownDir`: the project as the person named it.
 */
export async function suggestionText(
  project: Project,
  shownDir: string,
  all: readonly GrantRecord[],
): Promise<string | null> {
  // What a worker declares needs no other declaration: to ask is what the project wants.
  const grants = all.filter((grant) => !("declared" in grant));
  if (grants.length === 0) return null;
  const workers = new Map<string, { file: string; text: string }>();
  for (const name of new Set(grants.flatMap(({ granted }) => granted))) {
    const worker = project.workers.get(name);
    if (worker === undefined) continue;
    const file = relative(resolve(shownDir), resolve(worker.file));
    workers.set(name, { file, text: await readDeclarationFile(worker.file, worker.file) });
  }
  const text = project.file === null ? null : await readDeclarationFile(project.file, project.file);
  const { files, notes } = suggestedConfiguration({
    project: { dir: project.dir, file: "corral.yaml", text },
    mounts: project.declaration.mounts,
    workers,
    grants,
  });
  const had = grants.map((grant) => {
    const what = "to" in grant ? `reach ${grant.to}` : `${grant.mode} ${printableLine(grant.directory, 1000)}`;
    return `  ${printableLine(grant.worker, 80)}: ${what} (${grant.scope})`;
  });
  const head = ["corral: granted during the run:", ...new Set(had)];
  const advice = files.length === 0 ? [] : ["With these changes in the project's folder, Corral does not ask again:"];
  const patches = files.map(({ patch }) => printable(patch).trimEnd());
  return [...head, ...notes.map((note) => `  ${printableLine(note, 1000)}`), ...advice, ...patches].join("\n");
}
