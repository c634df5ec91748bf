import {
  type Assignment,
  type Command,
  type CommandArgument,
  type CompoundList,
  type For,
  type If,
  type ParsedScript,
  type Pipeline,
  parse,
  type Redirection,
  type Statement,
  type SyntaxNode,
} from "unbash";
import { type Beside, type ShellPart, type ShellWord, shownPart } from "./pattern.ts";
import { isRunByShells, type PrintedWord, printedWord, quoted, type WordPlace, whySetsRun } from "./printed-word.ts";

/**
 * True for a command that runs other commands from its arguments, its input or a file: the analysis cannot see those.
 *
 * Languages (`python`, `awk`) and programs with hooks (`git -c`, `tar --to-command`) are not included: a rule that allows
 * them with any arguments allows them to run anything.
 */
function hidesCommand(words: readonly ShellWord[]): boolean {
  const [word] = words;
  if (typeof word !== "string") return true;
  const name = word.slice(word.lastIndexOf("/") + 1);
  if (HIDING.has(name)) return true;
  if (name === "find") return words.some((argument) => argument === null || /^-(exec|ok)(dir)?$/.test(argument));
  return EVALUATING.has(name) && words.some((argument) => argument !== null && /\[.*(\$\(|`)/s.test(argument));
}

const HIDING = new Set(
  [
    // Builtins that run text as code, or that change the meaning of later words.
    "eval . source exec command builtin trap alias bind enable hash fc complete compgen coproc function",
    // Builtins with arithmetic, which runs a subscript `a[$(…)]` in a variable's value.
    "let declare typeset local",
    "sh bash dash ash rbash zsh ksh mksh fish csh tcsh busybox toybox",
    "sudo doas su runuser pkexec setpriv capsh chroot unshare nsenter bwrap firejail proot fakeroot",
    "env xargs parallel nohup nice ionice chrt taskset timeout stdbuf setsid setarch time watch flock script expect",
    "strace ltrace prlimit choom entr systemd-run start-stop-daemon run-parts ssh",
  ].flatMap((line) => line.split(" ")),
);

/** Given a variable name with a subscript, bash runs the `$(…)` in it, even if it is quoted. */
const EVALUATING = new Set(["test", "[", "printf", "read", "mapfile", "readarray", "getopts", "unset", "wait"]);

/** A line with more parts is given up where it has them, and not looked through to its end. */
class TooManyParts extends Error {}

/**
 * Prints a parsed command line anew, and collects each part of it that needs consent. What is printed is what was judged, in
 * a form that every shell reads alike: lists, pipelines, groups, `if`, `while`, `until`, `for`, simple commands,
 * redirections, and words in our own quotes. Everything else is opaque.
 */
class LinePrinter {
  readonly parts: ShellPart[] = [];
  #source: string;
  /** A script of several lines stays one, so that people can read it. */
  readonly #isLong: boolean;

  readonly #maxParts: number;

  constructor(source: string, maxParts: number) {
    this.#source = source;
    this.#maxParts = maxParts;
    this.#isLong = source.includes("\n");
  }

  get isOpaque(): boolean {
    return this.parts.some(({ kind }) => kind === "opaque");
  }

  script(script: ParsedScript): string {
    const outer = this.#source;
    // The parser unescapes the content of escaped backticks; positions inside refer to that text.
    this.#source = script.source ?? outer;
    const [error] = script.errors ?? [];
    if (error !== undefined) this.opaque(script, `the syntax is incomplete: ${error.message}`);
    const text = this.#list(script.commands);
    this.#source = outer;
    return text;
  }

  opaque({ pos, end }: { readonly pos: number; readonly end: number }, reason: string): void {
    this.parts.push({ kind: "opaque", text: shownPart(this.#source.slice(pos, end)), reason });
  }

  #list(statements: readonly Statement[]): string {
    return statements
      .map(
        (statement, index) =>
          this.#statement(statement) + (index < statements.length - 1 ? this.#after(statement) : ""),
      )
      .join("");
  }

  #statement({ command, background }: Statement): string {
    const text =
      command.type === "AndOr"
        ? command.commands
            .map((one, index) => [...command.operators.slice(index - 1, index), this.#node(one)].join(" "))
            .join(" ")
        : this.#node(command);
    return background === true ? `${text} &` : text;
  }

  #after({ background }: Statement): string {
    return this.#isLong ? "\n" : background === true ? " " : "; ";
  }

  /** A list before a keyword. */
  #closed({ commands }: CompoundList): string {
    const last = commands.at(-1);
    return last === undefined ? "" : this.#list(commands) + this.#after(last);
  }

  #node(node: SyntaxNode): string {
    switch (node.type) {
      case "Command":
        return this.#command(node);
      case "Pipeline":
        return this.#pipeline(node);
      case "Subshell":
        return `( ${this.#list(node.body.commands)} )`;
      case "BraceGroup":
        return `{ ${this.#closed(node.body)}}`;
      case "If":
        return this.#if(node);
      case "While":
        return `${node.kind} ${this.#closed(node.clause)}do ${this.#closed(node.body)}done`;
      case "For":
        return this.#for(node);
      case "Redirected": {
        const command = this.#node(node.command);
        const redirects = node.redirects.map((redirect) => this.#redirect(redirect));
        const text = [command, ...redirects.map((redirect) => redirect.text)].join(" ");
        if (!redirects.every(({ isHarmless }) => isHarmless))
          this.parts.push({ kind: "redirection", text: shownPart(text) });
        return text;
      }
      default:
        this.opaque(node, REASONS[node.type] ?? "it has a form that cannot be printed for every shell");
        return "";
    }
  }

  #pipeline(node: Pipeline): string {
    const [prefix, ...more] = node.prefixes;
    if (more.length > 0 || prefix?.type === "Time")
      this.opaque(node, "not every shell knows `time`, or more than one `!`, before a command");
    if (node.operators.includes("|&")) this.opaque(node, "sh has no `|&`; write `2>&1 |`");
    return (prefix === undefined ? "" : "! ") + node.commands.map((command) => this.#node(command)).join(" | ");
  }

  #if({ clause, then, elif, else: otherwise }: If): string {
    return [
      `if ${this.#closed(clause)}then ${this.#closed(then)}`,
      ...elif.map((branch) => `elif ${this.#closed(branch.clause)}then ${this.#closed(branch.then)}`),
      otherwise === undefined ? "" : `else ${this.#closed(otherwise)}`,
      "fi",
    ].join("");
  }

  #for(node: For): string {
    const { name, wordlist, body } = node;
    if (wordlist === undefined || !isName(name.value)) this.opaque(node, "write `for NAME in WORDS`");
    if (isRunByShells(name.value)) this.opaque(node, `shells run what ${name.value} names`);
    const words = (wordlist ?? []).map((word) => ` ${this.#word(word, "argument").text}`).join("");
    const head = `for ${name.value} in${words}${this.#isLong ? "\n" : "; "}`;
    this.parts.push({ kind: "assignment", text: shownPart(head.trim()) });
    return `${head}do ${this.#closed(body)}done`;
  }

  #command(node: Command): string {
    if (this.parts.length >= this.#maxParts) throw new TooManyParts();
    const assignments = node.prefix.flatMap((entry) => (entry.type === "Assignment" ? [this.#assignment(entry)] : []));
    const words = [
      ...(node.name === undefined ? [] : [this.#word(node.name, "command")]),
      ...node.args.map((argument) => this.#argument(argument)),
    ];
    this.#refuseSettingRun(node, words);
    const redirects = node.redirects.map((redirect) => this.#redirect(redirect));
    const text = [...assignments, ...[...words, ...redirects].map((part) => part.text)].join(" ");
    const isHarmless = redirects.every((redirect) => redirect.isHarmless);
    const beside: Beside = assignments.length > 0 ? "assignment" : isHarmless ? null : "redirection";
    const shown = shownPart(text);
    const values = words.map(({ value }) => value);
    if (values.length > 0)
      this.parts.push({ kind: "command", text: shown, words: values, hides: hidesCommand(values), beside });
    else this.parts.push({ kind: beside ?? "redirection", text: shown });
    return text;
  }

  /** A value that a shell runs later, as `PS4` with `set -x`, is a command that nothing here shows. */
  #refuseSettingRun({ args }: Command, words: readonly PrintedWord[]): void {
    for (const [index, argument] of args.entries()) {
      const word = words[index + 1];
      const reason = word === undefined ? null : whySetsRun(words.slice(0, Math.min(index + 1, 3)), word);
      if (reason !== null) this.opaque(argument, reason);
    }
  }

  #assignment(node: Assignment): string {
    const { name, value, append, index } = node;
    if (value.type !== "Word" || append === true || index !== undefined || !isName(name)) {
      this.opaque(node, "sh has no arrays and no `+=`");
      return "";
    }
    if (isRunByShells(name)) this.opaque(node, `shells run what ${name} names`);
    return `${name}=${this.#word(value, "value").text}`;
  }

  /** `NAME=VALUE` after a command is an ordinary word, but shells split its expansions differently if they are not quoted. */
  #argument(argument: CommandArgument): PrintedWord {
    if (argument.type === "Word") return this.#word(argument, "argument");
    const { name, value, append, index } = argument;
    if (value.type !== "Word" || append === true || index !== undefined) {
      this.opaque(argument, "sh has no arrays and no `+=`");
      return { text: "", value: null, start: "" };
    }
    const word = this.#word(value, "value");
    if (word.text.startsWith("~")) this.opaque(argument, "not every shell expands `~` here; write the path");
    const text = quoted(word.value === null ? `${name}=` : `${name}=${word.value}`);
    return word.value === null
      ? { text: `${text}${word.text}`, value: null, start: `${name}=` }
      : { text, value: `${name}=${word.value}`, start: `${name}=` };
  }

  #redirect(redirect: Redirection): { readonly text: string; readonly isHarmless: boolean } {
    const opaque = (reason: string) => {
      this.opaque(redirect, reason);
      return { text: "", isHarmless: false };
    };
    if (redirect.type !== "Redirect")
      return opaque("its input is in the line; pass it as standard input or write it to a file");
    const { operator, descriptor, target } = redirect;
    if (target === undefined) return opaque("the syntax is incomplete");
    const isNumber = descriptor?.type === "FileDescriptor" && descriptor.value <= 9;
    if (descriptor !== undefined && !isNumber) return opaque("sh has the descriptors 0 to 9");
    const from = isNumber ? String(descriptor.value) : "";
    if (operator.startsWith("&")) return opaque("in sh `&>` ends the command; write `>FILE 2>&1`");
    const word = this.#word(target, "target");
    if (operator === "<&" || operator === ">&") {
      if (word.value === null || !/^[0-9-]$/.test(word.value))
        return opaque("sh copies descriptors only by their number");
      return { text: `${from}${operator}${word.value}`, isHarmless: true };
    }
    return { text: `${from}${operator} ${word.text}`, isHarmless: word.value === "/dev/null" };
  }

  #word(word: Parameters<typeof printedWord>[0], place: WordPlace): PrintedWord {
    return printedWord(word, place, this);
  }
}

function isName(text: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(text);
}

const REASONS: Readonly<Record<string, string>> = {
  Function: "a function changes what later words mean",
  Coproc: "sh has no `coproc`",
  Select: "sh has no `select`",
  Case: "its patterns cannot be printed for every shell; use `if`",
  TestCommand: "`[[ … ]]` evaluates arithmetic, and sh reads it as other commands; write `[ … ]`",
  ArithmeticCommand: "`(( … ))` evaluates arithmetic, and sh reads it as other commands",
  ArithmeticFor: "`(( … ))` evaluates arithmetic, and sh reads it as other commands",
};

/** A command line as Corral understands it. */
export interface Reading {
  /** Every simple command of the line, wherever it is, and what is beside the commands and needs consent. */
  readonly parts: readonly ShellPart[];
  /** The line, printed anew from these parts. This is what the shell gets. Null if a part is opaque. */
  readonly printed: string | null;
}

/** Far more than a person can review. */
const MAX_CHARACTERS = 65_536;
/** The kernel's limit for one argument is 131,072 bytes, and quotes make a line longer. */
const MAX_PRINTED_BYTES = 131_000;
/** Each is compared with every rule. A person reads far fewer. */
const MAX_PARTS = 1000;
/** Signs and words that can begin a nested part. The parser recurses with each level, so they are counted before it runs. */
const MAX_OPENINGS = 1000;
const OPENING = /[({[`!]|<<|\b(?:if|then|elif|else|while|until|do|for|select|case|function|coproc|time)\b/g;

/**
 * Reads a command line, and prints it anew. No parser of shell reads exactly as the shell does; so the text as written is never
 * run by a rule, only what was printed from the parts that were judged. Text that cannot be printed so is `opaque`.
 */
export function readLine(command: string): Reading {
  if (command.length > MAX_CHARACTERS) return opaque(command, `it is longer than ${MAX_CHARACTERS} characters`);
  if (/[^\P{Cc}\n\t]/u.test(command)) return opaque(command, "it contains control characters");
  if (!command.isWellFormed()) return opaque(command, "it is not valid Unicode");
  if ((command.match(OPENING)?.length ?? 0) > MAX_OPENINGS)
    return opaque(command, `it has more than ${MAX_OPENINGS} brackets and keywords`);
  try {
    const { parts, printed } = printedOf(command);
    if (parts.length > MAX_PARTS) throw new TooManyParts();
    if (printed === null) return { parts, printed };
    if (Buffer.byteLength(printed) > MAX_PRINTED_BYTES) return opaque(command, "it is too long with every word quoted");
    // A printed line that reads otherwise than it was meant would be a bug; no shell gets it.
    if (printedOf(printed).printed !== printed) return opaque(command, "its parts cannot be distinguished");
    return { parts, printed };
  } catch (error) {
    // Whatever the parser fails at, its meaning is unknown.
    return opaque(
      command,
      error instanceof TooManyParts ? `it has more than ${MAX_PARTS} commands` : "it cannot be parsed",
    );
  }
}

function printedOf(command: string): Reading {
  const printer = new LinePrinter(command, MAX_PARTS);
  const text = printer.script(parse(command));
  return { parts: printer.parts, printed: printer.isOpaque ? null : text };
}

function opaque(command: string, reason: string): Reading {
  return { parts: [{ kind: "opaque", text: shownPart(command), reason }], printed: null };
}
