import { templateFiles } from "../declarations/place/template-files.ts";
import { writeNewFiles } from "../files/host/new-files.ts";

interface Kind {
  /** What it does, as a choice shows it. */
  readonly does: string;
  /** Two commands that work in the new project as it is. */
  readonly next: readonly [string, string];
}

/** The kinds of projects that `corral init` makes, in the order of the choice. Each has its folder below `templates/`. */
export const PROJECT_KINDS = {
  documents: { does: "turns strangers' PDF files into text", next: ["corral explain extract", "corral run extract"] },
  batch: {
    does: "runs one worker over many items",
    next: ["corral map --fleet all --json", "corral fleet ls"],
  },
  agent: { does: "lets a model read files and write notes", next: ["corral explain clerk", "corral run clerk"] },
  ci: { does: "tests a stranger's branch without a network", next: ["corral check", "corral run test"] },
} as const satisfies Readonly<Record<string, Kind>>;

export type ProjectKind = keyof typeof PROJECT_KINDS;

/**
 * Writes a new project into a folder that exists. Answers with the paths of its files.
 *
 * @throws NameTaken if one is there already; then nothing was written
 */
export async function makeProject(kind: ProjectKind, dir: string): Promise<readonly string[]> {
  const files = await templateFiles(kind);
  writeNewFiles(dir, files);
  return [...files.keys()];
}
