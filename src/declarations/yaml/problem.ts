/** One mistake in a file, at the place to change. Lines and columns count from 1; both are 0 if there is no such file or folder. */
export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** The dotted keys that lead to the place (`sandbox.zones.data.mode`); empty for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** Every problem of one or more files, so that the user can fix all of them at once. */
export class DeclarationError extends Error {
  override readonly name = "DeclarationError";
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    const ordered = problems.toSorted(byPlace);
    super(ordered.map(describeProblem).join("\n"));
    this.problems = ordered;
  }
}

/** `corral.yaml:4:11: sandbox.zones.data.mode: …`, which editors and terminals turn into a link. */
export function describeProblem({ file, line, column, path, message }: Problem): string {
  const place = line === 0 ? file : `${file}:${line}:${column}`;
  return `${place}: ${path === "" ? "" : `${path}: `}${message}`;
}

function byPlace(a: Problem, b: Problem): number {
  return a.file < b.file ? -1 : a.file > b.file ? 1 : a.line - b.line || a.column - b.column;
}
