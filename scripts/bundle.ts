import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type OutputChunk, type OutputOptions, type Plugin, rolldown } from "rolldown";
import { minifySync } from "rolldown/utils";
import { writeShipped } from "./shipped.ts";

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

/** What every command loads, also one that prints its options, and verbs, of which a command has one. */
const ALWAYS =
  /(^|\/)(commander|picocolors)\/|^src\/(cli\/(terminal\/(terminal|arguments)|verbs\/(frame|options|without-project)|declared\/given-options)|declarations\/place\/package-root|isolation\/(port\/engine|plan\/enforcement)|platform\/errno|sandbox\/(approval|driver-choice)|text\/visible)\.cjs$/;
const VERB = /^src\/cli\/verbs\/([\w-]+)\.cjs$/;

const IN_PACKAGE = /^.*node_modules\/((?:@[^/]+\/)?[^/]+)\//;

function packageOf(file: string): string | undefined {
  return IN_PACKAGE.exec(file)?.[1]?.replace(/\W+/g, "-");
}

/** The pack of a module of the command line: one for each folder and each package. */
function packOf(file: string): string {
  if (ALWAYS.test(file)) return "program";
  const verb = VERB.exec(file)?.[1];
  if (verb !== undefined) return `verb-${verb}`;
  const inPackage = packageOf(file);
  if (inPackage !== undefined) return inPackage;
  const folder = /^src\/((?:cli|run|isolation)\/[\w-]+(?=\/)|fleet\/postgres(?=\/)|[\w-]+(?=\/))/.exec(file)?.[1];
  return folder?.replace("/", "-") ?? "program";
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
    ...(await bundled(root, "dist/cli", { corral: "src/cli/corral.ts", ...THREAD }, [withoutProgram()], {
      format: "cjs",
      entryFileNames: "[name].cjs",
      chunkFileNames: "[name].cjs",
    })),
    ...(await bundled(root, "dist/cli", { program: "src/cli/program.ts" }, [packs()], {
      format: "cjs",
      preserveModules: true,
      entryFileNames: "[name].cjs",
    })),
    ...(await bundled(root, "dist", { index: "src/index.ts", sandbox: "src/sandbox.ts", ...THREAD }, [], {
      format: "esm",
      chunkFileNames: "[name]-[hash].js",
      codeSplitting: { groups: [{ test: IN_PACKAGE, name: (id) => packageOf(id) ?? null, debugName: "packages" }] },
    })),
  ]);
  writeShipped(root, modules);
}

/** Writes one bundle; answers with the files that it is made of. */
async function bundled(
  root: string,
  dir: string,
  input: Readonly<Record<string, string>>,
  plugins: readonly Plugin[],
  output: OutputOptions,
): Promise<string[]> {
  const modules: string[] = [];
  const bundle = await rolldown({
    input: Object.fromEntries(Object.entries(input).map(([name, file]) => [name, join(root, file)])),
    platform: "node",
    cwd: root,
    // The oldest Node that the package supports cannot parse `using`.
    transform: { target: "node22" },
    // The library loads at once what the command line loads when it needs it.
    checks: { ineffectiveDynamicImport: false },
    plugins: [textsInside(), withoutUnused(), builtinsOnDemand(), listing(modules), ...plugins, smallPackages()],
  });
  // Most of the text of the parser of the command line is comments. Lines of Corral's own stay: the stack of a bug names them.
  await bundle.write({ dir: join(root, dir), comments: false, charset: "ascii", ...output });
  await bundle.close();
  return modules;
}

/** Puts the text of a file beside a module in the place of the call that reads it (`platform/text-beside.ts`): the package has no `src/`. */
function textsInside(): Plugin {
  const call = /\btextBeside\(\s*import\.meta\.url,\s*"([^"]+)",?\s*\)/g;
  return {
    name: "texts-inside",
    transform(code, id) {
      if (id.endsWith("/platform/text-beside.ts") || !code.includes("textBeside(")) return null;
      const inside = code.replace(call, (_, name: string) =>
        JSON.stringify(readFileSync(join(dirname(id), name), "utf8")),
      );
      if (inside.includes("textBeside("))
        throw new Error(`${id} calls textBeside in another way than scripts/bundle.ts can read`);
      return { code: inside };
    },
  };
}

/** Notes what is written, before another plugin packs it in another way. */
function listing(modules: string[]): Plugin {
  return {
    name: "listing",
    generateBundle(_, written) {
      for (const file of Object.values(written)) if (file.type === "chunk") modules.push(...file.moduleIds);
    },
  };
}

