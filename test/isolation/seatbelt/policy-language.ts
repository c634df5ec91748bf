/** What the language of Seatbelt's profiles decides, as far as Corral's profiles use it: of the rules that fit, the last one counts. */
export class Profile {
  readonly #rules: readonly Rule[];

  /** Throws for what is not of the language, or not of the part that Corral uses. */
  constructor(text: string) {
    const [version, fallback, ...rules] = expressionsIn(text).map(asList);
    if (JSON.stringify([version, fallback]) !== '[["version","1"],["deny","default"]]')
      throw new Error("a profile begins with its version and denies by default");
    this.#rules = rules.map(ruleOf);
  }

  allows(operation: string, path: string): boolean {
    const last = this.#rules.findLast(
      ({ operations, filters }) =>
        operations.some((one) => (one.endsWith("*") ? operation.startsWith(one.slice(0, -1)) : operation === one)) &&
        (filters.length === 0 || filters.some((filter) => fits(filter, path))),
    );
    return last?.effect === "allow";
  }

  /** Every text of a filter of this kind. */
  texts(kind: string): string[] {
    return this.#rules.flatMap(({ filters }) => filters.filter((one) => one.kind === kind).map(({ text }) => text));
  }
}

type Expression = string | { readonly text: string } | readonly Expression[];

interface Filter {
  readonly kind: string;
  readonly text: string;
}

interface Rule {
  readonly effect: "allow" | "deny";
  readonly operations: readonly string[];
  readonly filters: readonly Filter[];
}

function fits({ kind, text }: Filter, path: string): boolean {
  if (kind === "literal") return path === text;
  return kind === "subpath" && (path === text || path.startsWith(text === "/" ? "/" : `${text}/`));
}

function ruleOf(list: readonly Expression[]): Rule {
  const [effect, ...rest] = list;
  if (effect !== "allow" && effect !== "deny") throw new Error(`no rule: ${JSON.stringify(list)}`);
  const operations = rest.filter((one) => typeof one === "string");
  const filters = rest.filter((one) => typeof one !== "string").map((one) => filterOf(asList(one)));
  return { effect, operations, filters };
}

const TEXTUAL = ["literal", "subpath", "sysctl-name", "global-name"];

function filterOf([kind, value, ...more]: readonly Expression[]): Filter {
  if (kind === "target" && value === "same-sandbox" && more.length === 0) return { kind, text: value };
  if (
    typeof kind !== "string" ||
    !TEXTUAL.includes(kind) ||
    more.length > 0 ||
    typeof value !== "object" ||
    !("text" in value)
  )
    throw new Error(`no filter: ${JSON.stringify([kind, value])}`);
  return { kind, text: value.text };
}

function asList(expression: Expression): readonly Expression[] {
  if (typeof expression === "string" || "text" in expression) throw new Error(`no list: ${JSON.stringify(expression)}`);
  return expression;
}

/** Lists, words and texts; a comment ends with its line. */
function expressionsIn(text: string): Expression[] {
  const stack: Expression[][] = [[]];
  const token = /;[^\n]*|\s+|\(|\)|"((?:[^"\\]|\\["\\])*)"|[^\s()";]+/gsy;
  while (token.lastIndex < text.length) {
    const found = token.exec(text);
    if (found === null) throw new Error("the text ends within a text");
    const [whole, quoted] = found;
    const inner = stack.at(-1) ?? [];
    if (whole === "(") stack.push([]);
    else if (whole === ")") {
      stack.pop();
      stack.at(-1)?.push(inner);
    } else if (quoted !== undefined) inner.push({ text: quoted.replaceAll(/\\(.)/g, "$1") });
    else if (!/^[;\s]/.test(whole)) inner.push(whole);
  }
  if (stack.length !== 1) throw new Error("a list does not end");
  return stack[0] ?? [];
}
