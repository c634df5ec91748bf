import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Plugin, rolldown } from "rolldown";

/**
 * Packages that the Engine's client loads for BuildKit sessions, Engines behind SSH and packing folders. Corral uses none
 * of these features, and the packages are more than half of what a short run would load.
 */
const LEFT_OUT = new Set(["ssh2", "@grpc/grpc-js", "@grpc/proto-loader", "protobufjs", "tar-fs"]);

interface Bundle {
  /** Below `dist/`. */
  readonly dir: string;
  /** What it starts with, by the name in `dir`. */
  readonly input: Readonly<Record<string, string>>;
}

/** The file of a thread is started by its name from any file of a bundle: each bundle has it in its own folder. */
const THREAD = { "schema-thread": "src/declarations/schema/schema-thread.ts" };
/** The command line and the library have no files in common, so that each loads only what it uses itself. */
const BUNDLES: readonly Bundle[] = [
  { dir: "cli", input: { corral: "src/cli/corral.ts", ...THREAD } },
  { dir: ".", input: { index: "src/index.ts", sandbox: "src/sandbox.ts", ...THREAD } },
];

/** What every command loads, in as few files as possible: finding, reading and linking one takes as long as compiling it. */
const STARTED_FIRST = [
  {
    name: "first",
    test: /\/src\/(state\/state-(dir|paths)|platform\/(errno|sha256)|operations\/(package-version|wording\/printable)|declarations\/place\/package-root|cli\/terminal\/(terminal|exit-status))\.ts$|\/picocolors\/|on-demand:node:crypto|rolldown.runtime/,
  },
  {
    name: "program",
    test: /\/commander\/|on-demand:|\/src\/(cli\/(program|verbs\/(frame|options|without-project)|github\/workflow-commands|declared\/given-options|terminal\/arguments)|sandbox\/approval)\.ts$/,
  },
];

/**
 * Bundles command line and library with the packages that they use. A short run then does not spend a third of its time on finding and loading
 * hundreds of modules, and an installation has exactly the packages that were tested, without those that are never used.
 */
export async function bundlePrograms(root: string): Promise<void> {
  const modules = new Set<string>();
  for (const { dir, input } of BUNDLES) {
    const bundle = await rolldown({
      input: Object.fromEntries(Object.entries(input).map(([name, file]) => [name, join(root, file)])),
      platform: "node",
      cwd: root,
      // The oldest Node that the package supports cannot parse `using`.
      transform: { target: "node22" },
      plugins: [withoutUnused(), builtinsOnDemand()],
    });
    const target = join(root, "dist", dir);
    const { output } = await bundle.write({
      dir: target,
      format: "esm",
      chunkFileNames: "[name]-[hash].js",
      // Most of the text of the parser of the command line is comments. Lines stay: the stack of a bug names them.
      comments: false,
      codeSplitting: dir === "cli" ? { groups: [...STARTED_FIRST] } : true,
    });
    await bundle.close();
    for (const file of output) if (file.type === "chunk") for (const id of file.moduleIds) modules.add(id);
  }
  writeFileSync(join(root, "dist/THIRD-PARTY.txt"), licencesOf([...modules]));
}

/** Replaces each module that is left out by one that throws when it is used, but not when it is loaded. */
function withoutUnused(): Plugin {
  const mark = "\0left-out:";
  return {
    name: "without-unused",
    resolveId: (id) => (LEFT_OUT.has(id) ? `${mark}${id}.cjs` : null),
    load(id) {
      if (!id.startsWith(mark)) return null;
      const name = id.slice(mark.length, -".cjs".length);
      return `const absent = new Proxy(function () {}, {
        get: (_, key) => (key === "prototype" ? Object.prototype : absent),
        apply() { throw new Error(${JSON.stringify(`${name} is not part of this program`)}); },
      });
      module.exports = absent;`;
    },
  };
}

/** What every command would load of Node, and few use: the parser of the command line starts no programs, and a help text needs no digest. */
const ON_DEMAND: Readonly<Record<string, string>> = {
  "node:child_process":
    'export default { spawn: (...args) => process.getBuiltinModule("node:child_process").spawn(...args) };',
  "node:crypto": ["createHash", "randomBytes"]
    .map((name) => `export const ${name} = (...args) => process.getBuiltinModule("node:crypto").${name}(...args);`)
    .join("\n"),
  "node:process": "export default globalThis.process;",
  "node:util":
    'export const stripVTControlCharacters = (text) => process.getBuiltinModule("node:util").stripVTControlCharacters(text);',
};
const LOADED_ALWAYS = /\/node_modules\/commander\/|\/src\/(platform\/sha256|cli\/github\/workflow-commands)\.ts$/;

/** Loads these modules of Node when they are used: their imports take a third of the time of a command that prints its help. */
function builtinsOnDemand(): Plugin {
  const mark = "\0on-demand:";
  return {
    name: "builtins-on-demand",
    resolveId: (id, importer) =>
      Object.hasOwn(ON_DEMAND, id) && LOADED_ALWAYS.test(importer ?? "") ? `${mark}${id}` : null,
    load: (id) => (id.startsWith(mark) ? (ON_DEMAND[id.slice(mark.length)] ?? null) : null),
  };
}

/** The licences of all packages in the bundle, as these licences require. */
function licencesOf(modules: readonly string[]): string {
  const packages = new Set(modules.flatMap((id) => /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []));
  const entries = [...packages].sort().map((dir) => {
    const { name, version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const texts = globSync("{LICENSE,LICENCE,license,NOTICE}*", { cwd: dir }).map((file) =>
      readFileSync(join(dir, file), "utf8"),
    );
    return [`${name} ${version} (${license})`, ...texts].join("\n\n");
  });
  return `${entries.join(`\n\n${"-".repeat(80)}\n\n`)}\n`;
}
