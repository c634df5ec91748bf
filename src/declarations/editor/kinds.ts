/** The files that an editor can help with, by the word for each. */
export const SCHEMA_KINDS = ["project", "worker", "fleet", "policy"] as const;

export type SchemaKind = (typeof SCHEMA_KINDS)[number];

/** The files that have the format. */
export const FILES_OF: Readonly<Record<SchemaKind, string>> = {
  project: "corral.yaml",
  worker: "workers/*.worker",
  fleet: "fleets/*.yaml",
  policy: "policies/*.yaml",
};

/** The first line of a file, which tells editors with the YAML language server its format. `place`: a URL, or a path from the file. */
export function schemaModeline(place: string): string {
  return `# yaml-language-server: $schema=${place.replaceAll(/\s/g, encodeURIComponent)}`;
}

export function schemaFileName(kind: SchemaKind): string {
  return `${kind}.schema.json`;
}
