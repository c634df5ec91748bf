import { parse, TomlError, type TomlTableWithoutBigInt, type TomlValueWithoutBigInt } from "smol-toml";

export type TomlTable = TomlTableWithoutBigInt;

export type TomlParse =
  | { readonly ok: true; readonly table: TomlTable }
  /** `line` counts from 1. */
  | { readonly ok: false; readonly line: number };

/** Of lists and of tables in braces. Lock files nest them less deeply. */
const MAX_DEPTH = 16;

/** Reads a text that the caller has bounded. Never throws. */
export function parseToml(text: string): TomlParse {
  try {
    return { ok: true, table: parse(text, { maxDepth: MAX_DEPTH }) };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    return { ok: false, line: error.line };
  }
}

/** The table that these keys lead to. */
export function tableAt(table: TomlTable, ...keys: string[]): TomlTable | undefined {
  let found: TomlTable | undefined = table;
  for (const key of keys) {
    // A key may be one that every object has, such as `constructor`.
    const next: TomlValueWithoutBigInt | undefined = found && Object.hasOwn(found, key) ? found[key] : undefined;
    found = isTable(next) ? next : undefined;
  }
  return found;
}

/** A date is an object too. */
export function isTable(value: TomlValueWithoutBigInt | undefined): value is TomlTable {
  return typeof value === "object" && !Array.isArray(value) && !(value instanceof Date);
}
