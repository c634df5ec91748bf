import { posix } from "node:path";
import { parseSync } from "rolldown/utils";

/** Source files by their path below `src/`, as `run/run.ts`. */
export type Sources = ReadonlyMap<string, string>;

/** One broken rule: where, what, and why the rule is there. */
export interface Breach {
  readonly file: string;
  readonly what: string;
  readonly why: string;
}

/** Everything in which these sources break the layers and the habits of docs/architecture.md. */
export function breachesOf(sources: Sources): Breach[] {
  const files = [...sources].map(([path, text]) => ({ path, code: withoutComments(text) }));
  return [
    ...files.flatMap((file) => RULES.flatMap((rule) => rule(file))),
    ...cyclesOf(files),
    ...mutualFolders(files),
    ...[...sources].flatMap(([path, text]) => longFile(path, text)),
    ...[...sources].flatMap(([path, text]) => longScripts(path, text)),
    ...fullFolders([...sources.keys()]),
    ...doubleNames(files),
  ];
}

interface File {
  readonly path: string;
  readonly code: string;
}

type Rule = (file: File) => Breach[];

const LAYER_0 = ["sandbox", "text"];
/** What knows nothing of ours. */
const FOUNDATIONS = [...LAYER_0, "platform", "secrets", "json"];
const LAYERS_0_TO_1 = [...FOUNDATIONS, "declarations", "files", "approval", "state", "blobs"];
const LAYERS_0_TO_2 = [
  ...LAYERS_0_TO_1,
  "isolation",
  "egress",
  "tools",
  "agent",
  "changes",
  "audit",
  "git",
  "history",
  "inbox",
];
const LAYERS_0_TO_4 = [...LAYERS_0_TO_2, "run", "fleet"];
const LAYERS_0_TO_5 = [...LAYERS_0_TO_4, "operations", "client"];
const FACES = ["cli", "mcp", "library", "serve"];

/**
 * What each folder may import besides itself. A face imports no other face, except that the command line starts the
 * others. docs/architecture.md shows the same as a table.
 */
export const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  sandbox: ["text"],
  text: [],
  platform: [],
  secrets: [],
  json: [],
  declarations: FOUNDATIONS,
  files: [...LAYER_0, "platform"],
  approval: [...LAYER_0, "platform"],
  state: [...LAYER_0, "platform", "json", "files"],
  blobs: [...LAYER_0, "platform", "files", "state"],
  isolation: LAYERS_0_TO_1,
  egress: LAYERS_0_TO_1,
  tools: LAYERS_0_TO_1,
  agent: LAYERS_0_TO_1,
  changes: LAYERS_0_TO_1,
  audit: LAYERS_0_TO_1,
  git: LAYERS_0_TO_1,
  history: LAYERS_0_TO_1,
  inbox: LAYERS_0_TO_1,
  run: LAYERS_0_TO_2,
  fleet: [...LAYERS_0_TO_2, "run"],
  operations: LAYERS_0_TO_4,
  client: ["platform", "operations"],
  ...Object.fromEntries(FACES.map((face) => [face, LAYERS_0_TO_5])),
  cli: [...LAYERS_0_TO_5, ...FACES],
  "index.ts": [...LAYERS_0_TO_5, "library"],
  "sandbox.ts": [...LAYERS_0_TO_2, "library"],
};

const MAY_READ_DISKS = [
  "agent/transcript",
  "fleet/cache/",
  "fleet/items/",
  "fleet/scrubbed/",
  "files/",
  "declarations/",
  "platform/",
  "state/",
  "blobs/",
  "isolation/",
  "changes/",
  "audit/",
  "git/",
  "history/",
  "inbox/",
  "fleet/journal",
  "cli/",
];
/** Files elsewhere that touch the disk, and what for. */
const DISK_EXCEPTIONS: Readonly<Record<string, string>> = {
  "fleet/postgres/connection.ts": "reads the certificate that the address of the queue names",
  "fleet/items/item-job.ts": "looks whether an attachment is on the host; what it is is judged when it is opened",
  "operations/machine.ts": "checks the mode of the state directory, as a finding for a person",
  "serve/http/carriage.ts": "looks in /proc how far a process of its own is",
  "serve/http/listener.ts": "makes the service's own socket, and removes one that a dead service left",
  "serve/page/page-files.ts": "reads the page that the build has made, below Corral's own package",
  "run/attached-file.ts": "looks whether what a person or a program attaches is there; it is judged when it is opened",
  "run/cell/broker.ts": "makes and removes the socket of one run",
  "run/open/corral.ts": "looks whether an owner's directory is still there",
  "run/session/exec-command.ts": "writes what a command printed into Corral's own directory, which no worker can write",
  "run/session/write-room.ts": "makes and removes that directory",
  "secrets/read-secret.ts": "reads the one line of a user's file, which no worker sees or writes",
  "run/cell/prepare.ts": "looks at the gate's binary, for its identity in the plan",
};

