import fc from "fast-check";

/** Random sandboxes in one cell, beside each other. Plain data, so that it shrinks. */
export interface Scenario {
  readonly form: "zones" | "paths" | "root";
  /** In the root form: the folder that is `/`. The project's own holds its declarations as well. */
  readonly rootAt: "area" | ".";
  readonly readonly: boolean;
  /** In the root form: of the worker. */
  readonly approval: Approval;
  /** Of the worker. Absent: its container's root is read-only. */
  readonly rootFiles?: "writable";
  /** One in the root form. {@link placeName} names what each has. */
  readonly parts: readonly Part[];
}

/** One random sandbox: what the project declares, what is on its disk, and what the worker asks for. */
export interface Part {
  /** Which of {@link PLACES} there are, and how each is declared; in the root form they are folders of the root. */
  readonly places: readonly { readonly name: string; readonly mode: Mode; readonly approval: Approval }[];
  /** A place more, `inner`, that shows a part of the first place again. */
  readonly inner: Mode | "none";
  /** In the paths form, a single file as a place, `note`. */
  readonly note: Mode | "none";
  readonly needs: "all" | "read" | "write" | "both";
  /** Which directories an allowlist names, by index into all there are. */
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  /** On the disk, beside what every place has. */
  readonly entries: readonly Entry[];
}

export type Mode = "ro" | "rw";
export type Approval = { readonly write: Consent; readonly delete: Consent };
type Consent = "pre_approved" | "ask" | "blocked";

export interface Entry {
  readonly place: number;
  readonly dir: string;
  readonly name: string;
  readonly kind: "file" | "directory" | "fifo" | "link";
  /** Of a link. {@link OUTSIDE} stands for a file of the host that nobody granted. */
  readonly target: string;
}

export const OUTSIDE = "<outside>";
/** Every place has these directories, with a file `a.md` in each. */
export const DIRECTORIES = ["", "sub", "sub/out"] as const;

/** Names of which one is the beginning of another. */
const PLACES = ["data", "data-evil", "datas"] as const;

/** What a place is called in the sandbox with this index: `data`, `data1`. So some names are the beginning of others' here too. */
export function placeName(name: string, part: number): string {
  return part === 0 ? name : `${name}${part}`;
}

/** A link leads to places of its own sandbox. */
export function linkTarget(target: string, part: number): string {
  return target.replace(/(?<=^|\/)data(-evil)?(?=\/|$)/g, (name) => placeName(name, part));
}

/** What file systems, shells and parsers stumble over. */
const NAMES = [
  ..."a b.md A.MD .hidden -rf ... $(id) `id` %2e%2e x:y * #1 'q' a;b ~".split(" "),
  "two words",
  " ",
  "caf\u00e9",
  "cafe\u0301",
  "\u202egpj",
  "back\\slash",
  "new\nline",
  "n".repeat(255),
  "\u00e9".repeat(127),
];

const TARGETS = [
  ..."a.md sub sub/out ./sub/../a.md ../a.md ../sub .. . ../.. nowhere ../../nowhere a b.md".split(" "),
  ..."../data/a.md ../data-evil/a.md ../../data-evil/sub ../../../etc/passwd".split(" "),
  ..."/data/a.md /data-evil/sub /project/data/a.md /etc/passwd / /tmp".split(" "),
  OUTSIDE,
];

const mode = fc.constantFrom<Mode>("ro", "rw");
const consent = fc.oneof(
  { weight: 4, arbitrary: fc.constant<Consent>("pre_approved") },
  { weight: 1, arbitrary: fc.constantFrom<Consent>("ask", "blocked") },
);
const approval = fc.record({ write: consent, delete: consent });

const entry: fc.Arbitrary<Entry> = fc.record({
  place: fc.nat(PLACES.length - 1),
  dir: fc.constantFrom(...DIRECTORIES),
  name: fc.constantFrom(...NAMES),
  kind: fc.constantFrom("file", "link", "link", "link", "directory", "fifo"),
  target: fc.constantFrom(...TARGETS),
});

const someIndexes = fc.array(fc.nat(11), { minLength: 1, maxLength: 3 });

const part: fc.Arbitrary<Part> = fc.record({
  places: fc.uniqueArray(fc.record({ name: fc.constantFrom(...PLACES), mode, approval }), {
    selector: ({ name }) => name,
    minLength: 1,
    maxLength: PLACES.length,
  }),
  inner: fc.constantFrom("none", "ro", "rw"),
  note: fc.constantFrom("none", "ro", "rw"),
  needs: fc.constantFrom("all", "read", "write", "both"),
  reads: someIndexes,
  writes: someIndexes,
  entries: fc.array(entry, { maxLength: 12 }),
});

/** At most `many` in a cell. A root is whole, so it is alone. */
export function scenarios(many: number): fc.Arbitrary<Scenario> {
  const common = {
    rootAt: fc.constantFrom<"area" | ".">("area", "."),
    readonly: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    approval,
  };
  const parts = (count: number) => fc.array(part, { minLength: count, maxLength: count });
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        form: fc.constantFrom<"zones" | "paths">("zones", "paths"),
        parts: parts(many),
        ...common,
      }),
    },
    { weight: 1, arbitrary: fc.record({ form: fc.constant("root" as const), parts: parts(1), ...common }) },
  );
}
