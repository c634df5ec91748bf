import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { FILES_OF, SCHEMA_KINDS, type SchemaKind, schemaFileName } from "../../declarations/editor/kinds.ts";
import { editorSchema, schemaFiles } from "../../declarations/editor/schemas.ts";
import { UsageError } from "../terminal/arguments.ts";
import { columns, type Terminal } from "../terminal/terminal.ts";

/** `corral schema`: one schema; without a kind the kinds; with `--write` all of them, as files. */
export async function schemaVerb(
  kind: SchemaKind | undefined,
  { write }: { readonly write?: string },
  { cwd, stdout }: Terminal,
): Promise<number> {
  if (write !== undefined) {
    if (kind !== undefined) throw new UsageError("--write writes all schemas; leave the kind out");
    await writeSchemas(resolve(cwd, write));
    stdout.write(`${JSON.stringify(settingsFor(write), null, 2)}\n`);
  } else if (kind === undefined) stdout.write(`${columns(SCHEMA_KINDS.map((each) => [each, FILES_OF[each]]))}\n`);
  else stdout.write(`${JSON.stringify(editorSchema(kind), null, 2)}\n`);
  return 0;
}

/** Also the build does this, for the package. */
export async function writeSchemas(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true });
  for (const [name, text] of schemaFiles()) await writeFile(join(dir, name), text);
}

/** For `.vscode/settings.json`, and for other editors with the YAML language server. */
function settingsFor(folder: string): unknown {
  return {
    "files.associations": { "*.worker": "yaml" },
    "yaml.schemas": Object.fromEntries(
      SCHEMA_KINDS.map((kind) => [join(folder, schemaFileName(kind)), FILES_OF[kind]]),
    ),
  };
}
