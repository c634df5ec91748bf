import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Plugin, rolldown } from "rolldown";

/**
 * Packages that the Engine's client loads for BuildKit sessions, Engines behind SSH and packing folders. Corral uses none
 * of these features, and the packages are more than half of what a short run would load.
 */
const LEFT_OUT = new Set(["ssh2", "@grpc/grpc-js", "@grpc/proto-loader", "protobufjs", "tar-fs"]);

/**
 * Bundles the command line and its dependencies into a few files: otherwise a short run spends a third of its time on
 * finding and loading hundreds of modules. The library stays as the compiler made it.
 */
export async function bundleProgram(root: string): Promise<void> {
  const bundle = await rolldown({
    // The file of a thread is started by its name from any of the other files: it must be in the same folder.
    input: {
      corral: join(root, "src/cli/corral.ts"),
      "schema-thread": join(root, "src/declarations/schema/schema-thread.ts"),
    },
    platform: "node",
    cwd: root,
    // The same target as the library's: the oldest Node that the package supports cannot parse `using`.
    transform: { target: "node22" },
    plugins: [withoutUnused()],
  });
  const dir = join(root, "dist/cli");
  const { output } = await bundle.write({ dir, format: "esm", chunkFileNames: "[name]-[hash].js" });
  await bundle.close();
  const modules = output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
  writeFileSync(join(dir, "THIRD-PARTY.txt"), licencesOf(modules));
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
