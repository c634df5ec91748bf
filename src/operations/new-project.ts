import { type SchemaKind, schemaFileName, schemaModeline } from "../declarations/editor/kinds.ts";
import { schemaFiles } from "../declarations/editor/schemas.ts";
import { templateFiles } from "../declarations/place/package-root.ts";
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

/** Where a new project has the formats of its files, for editors. They are for git too: who clones the project has them. */
const SCHEMAS = ".corral/schemas";

export interface NewProject {
  /** The paths of its files. */
  readonly files: readonly string[];
  /** The folder of the schemas that these files name. */
  readonly schemas: string;
}

/**
 * Writes a new project into a folder that exists.
 *
 * @throws NameTaken if one of its files is there already; then nothing was written
 */
export async function makeProject(kind: ProjectKind, dir: string): Promise<NewProject> {
  const files = await templateFiles(kind);
  const named = [...files].map(([path, text]) => [path, withModeline(path, text)] as const);
  const schemas = [...schemaFiles()].map(([name, text]) => [`${SCHEMAS}/${name}`, text] as const);
  writeNewFiles(dir, new Map([...named, ...schemas]));
  return { files: [...files.keys()], schemas: SCHEMAS };
}

/** A `*.worker` has no such line: editors do not read it as YAML by themselves. */
function withModeline(path: string, text: string): string {
  const kind: SchemaKind | null =
    path === "corral.yaml" ? "project" : /^fleets\/[^/]+\.yaml$/.test(path) ? "fleet" : null;
  if (kind === null) return text;
  const up = "../".repeat(path.split("/").length - 1);
  return `${schemaModeline(`${up}${SCHEMAS}/${schemaFileName(kind)}`)}\n${text}`;
}
