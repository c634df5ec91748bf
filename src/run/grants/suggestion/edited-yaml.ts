import { createTwoFilesPatch, diffArrays, FILE_HEADERS_ONLY } from "diff";
import { type Document, isMap, isScalar, isSeq, parseDocument } from "yaml";

/** A user's file, changed as little as possible: its comments and its order stay. */
export interface EditedFile {
  readonly file: string;
  readonly text: string;
  /** As `patch -p1` takes it. */
  readonly patch: string;
}

/** The YAML of a text, changed; `before` and `after` surround it. Null if nothing changes. */
export function editedYaml(
  file: string,
  { before, yaml, after }: { readonly before: string; readonly yaml: string; readonly after: string },
  edit: (document: Document) => void,
): EditedFile | null {
  const document = parseDocument(yaml);
  const same = printed(document, yaml);
  edit(document);
  const changed = printed(document, yaml);
  if (changed === same) return null;
  const text = before + inTheirWords(yaml, same, changed) + after;
  const old = before + yaml + after;
  const patch = createTwoFilesPatch(`a/${file}`, `b/${file}`, old, text, undefined, undefined, {
    context: 3,
    headerOptions: FILE_HEADERS_ONLY,
  });
  return { file, text, patch };
}

/** A file that does not exist yet. */
export function newYaml(file: string, edit: (document: Document) => void): EditedFile {
  const document = parseDocument("version: 1\n");
  edit(document);
  const text = document.toString({ lineWidth: 0 });
  const headers = { context: 3, headerOptions: FILE_HEADERS_ONLY };
  return { file, text, patch: createTwoFilesPatch("/dev/null", `b/${file}`, "", text, undefined, undefined, headers) };
}

/** Formatted like the user's own text, so that no unchanged line differs. */
function printed(document: Document, like: string): string {
  const text = document.toString({ lineWidth: 0, indentSeq: !/^( *)[^\s#-][^\n]*:\r?\n\1- /m.test(like) });
  return like.includes("\r\n") ? text.replaceAll("\n", "\r\n") : text;
}

/** A line in which only blanks would differ stays as the user wrote it. */
function inTheirWords(yaml: string, same: string, changed: string): string {
  const theirs = yaml.split("\n");
  // A text whose very lines would be others is printed anew.
  if (theirs.length !== same.split("\n").length) return changed;
  let line = 0;
  return diffArrays(same.split("\n"), changed.split("\n"))
    .flatMap(({ added, removed, value }) => {
      if (added) return value;
      line += value.length;
      return removed ? [] : theirs.slice(line - value.length, line);
    })
    .join("\n");
}

/** Puts a value below keys, making maps that are missing; a small map is written on one line. */
export function put(document: Document, keys: readonly string[], value: unknown): void {
  const [last = "", ...outer] = keys.toReversed();
  outer.reverse();
  for (const [index] of outer.entries()) {
    const path = outer.slice(0, index + 1);
    if (!isMap(document.getIn(path))) document.setIn(path, document.createNode({}));
  }
  const isSmall = typeof value === "object" && value !== null;
  document.setIn([...outer, last], isSmall ? document.createNode(value, { flow: true }) : value);
}

/** A list of texts, which may be written as one text. */
export function textsAt(document: Document, keys: readonly string[]): string[] | null {
  const found = document.getIn(keys, true);
  if (isScalar(found) && typeof found.value === "string") return [found.value];
  return isSeq(found) ? (found.toJS(document) as string[]) : null;
}
