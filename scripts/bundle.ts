import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Plugin, rolldown } from "rolldown";

/**
 * What the Engine's client loads for BuildKit's sessions, Engines behind SSH and packing folders. Corral asks for none
 * of these, and they are more than half of what a short run would load.
 */
const LEFT_OUT = new Set(["ssh2", "@grpc/grpc-js", "@grpc/proto-loader", "protobufjs", "tar-fs"]);

/**
 * Bundles the command line with what it uses into a few files: finding and loading hundreds of modules is otherwise a
 * third of a short run. The library stays as the compiler made it.
 */
export async function bundleProgram(root: string): Promise<void> {
  const bundle = await rolldown({
    // What a thread runs is loaded by its name, by whichever file starts it: it must stand beside all others.
    input: {
      corral: join(root, "src/cli/corral.ts"),
      "schema-thread": join(root, "src/declarations/schema/schema-thread.ts"),
    },
    platform: "node",
    cwd: root,
    // As the compiler does for the library: the oldest Node that the package asks for does not read `using`.
    transform: { target: "node22" },
    plugins: [withoutUnused()],
  });
  const dir = join(root, "dist/cli");
  const { output } = await bundle.write({ dir, format: "esm", chunkFileNames: "[name]-[hash].js" });
  await bundle.close();
  const modules = output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
  writeFileSync(join(dir, "THIRD-PARTY.txt"), licencesOf(modules));
}

/** In the place of each such module stands one that says so when it is used, and not before. */
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

/** The licences of all packages that are in the bundle, as they ask. */
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
