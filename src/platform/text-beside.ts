import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/**
 * The text of a file beside a module, as a shell script or SQL: `textBeside(import.meta.url, "serve.sh")`. The bundle of the package has the text
 * itself in the place of the call (`scripts/bundle.ts`), so both words are written as they are here.
 */
export function textBeside(module: string, name: string): string {
  return readFileSync(fileURLToPath(new URL(name, module)), "utf8");
}

/** Puts values in the places of a text that name them, as `@GATE_PATH@`. Throws if a place has no value, or a value no place: the text is Corral's own. */
export function filledIn(text: string, values: Readonly<Record<string, string | number>>): string {
  const used = new Set<string>();
  const filled = text.replace(/@([A-Z][A-Z_]*)@/g, (place, name: string) => {
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    if (value === undefined) throw new Error(`no value for ${place} in a text of Corral's`);
    used.add(name);
    return String(value);
  });
  const unused = Object.keys(values).find((name) => !used.has(name));
  if (unused !== undefined) throw new Error(`no place for ${unused} in a text of Corral's`);
  return filled;
}
