import { type PackageContents, type RegistryServer, registryServer } from "../packages/registry-server.ts";
import { openProject, type ProjectFixture } from "../project-fixture.ts";

/* Projects whose workers have packages of a registry that the tests run themselves. */

export const ADDRESSES = ["127.0.0.0/8"];

/** The settings of pip and npm of a machine that uses this registry. */
export function settingsFor({ port }: Pick<RegistryServer, "port">): Record<string, string | undefined> {
  return {
    ...process.env,
    npm_config_registry: `https://npm.example:${port}/base/`,
    PIP_INDEX_URL: `https://pypi.example:${port}/base/simple/`,
    PIP_EXTRA_INDEX_URL: "",
    PIP_CONFIG_FILE: "/dev/null",
  };
}

export async function packageProject(
  server: RegistryServer,
  worker: Record<string, unknown>,
  files: Record<string, string>,
  zones: Record<string, "ro" | "rw"> = {},
): Promise<ProjectFixture> {
  return await openProject(
    { workers: { w: worker }, files, zones },
    {
      engineEnv: settingsFor(server),
      networkHost: { resolveName: async () => ["127.0.0.1"], trustedRoots: async () => [server.identity.cert] },
    },
  );
}

/** An npm project that needs the one package of this registry. */
export function npmFiles({ integrity }: Pick<RegistryServer, "integrity">): Record<string, string> {
  const root = { name: "app", version: "1.0.0", dependencies: { "@acme/demo": "1.0.0" } };
  const demo = { version: "1.0.0", integrity, hasInstallScript: true, bin: { demo: "index.js" } };
  const packages = { "": root, "node_modules/@acme/demo": demo };
  return {
    "app/package.json": JSON.stringify(root),
    "app/package-lock.json": JSON.stringify({ ...root, lockfileVersion: 3, requires: true, packages }),
  };
}

/** A registry with one package of npm that runs this script when it is installed. */
export async function hostileRegistry(script: string, files: PackageContents["files"] = {}): Promise<RegistryServer> {
  return await registryServer({
    manifest: { scripts: { install: "sh ./install.sh" } },
    files: { "install.sh": script, ...files },
  });
}
