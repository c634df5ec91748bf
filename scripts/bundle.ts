import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type OutputOptions, type Plugin, rolldown } from "rolldown";

/**
 * Packages that the Engine's client loads for BuildKit sessions, Engines behind SSH and packing folders, prom-client for exemplars, and PostgreSQL's
 * client for other run-times. Corral uses none
 * of these features, and the packages are more than half of what a short run would load.
 */
const LEFT_OUT = new Set([
  "@opentelemetry/api",
  "pg-native",
  "pg-cloudflare",
  "ssh2",
  "@grpc/grpc-js",
  "@grpc/proto-loader",
  "protobufjs",
  "tar-fs",
]);

/** The file of a thread is started by its name from any file of a bundle: each bundle has it in its own folder. */
const THREAD = { "schema-thread": "src/declarations/schema/schema-thread.ts" };

/**
 * The files of the command line. It loads one when it first uses a part of it, and a module in it runs when it is first imported. So a few
 * large files are quick: finding, reading and linking a file takes as long as compiling it. What has no group is in files of its own.
 */
const COMMAND_LINE_FILES = [
  {
    name: "first",
    test: /\/src\/(state\/state-(dir|paths)|platform\/(errno|sha256)|operations\/package-version|declarations\/place\/package-root)\.ts$|on-demand:node:crypto|rolldown.runtime/,
  },
  {
    name: "program",
    test: /\/(commander|picocolors)\/|on-demand:|\/src\/(cli\/(program|terminal\/(terminal|exit-status)|verbs\/(frame|options|without-project)|github\/workflow-commands|declared\/given-options|terminal\/arguments)|sandbox\/approval|text\/visible)\.ts$/,
  },
  { name: fileOf, debugName: "folders and packages", test: (id: string) => fileOf(id) !== null },
];

/** A file for each folder and each package. */
function fileOf(id: string): string | null {
  if (
    /\/src\/(cli\/(corral|compiled-files|young-objects|verbs\/[\w-]+)|declarations\/schema\/schema-thread)\.ts$/.test(
      id,
    )
  )
    return null;
  const inPackage = /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
  if (inPackage !== undefined) return inPackage.replace(/\W+/g, "-");
  return (
    /\/src\/((?:cli|run|isolation)\/[\w-]+(?=\/)|fleet\/postgres(?=\/)|[\w-]+(?=\/))/
      .exec(id)?.[1]
      ?.replace("/", "-") ?? null
  );
}

/**
 * Bundles command line and library with the packages that they use. A short run then does not spend a third of its time on finding and loading
 * hundreds of modules, and an installation has exactly the packages that were tested, without those that are never used. They have no
 * files in common, so that each loads only what it uses itself. `further`: files that are in the package in another way.
 */
export async function bundlePrograms(root: string, further: readonly string[]): Promise<void> {
  const modules = new Set([
    ...further,
    // Node loads CommonJS in half the time of ECMAScript modules, and its own modules too: each of their names need not be read.
    ...(await bundled(
      root,
      "dist/cli",
      { corral: "src/cli/corral.ts", program: "src/cli/program.ts", ...THREAD },
      [lazyFiles()],
      {
        format: "cjs",
        entryFileNames: "[name].cjs",
        chunkFileNames: "[name]-[hash].cjs",
        strictExecutionOrder: true,
        codeSplitting: { groups: [...COMMAND_LINE_FILES], includeDependenciesRecursively: false },
      },
    )),
    ...(await bundled(root, "dist", { index: "src/index.ts", sandbox: "src/sandbox.ts", ...THREAD }, [], {
      format: "esm",
      chunkFileNames: "[name]-[hash].js",
    })),
  ]);
  writeFileSync(join(root, "dist/THIRD-PARTY.txt"), licencesOf([...modules]));
}

/** Writes one bundle; answers with the files that it is made of. */
async function bundled(
  root: string,
  dir: string,
  input: Readonly<Record<string, string>>,
  plugins: readonly Plugin[],
  output: OutputOptions,
): Promise<string[]> {
  const bundle = await rolldown({
    input: Object.fromEntries(Object.entries(input).map(([name, file]) => [name, join(root, file)])),
    platform: "node",
    cwd: root,
    // The oldest Node that the package supports cannot parse `using`.
    transform: { target: "node22" },
    ...(output.strictExecutionOrder ? { preserveEntrySignatures: "allow-extension" } : {}),
    // The library loads at once what the command line loads when it needs it.
    checks: { ineffectiveDynamicImport: false },
    // A module that does not run is not compiled.
    optimization: { pifeForModuleWrappers: false },
    plugins: [withoutUnused(), builtinsOnDemand(), ...plugins],
  });
  // Most of the text of the parser of the command line is comments. Lines stay: the stack of a bug names them.
  const written = await bundle.write({ dir: join(root, dir), comments: false, charset: "ascii", ...output });
  await bundle.close();
  return written.output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
}

/** Modules of Node that take long to load, and that few commands use: `https` alone is a tenth of the start of a run. */
const HEAVY = "https|zlib|readline|worker_threads|dns/promises|perf_hooks";

/** Makes each file of a bundle load the others, and heavy modules of Node, when it first uses something of them, and not at its own start. */
function lazyFiles(): Plugin {
  const other = new RegExp(
    `^(?:const|let) (require_[\\w$]+|node_\\w+) = require\\("(\\./[^"]+|node:(?:${HEAVY}))"\\);$`,
    "gm",
  );
  return {
    name: "lazy-files",
    renderChunk(code) {
      const names = new Set(
        [...code.matchAll(other)]
          .map(([, name = ""]) => name)
          // The second is read at once, to be made what an `import` of it is.
          .filter((name) => !name.includes("rolldown_runtime") && !code.includes(`__toESM(${name}`)),
      );
      const lazy = code.replace(other, (line, name, file) =>
        names.has(name) ? `let ${name}$loaded;\nconst ${name} = () => ${name}$loaded ??= require("${file}");` : line,
      );
      return lazy
        .replace(/\b(require_[\w$]+|node_\w+)(?=\.)/g, (name) => (names.has(name) ? `(${name}())` : name))
        .replace(/\bimport\(("node:[\w/]+")\)/g, "Promise.resolve(require($1))");
    },
  };
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
  // Only for an Engine behind TLS. An object, since the Engine's client makes one with functions of its own from it.
  https: 'module.exports = { request: (...args) => process.getBuiltinModule("node:https").request(...args) };',
  // Only for building an image from a folder, which Corral packs itself.
  zlib: 'export const createGzip = (...args) => process.getBuiltinModule("node:zlib").createGzip(...args);',
  "node:process": "export default globalThis.process;",
  "node:util":
    'export const stripVTControlCharacters = (text) => process.getBuiltinModule("node:util").stripVTControlCharacters(text);',
};
const LOADED_ALWAYS =
  /\/node_modules\/(commander|docker-modem|dockerode)\/|\/src\/(platform\/sha256|cli\/github\/workflow-commands)\.ts$/;

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
