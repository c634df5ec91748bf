import fs from "node:fs";
import * as fc from "fast-check";

/** A name as its bytes are, one character each. */
type Name = string;

/** One thing that a worker does in a directory. Most fail, for what they need is not there; that is no matter. */
export type Operation =
  | { readonly does: "write" | "append"; readonly at: readonly Name[]; readonly text: string }
  | { readonly does: "remove" | "make" | "touch" | "rewrite"; readonly at: readonly Name[] }
  | { readonly does: "move"; readonly at: readonly Name[]; readonly to: readonly Name[] }
  | { readonly does: "link"; readonly at: readonly Name[]; readonly text: string }
  | { readonly does: "mode"; readonly at: readonly Name[]; readonly mode: number };

/** Text alone, as names that can be applied are. */
export const PLAIN_NAMES = ["a", "b", "c.txt", "-rf", "d\ne", "\xc3\xa9"];
export const ALL_NAMES = [...PLAIN_NAMES, "\xff\xfe", "n".repeat(255), " ", "\x1b[2J", "..."];

export function operations(names: readonly Name[]): fc.Arbitrary<Operation[]> {
  // Few names most of the time, so that operations meet each other.
  const name = fc.oneof({ weight: 3, arbitrary: fc.constantFrom("a", "b") }, fc.constantFrom(...names));
  const at = fc.array(name, { minLength: 1, maxLength: 3, size: "max" });
  const text = fc.constantFrom("", "one", "two", "a longer text\n");
  return fc.array(
    fc.oneof(
      fc.record({ does: fc.constantFrom("write" as const, "append" as const), at, text }),
      fc.record({
        does: fc.constantFrom(
          "remove" as const,
          "make" as const,
          "make" as const,
          "touch" as const,
          "rewrite" as const,
        ),
        at,
      }),
      fc.record({ does: fc.constant("move" as const), at, to: at }),
      fc.record({ does: fc.constant("link" as const), at, text: fc.constantFrom("a", "b/a", "./c.txt") }),
      fc.record({ does: fc.constant("mode" as const), at, mode: fc.constantFrom(0o600, 0o644, 0o755, 0o700) }),
    ),
    { minLength: 10, maxLength: 60, size: "max" },
  );
}

export function carryOut(root: string, todo: readonly Operation[]): void {
  for (const one of todo) {
    try {
      carryOutOne(root, one);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}

/** Links are never followed: what is at a name is looked at first. */
function carryOutOne(root: string, one: Operation): void {
  const path = pathOf(root, one.at);
  const isLink = fs.lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
  if (leadsThroughLink(root, one.at) || (isLink && one.does !== "remove" && one.does !== "move")) return;
  switch (one.does) {
    case "write":
      fs.writeFileSync(path, one.text);
      break;
    case "append":
      fs.appendFileSync(path, one.text);
      break;
    case "remove":
      fs.rmSync(path, { recursive: true });
      break;
    case "make":
      fs.mkdirSync(path);
      break;
    case "touch":
      fs.utimesSync(path, 1, 1);
      break;
    case "rewrite":
      fs.writeFileSync(path, fs.readFileSync(path));
      break;
    case "move":
      if (!leadsThroughLink(root, one.to)) fs.renameSync(path, pathOf(root, one.to));
      break;
    case "link":
      fs.symlinkSync(one.text, path);
      break;
    case "mode":
      fs.chmodSync(path, one.mode);
  }
}

function leadsThroughLink(root: string, names: readonly Name[]): boolean {
  return names
    .slice(0, -1)
    .some((_, index) =>
      fs.lstatSync(pathOf(root, names.slice(0, index + 1)), { throwIfNoEntry: false })?.isSymbolicLink(),
    );
}

function pathOf(root: string, names: readonly Name[]): Buffer {
  return Buffer.concat([Buffer.from(`${root}/`), Buffer.from(names.join("/"), "latin1")]);
}

/** Everything below a directory, by the bytes of its path: type, permission bits, and text. */
export function byteTree(root: string): Map<string, string> {
  const tree = new Map<string, string>();
  const look = (names: readonly Name[]): void => {
    for (const name of fs.readdirSync(pathOf(root, names), { encoding: "latin1" })) {
      const at = [...names, name];
      const path = pathOf(root, at);
      const stats = fs.lstatSync(path);
      const mode = (stats.mode & 0o777).toString(8);
      if (stats.isSymbolicLink()) tree.set(at.join("/"), `link ${fs.readlinkSync(path)}`);
      else if (stats.isDirectory()) tree.set(at.join("/"), `directory ${mode}`);
      else tree.set(at.join("/"), `file ${mode} ${fs.readFileSync(path, "latin1")}`);
      if (stats.isDirectory()) look(at);
    }
  };
  look([]);
  return tree;
}

/** What is different between two trees, in the words of a scan: `modify file a/b`. */
export function differences(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): string[] {
  const typeOf = (entry: string): string => entry.split(" ", 1)[0] ?? "";
  const found: string[] = [];
  for (const path of new Set([...before.keys(), ...after.keys()])) {
    const [was, is] = [before.get(path), after.get(path)];
    if (was === is) continue;
    if (was !== undefined && is !== undefined && typeOf(was) === typeOf(is)) found.push(`modify ${typeOf(is)} ${path}`);
    else {
      if (was !== undefined) found.push(`delete ${typeOf(was)} ${path}`);
      if (is !== undefined) found.push(`create ${typeOf(is)} ${path}`);
    }
  }
  return found.sort();
}