/** The drivers, which do not know each other. */
const DRIVERS = ["isolation/engine/", "isolation/runc/", "isolation/bwrap/"];
/** The one file that knows which engines there are. */
const ENGINE_CHOICE = "isolation/open-engine.ts";

/** The page of the service. */
const PAGE = "serve/web/";
/** What it shares with others. */
const OF_PAGE = ["text/", "client/client.ts", "operations/contract/"];

const CONTRACT = "operations/contract/";
const ROUTES = `${CONTRACT}routes.ts`;

/** What `exports` of package.json names. */
const ENTRIES = ["index.ts", "sandbox.ts"];

const FORBIDDEN_NAMES = ["utils", "util", "helpers", "helper", "common", "misc", "manager"];

const RULES: readonly Rule[] = [
  function layers({ path, code }) {
    const folder = folderOf(path);
    const allowed = MAY_IMPORT[folder];
    if (allowed === undefined)
      return [breach(path, `is in no layer (${folder})`, "every folder has its place in docs/architecture.md")];
    return ownImports(path, code)
      .map(folderOf)
      .filter((target) => target !== folder && target !== ".." && !allowed.includes(target))
      .map((target) => breach(path, `imports ${target}/`, "imports go strictly downwards, and layer 1 never sideways"));
  },
  function withinSources({ path, code }) {
    return ownImports(path, code)
      .filter((target) => target.startsWith(".."))
      .map((target) => breach(path, `imports ${target}`, "what is not below src/ is not packed"));
  },
  function pureAlgebra({ path, code }) {
    if (!LAYER_0.includes(folderOf(path))) return [];
    return packagesOf(code)
      .filter((name) => name !== "node:path/posix")
      .map((name) =>
        breach(
          path,
          `imports ${name}`,
          "the sandbox algebra and what is shown of a text are pure: no I/O, no packages",
        ),
      );
  },
  function engineClient({ path, code }) {
    if (path.startsWith("isolation/engine/")) return [];
    return packagesOf(code)
      .filter((name) => /^(dockerode|docker-modem)(\/|$)/.test(name))
      .map((name) => breach(path, `imports ${name}`, "the Engine is spoken to in isolation/engine/ alone"));
  },
  function enginePort({ path, code }) {
    if (path === ENGINE_CHOICE) return [];
    const why = `an engine is chosen in ${ENGINE_CHOICE} alone, and known by its port, so that another one can take its place`;
    return ownImports(path, code)
      .filter((target) => DRIVERS.some((driver) => target.startsWith(driver) && !path.startsWith(driver)))
      .map((target) => breach(path, `imports ${target}`, why));
  },
  function page({ path, code }) {
    const isPage = path.startsWith(PAGE);
    const across = ownImports(path, code).filter(
      (target) => target.startsWith(PAGE) !== isPage && !(isPage && OF_PAGE.some((place) => target.startsWith(place))),
    );
    const packages = isPage
      ? packagesOf(code).filter((name) => !/^(?:preact(?:\/.*)?|@xterm\/headless)$/.test(name))
      : [];
    const why =
      "the page runs in a browser: it knows the service by its contract alone, shares only its client and what is shown of a text, and is small";
    return [...across, ...packages].map((what) => breach(path, `imports ${what}`, why));
  },
  function clients({ path, code }) {
    if (!path.startsWith("client/") && !path.startsWith(PAGE)) return [];
    const why = "a client begins at once, in a browser too: of the contract it has the routes, and all else as types";
    const loaded = ownImports(path, code.replaceAll(/^\s*import type\s[^;]*;/gm, ""));
    const foreign = ownImports(path, code).filter((target) => !target.startsWith(CONTRACT));
    return [...loaded.filter((target) => target !== ROUTES), ...foreign]
      .filter((target) => target.startsWith("operations/"))
      .map((target) => breach(path, `imports ${target}`, why));
  },
  function routes({ path, code }) {
    if (path === ROUTES) return [];
    const named = code.match(/["'`]\/(?:v1\/[\w{$]|metrics\b|openapi\.json)[^"'`\s]*/g) ?? [];
    const why = `a route is in ${ROUTES} alone: so OpenAPI, the clients and the page have it too`;
    return named.map((what) => breach(path, `names the route ${what.slice(1)}`, why));
  },
  function disks({ path, code }) {
    if (MAY_READ_DISKS.some((place) => path.startsWith(place)) || DISK_EXCEPTIONS[path] !== undefined) return [];
    return packagesOf(code)
      .filter((name) => /^(node:)?fs(\/promises)?$/.test(name))
      .map((name) =>
        breach(path, `imports ${name}`, "files are reached through files/, which no swap can lead astray"),
      );
  },
  function process({ path, code }) {
    if (FACES.includes(folderOf(path)) && folderOf(path) !== "library") return [];
    const used =
      code.match(
        /\bprocess\s*(\.|\[)\s*["']?(env|stdout|stderr|stdin|exit(?!\.code")|exitCode|argv)\b|\bconsole\s*\./g,
      ) ?? [];
    const imported = packagesOf(code).filter((name) => /^(node:)?process$/.test(name));
    return [...used, ...imported].map((what) =>
      breach(path, `uses ${what}`, "streams, exit codes and the environment belong to the faces, and are handed down"),
    );
  },
  function httpModule({ path, code }) {
    const imported = code.match(/^\s*import\s(?!type\s)[^;"'`]*\sfrom\s*["'](?:node:)?http["']/gm) ?? [];
    const why =
      "an `import` of node:http loads the whole of fetch, which no short command has time for: platform/http.ts does not";
    return imported.map(() => breach(path, "imports values of node:http", why));
  },
  function barrels({ path, code }) {
    if (ENTRIES.includes(path)) return [];
    const why = "only the package's entries pass names on: elsewhere a name has one place";
    const named = path.endsWith("/index.ts") ? [breach(path, "is called index.ts", why)] : [];
    return [...named, ...reexportsOf(code).map((what) => breach(path, `exports ${what} of another file`, why))];
  },
  function names({ path }) {
    const words = path.replace(/\.tsx?$/, "").split(/[/.-]/);
    return FORBIDDEN_NAMES.filter((name) => words.includes(name)).map((name) =>
      breach(path, `is called ${name}`, "a file is named by its one concern"),
    );
  },
  function flags({ path, code }) {
    // O_PATH, which Node does not name, is the same everywhere.
    if (path === "files/host/descriptor.ts") return [];
    const why =
      "O_NOFOLLOW has another value on arm64, where x86's follows links: `fs.constants` has those of this machine";
    return (code.match(/\b0o[0-7]{6,}\b/g) ?? []).map((what) => breach(path, `has the flag ${what}`, why));
  },
  function readableImports({ code, path }) {
    const hidden = code.match(/\bimport\s*\(\s*[^"'\s)][^)]*\)|\brequire\s*\(|\bcreateRequire\b/g) ?? [];
    const builtin = LOADS_BUILTINS.includes(path) ? [] : (code.match(/\bgetBuiltinModule\b/g) ?? []);
    return [...hidden, ...builtin].map((what) =>
      breach(path, `imports by ${what}`, "an import that cannot be read cannot be checked"),
    );
  },
];

/**
 * The first is a client that must not load what it does not use; the second loads the files of the bundle, in which all imports were read before;
 * the third loads a module that warns of itself.
 */
const LOADS_BUILTINS = ["platform/http.ts", "cli/compiled-files.ts", "fleet/journal/database.ts"];

function breach(file: string, what: string, why: string): Breach {
  return { file, what, why };
}

function folderOf(path: string): string {
  return path.split("/")[0] ?? "";
}

const FROM = /^\s*(?:import|export)\s(?:[^;"'`]*?\s)?from\s*["']([^"']+)["']/gm;
const FOR_EFFECT = /^\s*import\s*["']([^"']+)["']/gm;
const DYNAMIC = /\bimport\s*\(\s*["']([^"']+)["']/g;

/** Everything that is imported, in whatever way: for its types alone, on demand, or passed on. */
function specifiersOf(code: string): string[] {
  return [FROM, FOR_EFFECT, DYNAMIC].flatMap((pattern) => [...code.matchAll(pattern)].map((match) => match[1] ?? ""));
}

function packagesOf(code: string): string[] {
  return specifiersOf(code).filter((specifier) => !specifier.startsWith("."));
}

/** Own files that are imported, by their path below `src/`. */
function ownImports(path: string, code: string): string[] {
  return specifiersOf(code)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => posix.join(posix.dirname(path), specifier));
}

/** `export … from`, and `export { … }` of what was imported. */
function reexportsOf(code: string): string[] {
  const passedOn = [...code.matchAll(/^\s*export\s[^;"'`]*?\sfrom\s*["']([^"']+)["']/gm)].map(
    (match) => match[1] ?? "",
  );
  const imported = new Set(
    [...code.matchAll(/^\s*import\s([^;"'`]*?)\sfrom/gm)].flatMap((match) => wordsOf(match[1] ?? "")),
  );
  const listed = [...code.matchAll(/^\s*export\s+(?:type\s+)?\{([^}]*)\}\s*;/gm)].flatMap((match) =>
    wordsOf(match[1] ?? ""),
  );
  return [...passedOn, ...listed.filter((name) => imported.has(name))];
}

function wordsOf(list: string): string[] {
  return (list.match(/[\w$]+/g) ?? []).filter((word) => word !== "type" && word !== "as");
}

const MAX_LINES = 500;
const MAX_FILES = 16;

function longFile(path: string, text: string): Breach[] {
  const lines = text.split("\n").length - 1;
  if (lines <= MAX_LINES) return [];
  return [breach(path, `has ${lines} lines`, `a file is a chapter of 100 to 400 lines, and never over ${MAX_LINES}`)];
}

const MAX_SCRIPT_LINES = 10;
/** SQL has its verbs in capitals, and a shell's script the ends of its blocks. */
const SCRIPT =
  /\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE (?:TABLE|FUNCTION|INDEX)|ALTER TABLE)\b|[;\s](?:fi|esac)\b|; (?:then|do)\b/;

/** Texts in the language of a shell or a database, as one literal or as a list of lines. */
function longScripts(path: string, text: string): Breach[] {
  if (!SCRIPT.test(text)) return [];
  const found: Breach[] = [];
  const why = `more than ${MAX_SCRIPT_LINES} lines of shell or SQL are a file beside the module (platform/text-beside.ts), where checks read them`;
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    if (Array.isArray(node)) {
      for (const one of node) visit(one);
      return;
    }
    const { type, start, end, elements } = node as { type?: string; start: number; end: number; elements?: unknown[] };
    const isText = type === "TemplateLiteral" || type === "Literal";
    const lines = isText
      ? text.slice(start, end).trim().split("\n").length
      : type === "ArrayExpression" &&
          elements?.every((one) => /Literal$/.test((one as { type?: string } | null)?.type ?? ""))
        ? elements.length
        : 0;
    if (lines > MAX_SCRIPT_LINES && SCRIPT.test(text.slice(start, end)))
      found.push(breach(path, `has a script of ${lines} lines`, why));
    else for (const value of Object.values(node)) visit(value);
  };
  visit(parseSync(path, text).program);
  return found;
}

function fullFolders(paths: readonly string[]): Breach[] {
  return [...Map.groupBy(paths, posix.dirname)].flatMap(([folder, files]) => {
    if (files.length <= MAX_FILES) return [];
    return [
      breach(folder, `has ${files.length} files`, `a folder is a room of 3 to 12 files, and never over ${MAX_FILES}`),
    ];
  });
}

/** What implements one port exports the same names, with one meaning. */
const OF_ONE_PORT = [["fleet/journal/", "fleet/postgres/"]];
const EXPORTED = /^export (?:async )?(?:function\*?|const|(?:abstract )?class|interface|type|enum) (\w+)/gm;

function doubleNames(files: readonly File[]): Breach[] {
  const names = files.flatMap(({ path, code }) =>
    [...code.matchAll(EXPORTED)].map(([, name = ""]) => ({ path, name })),
  );
  return [...Map.groupBy(names, ({ name }) => name)].flatMap(([name, found]) => {
    const [first = "", ...others] = new Set(found.map(({ path }) => path));
    const isOnePort = OF_ONE_PORT.some((port) =>
      [first, ...others].every((path) => port.some((folder) => path.startsWith(folder))),
    );
    if (isOnePort) return [];
    const why = "an exported name means one thing in the whole house";
    return others.map((path) => breach(path, `exports ${name}, as ${first} does`, why));
  });
}

/** Each cycle once, as the path around it. */
function cyclesOf(files: readonly File[]): Breach[] {
  const imports = new Map(files.map(({ path, code }) => [path, ownImports(path, code)]));
  const finished = new Set<string>();
  const breaches: Breach[] = [];
  const visit = (path: string, way: readonly string[]): void => {
    const at = way.indexOf(path);
    if (at >= 0) {
      const around = [...way.slice(at), path].join(" > ");
      breaches.push(
        breach(path, `imports itself: ${around}`, "what needs each other is one concern, or has a third below"),
      );
      return;
    }
    if (finished.has(path)) return;
    for (const target of imports.get(path) ?? []) visit(target, [...way, path]);
    finished.add(path);
  };
  for (const { path } of files) visit(path, []);
  return breaches;
}

/**
 * Sub-folders of one folder that import each other, also around third ones, each circle once. The files that stand in the
 * folder itself count as one of them, called `.`: they are above its sub-folders or below them, and not both.
 */
function mutualFolders(files: readonly File[]): Breach[] {
  const folders = new Map<string, Map<string, Map<string, string>>>();
  for (const { path, code } of files) {
    for (const target of ownImports(path, code)) {
      const { parent, from, to } = parting(path, target);
      if (from === to) continue;
      const within = entryOf(folders, parent, () => new Map<string, Map<string, string>>());
      entryOf(
        entryOf(within, from, () => new Map<string, string>()),
        to,
        () => path,
      );
    }
  }
  return [...folders].flatMap(([parent, within]) =>
    circlesOf(within).map((circle) => {
      const steps = circle.slice(1).map((to, index) => ({ from: circle[index] ?? "", to }));
      const seen = steps.map(({ from, to }) => within.get(from)?.get(to) ?? "");
      const what = `makes ${parent || "src"}/ a knot: ${circle.join(" > ")} (see ${seen.slice(1).join(", ")})`;
      return breach(seen[0] ?? "", what, "folders of one floor do not need each other, or one of them is below");
    }),
  );
}

function entryOf<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const value = map.get(key) ?? make();
  map.set(key, value);
  return value;
}

/** For each node that reaches itself and is not on an earlier circle: a shortest way around, from it to itself. */
function circlesOf(edges: ReadonlyMap<string, ReadonlyMap<string, string>>): string[][] {
  const circles: string[][] = [];
  for (const start of [...edges.keys()].toSorted()) {
    if (circles.some((circle) => circle.includes(start))) continue;
    const ways: string[][] = [[start]];
    const reached = new Set<string>();
    for (const way of ways) {
      for (const next of edges.get(way.at(-1) ?? "")?.keys() ?? []) {
        if (reached.has(next)) continue;
        reached.add(next);
        ways.push([...way, next]);
      }
    }
    const around = ways.find((way) => way.length > 1 && way.at(-1) === start);
    if (around) circles.push(around);
  }
  return circles;
}

/** The deepest folder that holds both files, and which of its parts each of them is in. */
function parting(path: string, target: string): { parent: string; from: string; to: string } {
  const [a, b] = [path.split("/"), target.split("/")];
  let shared = 0;
  while (shared < a.length - 1 && shared < b.length - 1 && a[shared] === b[shared]) shared += 1;
  const part = (steps: string[]): string => (shared < steps.length - 1 ? (steps[shared] ?? ".") : ".");
  return { parent: a.slice(0, shared).join("/"), from: part(a), to: part(b) };
}

/** How many files the longest chain of imports has, types included, and the chain. */
export function longestChain(sources: Sources): readonly string[] {
  const imports = new Map([...sources].map(([path, text]) => [path, ownImports(path, withoutComments(text))]));
  const known = new Map<string, readonly string[]>();
  const chainFrom = (path: string): readonly string[] => {
    const found = known.get(path);
    if (found !== undefined) return found;
    known.set(path, [path]);
    const longest = (imports.get(path) ?? []).map(chainFrom).reduce((a, b) => (b.length > a.length ? b : a), []);
    const chain = [path, ...longest];
    known.set(path, chain);
    return chain;
  };
  return [...sources.keys()].map(chainFrom).reduce((a, b) => (b.length > a.length ? b : a), []);
}

/** Comments may name what code may not. Strings stay, as they hold what is imported. */
function withoutComments(text: string): string {
  return text.replace(
    /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|\/\*[\s\S]*?\*\/|(?<=^|[\s;{}(),])\/\/[^\n]*/g,
    (_, literal: string | undefined) => literal ?? " ",
  );
}
