import { inflateSync } from "node:zlib";
import fc from "fast-check";
import type { ProjectSpec } from "../run/project-fixture.ts";

/** Mounts in mounts, in one folder of the host that nothing else shows. Plain data, so that it shrinks. One is one case. */
export interface Nest {
  readonly outer: Terms;
  readonly inner: readonly Inner[];
  /** What of it the worker asks for, if it asks by lists: the whole, or what is at this index among all its folders. */
  readonly asked: number;
}

export interface Terms {
  readonly mode: "ro" | "rw";
  readonly write: Consent;
  readonly delete: Consent;
  readonly suffixes: boolean;
  readonly sizes: boolean;
  readonly kept: "no" | "stage" | "discard";
}

type Consent = "pre_approved" | "ask" | "blocked";

/** A mount inside of another one. */
export interface Inner extends Terms {
  /** Inside of which: by index, the outer one is 0. A file cannot hold one: the last directory before it takes it. */
  readonly within: number;
  /** The folders between both. */
  readonly between: readonly ("a" | "b")[];
  readonly file: boolean;
}

/** What one cell shows. */
export interface World {
  readonly nests: readonly Nest[];
  readonly byLists: boolean;
  /** What the person answers to every question. */
  readonly agrees: boolean;
  /** Views are overlays; else copies, as an ordinary user's are. */
  readonly overlays: boolean;
  readonly seed: number;
}

/** The largest file where a mount limits it. */
const MAX_BYTES = 30;
/** More would need more anchors than a cell may have. */
const MAX_INNER = 3;

const consent = fc.oneof(
  { weight: 3, arbitrary: fc.constant<Consent>("pre_approved") },
  { weight: 2, arbitrary: fc.constantFrom<Consent>("ask", "blocked") },
);
const rarely = fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) });
const terms = {
  mode: fc.constantFrom("ro", "rw"),
  write: consent,
  delete: consent,
  suffixes: rarely,
  sizes: rarely,
  kept: fc.oneof(
    { weight: 4, arbitrary: fc.constant("no") },
    { weight: 1, arbitrary: fc.constantFrom("stage", "discard") },
  ),
} as const;
const free = { mode: "rw", write: "pre_approved", delete: "pre_approved", suffixes: false, sizes: false, kept: "no" };

const nest = fc.record({
  // Where most is to be lost: the worker may do all there, and the kernel alone decides.
  outer: fc.oneof({ weight: 2, arbitrary: fc.constant(free) }, { weight: 1, arbitrary: fc.record(terms) }),
  inner: fc.array(
    fc.record({
      ...terms,
      within: fc.nat(MAX_INNER - 1),
      between: fc.array(fc.constantFrom("a", "b"), { maxLength: 4 }),
      file: rarely,
    }),
    { minLength: 1, maxLength: MAX_INNER },
  ),
  asked: fc.nat(5),
}) as fc.Arbitrary<Nest>;

export function worlds(nests: number): fc.Arbitrary<World> {
  return fc.record({
    nests: fc.array(nest, { minLength: nests, maxLength: nests, size: "max" }),
    byLists: fc.boolean(),
    agrees: fc.boolean(),
    overlays: fc.boolean(),
    seed: fc.nat(),
  });
}

/** A mount of a world: its path in the namespace is its path below the project too. */
export interface Placed extends Terms {
  readonly name: string;
  readonly path: string;
  readonly file: boolean;
}

export interface PlacedNest {
  readonly mounts: readonly Placed[];
  /** Every folder that is a mount or lies between two, and every file that is one. */
  readonly held: readonly string[];
}

export function placed({ outer, inner }: Nest, index: number): PlacedNest {
  const root = `/g${index}`;
  const mounts: Placed[] = [{ ...outer, name: `g${index}`, path: root, file: false }];
  const held = new Set([root]);
  for (const [at, { within, between, file, ...rest }] of inner.entries()) {
    const around = mounts.slice(0, within + 1).findLast((mount) => !mount.file) as Placed;
    const name = `m${at}${file ? ".md" : ""}`;
    let path = around.path;
    for (const part of [...between, name]) {
      path = `${path}/${part}`;
      held.add(path);
    }
    mounts.push({ ...rest, name: `g${index}m${at}`, path, file });
  }
  return { mounts, held: [...held] };
}

/** What every folder holds at first: a file of each kind that constraints tell apart. */
const CONTENT = { "a.md": "was", "b.txt": "was", "big.md": "was ".repeat(MAX_BYTES) };