/** Modules of Node that take long to load, and that few commands use: `https` alone is a tenth of the start of a run. */
const HEAVY = "https|zlib|readline|worker_threads|dns/promises|perf_hooks";

/** `corral.cjs` has only what finds the rest and starts it. */
function withoutProgram(): Plugin {
  return { name: "without-program", resolveId: (id) => (id === "./program.ts" ? { id, external: true } : null) };
}

/**
 * Packs modules into a file for each folder and each package: finding and reading a file takes as long as compiling what is used of it. A module
 * runs when something of it is first used, and not when one that imports it runs. So a short run builds no schema of what it does not read.
 * `cli/compiled-files.ts` loads them, by names as `run:run/run`.
 */
function packs(): Plugin {
  const other = new RegExp(
    `^(?:const|let) (require_[\\w$]+|node_\\w+) = require\\("(\\.[^"]+|node:(?:${HEAVY}))"\\);$`,
    "gm",
  );
  return {
    name: "packs",
    generateBundle(_, written) {
      const packed = new Map<string, string[]>();
      for (const [file, module] of Object.entries(written)) {
        if (module.type !== "chunk") continue;
        delete written[file];
        const named = (path: string): string => `${packOf(path)}:${path.slice(0, -".cjs".length)}`;
        const names = new Set(
          [...module.code.matchAll(other)]
            .map(([, name = ""]) => name)
            // It is read at once, to be made what an `import` of it is.
            .filter((name) => !module.code.includes(`__toESM(${name}`)),
        );
        const code = module.code
          .replace(other, (line, name, of) =>
            names.has(name) ? `let ${name}$loaded;\nconst ${name} = () => ${name}$loaded ??= require("${of}");` : line,
          )
          .replace(/\b(require_[\w$]+|node_\w+)(?=\.)/g, (name) => (names.has(name) ? `(${name}())` : name))
          .replace(/\brequire\("(\.[^"]+)"\)/g, (_, path) => `require("${named(join(dirname(file), path))}")`)
          .replace(/\bimport\(("node:[\w/]+")\)/g, "Promise.resolve(require($1))");
        const pack = packed.get(packOf(file)) ?? [];
        packed.set(packOf(file), pack);
        const short = isOfPackages(module) ? withoutSpace(file, code) : code;
        pack.push(
          `${JSON.stringify(named(file))}: function (exports, require, module, __filename, __dirname) {\n${short}}`,
        );
      }
      for (const [name, modules] of packed) {
        const source = `({${modules.join(",\n")}})\n`;
        this.emitFile({ type: "asset", fileName: `${name}-${hashOf(source)}.cjs`, source });
      }
    },
  };
}

/** Writes files that are almost only packages without spaces and with short names of variables: a tenth of what is installed. */
function smallPackages(): Plugin {
  return {
    name: "small-packages",
    generateBundle(_, written) {
      for (const [file, chunk] of Object.entries(written))
        if (chunk.type === "chunk" && isOfPackages(chunk)) chunk.code = withoutSpace(file, chunk.code);
    },
  };
}

/** A line of ours among twenty is one that starts a thread, or that passes a package on. */
function isOfPackages({ modules }: OutputChunk): boolean {
  let [ours, all] = [0, 0];
  for (const [id, { renderedLength }] of Object.entries(modules)) {
    all += renderedLength;
    if (!id.includes("/node_modules/")) ours += renderedLength;
  }
  return ours * 20 < all;
}

/** Names of functions and classes stay: errors and stacks have them. */
function withoutSpace(file: string, code: string): string {
  const { code: short, errors } = minifySync(file, code, {
    compress: false,
    mangle: { keepNames: true, reserved: ["exports", "require", "module"] },
    codegen: { removeWhitespace: true, asciiOnly: true, legalComments: "none" },
  });
  if (errors.length > 0) throw new Error(`${file} cannot be made shorter: ${errors.join("; ")}`);
  return short;
}

/** As long as V8's kept forms want it (`cli/compiled-files.ts`). */
function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 8);
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
  // An `import()` would load the loader of modules first.
  "node:v8": ["getHeapSpaceStatistics", "setFlagsFromString"]
    .map((name) => `export const ${name} = (...args) => process.getBuiltinModule("node:v8").${name}(...args);`)
    .join("\n"),
  "node:process": "export default globalThis.process;",
  "node:util":
    'export const stripVTControlCharacters = (text) => process.getBuiltinModule("node:util").stripVTControlCharacters(text);',
};
const LOADED_ALWAYS =
  /\/node_modules\/(commander|docker-modem|dockerode)\/|\/src\/(platform\/sha256|cli\/(program|compiled-files))\.ts$/;

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
