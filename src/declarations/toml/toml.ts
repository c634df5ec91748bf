/** The part of TOML that cargo's files use: tables, arrays of tables, and values that are texts, numbers, switches or lists. */
export interface TomlTable {
  readonly [key: string]: TomlValue;
}

export type TomlValue = string | boolean | number | readonly TomlValue[] | TomlTable;

export type TomlParse =
  | { readonly ok: true; readonly table: TomlTable }
  /** `line` counts from 1. `reason` follows the name of the file. */
  | { readonly ok: false; readonly line: number; readonly reason: string };

interface MutableTable {
  [key: string]: TomlValue | MutableTable;
}

/** Lock files nest tables less deeply. */
const MAX_DEPTH = 16;

/** Reads a text that the caller has bounded. What it does not know is a fault, never skipped. Never throws. */
export function parseToml(text: string): TomlParse {
  const top = emptyTable();
  let table: MutableTable = top;
  const reader = new Reader(text);
  try {
    for (reader.skipLines(); !reader.atEnd(); reader.skipLines()) {
      if (reader.take("[[")) table = newElement(top, reader.keys("]]"), reader);
      else if (reader.take("[")) table = openTable(top, reader.keys("]"), reader);
      else setValue(table, reader.keys("="), reader);
      reader.endLine();
    }
    return { ok: true, table: top };
  } catch (error) {
    if (!(error instanceof TomlFault)) throw error;
    return { ok: false, line: reader.line(), reason: error.message };
  }
}

/** The table that these keys lead to. */
export function tableAt(table: TomlTable, ...keys: string[]): TomlTable | undefined {
  let found: TomlValue | undefined = table;
  for (const key of keys) found = isTable(found) ? found[key] : undefined;
  return isTable(found) ? found : undefined;
}

export function isTable(value: TomlValue | undefined): value is TomlTable {
  return typeof value === "object" && !Array.isArray(value);
}

class TomlFault extends Error {}

/** Without the names that every object has: a key may be `constructor`. */
function emptyTable(): MutableTable {
  return Object.create(null) as MutableTable;
}

function openTable(top: MutableTable, keys: readonly string[], reader: Reader): MutableTable {
  let table = top;
  for (const key of keys) {
    table[key] ??= emptyTable();
    const found: unknown = table[key];
    const inner = Array.isArray(found) ? found.at(-1) : found;
    if (typeof inner !== "object" || inner === null) throw reader.fault(`\`${key}\` is not a table`);
    table = inner as MutableTable;
  }
  return table;
}

function newElement(top: MutableTable, keys: readonly string[], reader: Reader): MutableTable {
  const table = openTable(top, keys.slice(0, -1), reader);
  const key = keys.at(-1) ?? "";
  table[key] ??= [];
  const list: unknown = table[key];
  if (!Array.isArray(list)) throw reader.fault(`\`${key}\` is not a list of tables`);
  const element = emptyTable();
  list.push(element);
  return element;
}

function setValue(table: MutableTable, keys: readonly string[], reader: Reader): void {
  const inner = openTable(table, keys.slice(0, -1), reader);
  const key = keys.at(-1) ?? "";
  if (key in inner) throw reader.fault(`\`${key}\` is there twice`);
  inner[key] = reader.value();
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  atEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  line(): number {
    return this.#text.slice(0, this.#at).split("\n").length;
  }

  fault(reason: string): TomlFault {
    return new TomlFault(reason);
  }

  take(token: string): boolean {
    if (!this.#text.startsWith(token, this.#at)) return false;
    this.#at += token.length;
    return true;
  }

  /** Empty lines, comments and indentation. */
  skipLines(): void {
    this.#match(/(?:[ \t\r\n]|#[^\n]*)*/y);
  }

  endLine(): void {
    this.#match(/[ \t]*(?:#[^\n]*)?/y);
    if (!this.atEnd() && this.#match(/\r?\n/y) === null) throw this.fault("has more on this line than a value");
  }

  /** Dotted keys, up to `end`. */
  keys(end: string): string[] {
    const keys: string[] = [];
    do {
      this.#match(/[ \t]*/y);
      const bare = this.#match(/[A-Za-z0-9_-]+/y);
      keys.push(bare ?? this.#quoted() ?? this.#unread());
      this.#match(/[ \t]*/y);
    } while (this.take("."));
    if (keys.length > MAX_DEPTH) throw this.fault("has tables that are nested too deeply");
    if (!this.take(end)) throw this.fault(`needs \`${end}\` after the key`);
    return keys;
  }

  value(depth = 0): TomlValue {
    if (depth > MAX_DEPTH) throw this.fault("has lists that are nested too deeply");
    this.#match(/[ \t]*/y);
    if (this.take("[")) return this.#list(depth);
    if (this.take("{")) return this.#inline(depth);
    const text = this.#quoted();
    if (text !== null) return text;
    const word = this.#match(/[A-Za-z0-9_+.:-]+/y) ?? this.#unread();
    if (word === "true" || word === "false") return word === "true";
    return /^[+-]?[0-9][0-9_]*$/.test(word) ? Number(word.replaceAll("_", "")) : word;
  }

  #list(depth: number): TomlValue[] {
    const list: TomlValue[] = [];
    for (this.skipLines(); !this.take("]"); this.skipLines()) {
      list.push(this.value(depth + 1));
      this.skipLines();
      if (this.take(",")) continue;
      if (!this.take("]")) throw this.fault("has a list without an end");
      return list;
    }
    return list;
  }

  #inline(depth: number): MutableTable {
    const table = emptyTable();
    this.#match(/[ \t]*/y);
    if (this.take("}")) return table;
    do {
      const [key = "", ...more] = this.keys("=");
      if (more.length > 0) throw this.fault("has dotted keys in braces");
      table[key] = this.value(depth + 1);
      this.#match(/[ \t]*/y);
    } while (this.take(","));
    if (!this.take("}")) throw this.fault("has braces without an end");
    return table;
  }

  /** A text in one line, in either kind of quotes; null if there is none. */
  #quoted(): string | null {
    if (this.#text.startsWith('"""', this.#at) || this.#text.startsWith("'''", this.#at))
      throw this.fault("has a text over several lines");
    const literal = this.#match(/'[^'\n]*'/y);
    if (literal !== null) return literal.slice(1, -1);
    const basic = this.#match(/"(?:[^"\\\n]|\\.)*"/y);
    if (basic === null) return null;
    try {
      return JSON.parse(basic) as string;
    } catch {
      throw this.fault("has a text with an escape that is not known");
    }
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const [found] = pattern.exec(this.#text) ?? [];
    if (found === undefined) return null;
    this.#at += found.length;
    return found;
  }

  #unread(): never {
    throw this.fault("cannot be read");
  }
}