/** A project with a worker `w` that has the world's sandbox, and one that reads the inner mounts alone, `reader`. */
export function projectOf({ nests, byLists }: World): ProjectSpec {
  const all = nests.map(placed);
  const mounts = all.flatMap((one) => one.mounts);
  const zones = mounts.map(({ name, path, mode, write, delete: remove, suffixes, sizes, kept }) => [
    name,
    {
      path: `.${path}`,
      at: path,
      mode,
      approval: { write, delete: remove },
      ...(suffixes ? { suffixes: [".md"] } : {}),
      ...(sizes ? { max_file_bytes: MAX_BYTES } : {}),
      ...(kept === "no" ? {} : { [kept]: true }),
    },
  ]);
  const files = all.flatMap(({ held, mounts }) =>
    held.flatMap((path) =>
      mounts.some((mount) => mount.file && mount.path === path)
        ? [[path, "was"]]
        : Object.entries(CONTENT).map(([name, text]) => [`${path}/${name}`, text]),
    ),
  );
  const reads = all.map(
    ({ held }, index) => held.filter((path) => !path.endsWith(".md"))[nests[index]?.asked ?? 0] ?? held[0] ?? "",
  );
  const writes = reads.filter((asked) =>
    [governing(mounts, asked), ...mounts.filter(({ path }) => path.startsWith(`${asked}/`))].some(
      (mount) => mount?.mode === "rw",
    ),
  );
  const lists = { allow_read: reads, ...(writes.length === 0 ? {} : { allow_write: writes }) };
  const inner = mounts.filter(({ path }) => path.lastIndexOf("/") > 0);
  return {
    workers: {
      w: {
        image: "corral/python",
        command: ["true"],
        sandbox: byLists ? lists : { inherit: true },
        shell_rules: { default: "pre_approved" },
      },
      reader: {
        image: "corral/python",
        command: ["python3", "-c", LOOK],
        sandbox: { zones: inner.map(({ name }) => ({ name })) },
      },
    },
    zones: Object.fromEntries(all.map((_, index) => [`g${index}`, "rw"])),
    files: Object.fromEntries(files),
    sandbox: { zones: Object.fromEntries(zones) },
  };
}

function governing(mounts: readonly Placed[], path: string): Placed | undefined {
  const around = mounts.filter((mount) => path === mount.path || path.startsWith(`${mount.path}/`));
  return around.reduce<Placed | undefined>(
    (a, b) => (a === undefined || b.path.length > a.path.length ? b : a),
    undefined,
  );
}

/** Prints every file below the nests, by its path, without following a link: packed, because a session cuts long output. */
const LOOK_AROUND = `
import base64, json, os, stat, sys, zlib
def look():
    found = {}
    for top in sorted(os.listdir("/")):
        if top[0] != "g" or not top[1:].isdigit(): continue
        for folder, _, names in os.walk("/" + top):
            for name in names:
                path = folder + "/" + name
                try:
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        with open(path) as file: found[path] = file.read()
                except OSError: pass
    print(base64.b64encode(zlib.compress(json.dumps(found).encode())).decode())
`;
const LOOK = `${LOOK_AROUND}\nlook()\n`;

/** What it printed. */
export function seenIn(stdout: string): Readonly<Record<string, string>> {
  return JSON.parse(inflateSync(Buffer.from(stdout, "base64")).toString());
}

/**
 * Tries for a while, at random, whatever a program may do about what holds a mount: rename, exchange, remove, replace, link,
 * write, mount and unmount. In between it puts its own in the place of all that is gone. At last it leaves one file in each mount.
 */
export const ATTACK = `${LOOK_AROUND}
import ctypes, random
told = json.load(sys.stdin)
random.seed(told["seed"])
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result != 0: raise OSError(ctypes.get_errno(), "refused")
def exchange(a, b): checked(libc.renameat2(-100, a.encode(), -100, b.encode(), 2))
def over(path, text):
    with open(path, "w") as file: file.write(text)
def replaced_by_link(path, target):
    aside = path + ".l"
    os.symlink(target, aside)
    try: os.replace(aside, path)
    finally:
        if os.path.islink(aside): os.unlink(aside)
def replaced_by_file(path):
    aside = path + ".n"
    over(aside, "evil")
    os.replace(aside, path)
def moved_for_link(path, aside):
    os.rename(path, aside)
    os.symlink(aside, path)
def moved_for_own(path, aside):
    os.rename(path, aside)
    os.makedirs(path)
def fill(nest):
    for path in nest["held"]:
        try: os.makedirs(path, exist_ok=True)
        except OSError: pass
        for name in ("a.md", "b.txt", "new.md"):
            if random.random() < 0.5: continue
            try: over(path + "/" + name, "evil")
            except OSError: pass
ACTS = (
    lambda path, other, aside: os.rename(path, aside),
    lambda path, other, aside: moved_for_own(path, aside),
    lambda path, other, aside: moved_for_link(path, aside),
    lambda path, other, aside: os.replace(path, other),
    lambda path, other, aside: exchange(path, other),
    lambda path, other, aside: (os.makedirs(aside), exchange(path, aside)),
    lambda path, other, aside: os.rmdir(path),
    lambda path, other, aside: os.unlink(path),
    lambda path, other, aside: os.unlink(path + "/a.md"),
    lambda path, other, aside: replaced_by_link(path, other),
    lambda path, other, aside: replaced_by_link(path + "/a.md", other + "/b.txt"),
    lambda path, other, aside: replaced_by_file(path),
    lambda path, other, aside: replaced_by_file(path + "/a.md"),
    lambda path, other, aside: os.link(path + "/a.md", aside + ".md"),
    lambda path, other, aside: os.link(path, aside + ".md"),
    lambda path, other, aside: over(path, "evil"),
    lambda path, other, aside: os.rename(path + "/big.md", other + "/moved.md"),
    lambda path, other, aside: checked(libc.umount2(path.encode(), 2)),
    lambda path, other, aside: checked(libc.mount(other.encode(), path.encode(), None, 4096, None)),
)
for nest in told["nests"]:
    for number in range(told["attempts"]):
        path, other = random.choice(nest["held"]), random.choice(nest["held"])
        try: random.choice(ACTS)(path, other, "%s/aside%d" % (nest["held"][0], number))
        except OSError: pass
        if random.random() < 0.2: fill(nest)
for path in told["mine"]:
    try: over(path + "/mine.md", "mine")
    except OSError: pass
look()
`;
