import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSession } from "../../../src/run/open-session.ts";
import { openProject, type ProjectFixture, type ProjectSpec, sh } from "../project-fixture.ts";
import { NPM, npm, TOOL_ZONES } from "./npm-of-this-machine.ts";
import { type RegistryServer, registryServer } from "./registry-server.ts";

/* npm and pip in real cells, with a registry of the test that speaks TLS. */

if (NPM === undefined) console.log("The tests of npm are skipped: npm is not installed on this machine.");

const addresses = ["127.0.0.0/8"];
const limits = { memory: "1g" };

let server: RegistryServer;
const opened: ProjectFixture[] = [];

beforeAll(async () => {
  server = await registryServer();
});
afterAll(async () => {
  for (const project of opened) await project[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

async function open(spec: ProjectSpec): Promise<ProjectFixture> {
  const project = await openProject(
    { policy: "default", ...spec },
    {
      engineEnv: {
        ...process.env,
        npm_config_registry: `https://npm.example:${server.port}/base/`,
        PIP_INDEX_URL: `https://pypi.example:${server.port}/base/simple/`,
        PIP_EXTRA_INDEX_URL: "",
        PIP_CONFIG_FILE: "/dev/null",
      },
      networkHost: {
        resolveName: async () => ["127.0.0.1"],
        trustedRoots: async () => [server.identity.cert],
      },
    },
  );
  opened.push(project);
  return project;
}

async function openedSession({ corral }: ProjectFixture) {
  const worker = corral.project.workers.get("w");
  if (worker === undefined) throw new Error("the project has no worker w");
  const session = await openSession({ worker, signal: new AbortController().signal }, corral.environment);
  if (!session.ok) throw new Error(JSON.stringify(session.violations));
  return session;
}

function lockOf(entry: Record<string, unknown>): string {
  const root = { name: "app", version: "1.0.0", dependencies: { "@acme/demo": "1.0.0" } };
  const packages = { "": root, "node_modules/@acme/demo": { version: "1.0.0", ...entry } };
  return JSON.stringify({ name: "app", version: "1.0.0", lockfileVersion: 3, requires: true, packages });
}

const MANIFEST = JSON.stringify({ name: "app", version: "1.0.0", dependencies: { "@acme/demo": "1.0.0" } });

describe.skipIf(NPM === undefined)("npm in a cell", () => {
  const zones = ["app", "npm", "nodejs"].map((name) => ({ name }));
  const ci = `cp /app/*.json /tmp; cd /tmp; ${npm("ci", "--cache", "/tmp/cache")} 2>&1 | tail -9; cat node_modules/@acme/demo/package.json`;
  const network = { packages: [{ kind: "npm", addresses }] };
  const project = (lock: string, script = ci, lockfiles: string[] | null = ["app/package-lock.json"]) => {
    const bounds = lockfiles === null ? network : { ...network, lockfiles };
    return open({
      workers: { w: { image: "corral/node", command: sh(script), limits, sandbox: { zones, network: bounds } } },
      files: { "app/package.json": MANIFEST, "app/package-lock.json": lock },
      sandbox: { zones: { app: { path: "./app" }, ...TOOL_ZONES }, network, limits },
    });
  };

  it("installs by the preset, and by a lock file with and without addresses", async () => {
    const lock = lockOf({ integrity: server.integrity });
    const tarball = `https://npm.example:${server.port}/base/@acme/demo/-/demo-1.0.0.tgz`;
    const magic = "https://registry.npmjs.org/@acme/demo/-/demo-1.0.0.tgz";
    const [index, file] = ["GET /base/@acme%2fdemo", "GET /base/@acme/demo/-/demo-1.0.0.tgz"];
    for (const [text, lockfiles, requests] of [
      [lock, null, [index, file]],
      [lock, ["app/package-lock.json"], [index, file]],
      // npm does not ask for the index if the lock file has the address.
      [lockOf({ integrity: server.integrity, resolved: tarball }), ["app/package-lock.json"], [file]],
      [lockOf({ integrity: server.integrity, resolved: magic }), ["app/package-lock.json"], [file]],
    ] as const) {
      const before = server.requests.length;
      const result = await (await project(text, ci, lockfiles === null ? null : [...lockfiles])).run("w");
      expect(result.stdout, JSON.stringify(result.violations)).toContain('"name":"@acme/demo"');
      expect(result.network?.denied).toEqual([]);
      expect(server.requests.slice(before)).toEqual(requests);
    }
  });

  it("fetches nothing but what the lock file names, and sends nothing", async () => {
    const url = `http://npm.example:${server.port}`;
    const curl = (path: string, ...args: string[]) => `curl -s ${args.join(" ")} ${url}${path}`;
    const script = [
      curl("/base/other"),
      curl("/base/@acme/demo/-/demo-1.0.1.tgz"),
      curl("/base/@acme/demo/-/demo-1.0.0.tgz", "-X", "POST", "-d", "canary"),
      curl("/base/-/npm/v1/security/audits/quick", "-X", "POST", "-d", "canary"),
      curl("/base/@acme/demo/-/demo-1.0.0.tgz?canary"),
      curl("/outside"),
    ].join("; echo; ");
    const before = server.requests.length;
    const result = await (await project(lockOf({ integrity: server.integrity }), script)).run("w");
    expect(server.requests.slice(before)).toEqual([]);
    expect(result.network?.denied.map(({ reason }) => reason).sort()).toEqual(["method", "path"]);
    expect(result.network?.denied.reduce((sum, { count }) => sum + count, 0)).toBe(6);
    expect(result.stdout).toContain("POST is not allowed for");
  });

  it("is refused as a whole if the lock file names another host", async () => {
    const resolved = "https://evil.example/@acme/demo/-/demo-1.0.0.tgz";
    const result = await (await project(lockOf({ integrity: server.integrity, resolved }))).run("w");
    expect(result).toMatchObject({ status: "refused", violations: [{ code: "NETWORK_NOT_RESOLVED" }] });
    expect(result.violations[0]?.message).toMatch(
      /app\/package-lock\.json:1: `node_modules\/@acme\/demo` is at evil\.example, which is not a registry/,
    );
  });

  it("cannot have a lock file that a worker may write", async () => {
    const writableApp = { app: { path: "./app", mode: "rw" }, ...TOOL_ZONES };
    const opened = await open({
      workers: {
        w: {
          command: ["true"],
          sandbox: { zones: [{ name: "app", mode: "rw" }], network: { lockfiles: ["app/package-lock.json"] } },
        },
      },
      files: { "app/package-lock.json": lockOf({ integrity: server.integrity }) },
      sandbox: { zones: writableApp, network },
    });
    expect((await opened.run("w")).violations[0]?.message).toContain("policies or lock files; mount it read-only");
  });
});

describe("pip in a cell", () => {
  const install =
    "pip install --break-system-packages --no-cache-dir --target /tmp/lib -r /app/requirements.txt 2>&1 | tail -9; PYTHONPATH=/tmp/lib python3 -c 'import demo; print(demo.word)'";
  const network = { packages: [{ kind: "pypi", addresses }] };
  const project = (requirements: string, lockfiles: string[]) =>
    open({
      workers: {
        w: {
          image: "corral/python",
          command: sh(install),
          sandbox: { zones: [{ name: "app" }], network: { ...network, ...(lockfiles.length > 0 && { lockfiles }) } },
        },
      },
      files: { "app/requirements.txt": requirements },
      sandbox: { zones: { app: { path: "./app" } }, network },
    });

  it("installs by the preset, and by requirements with hashes, from an index that names https", async () => {
    const requests = ["GET /base/simple/demo/", "GET /base/packages/demo-1.0-py3-none-any.whl"];
    for (const [text, lockfiles] of [
      ["demo==1.0\n", []],
      [`demo==1.0 --hash=sha256:${server.wheelDigest}\n`, ["app/requirements.txt"]],
    ] as const) {
      const before = server.requests.length;
      const result = await (await project(text, [...lockfiles])).run("w");
      expect(result.stdout, JSON.stringify([result.network, result.violations, result.stderr])).toContain(
        "hello from a wheel",
      );
      expect(server.requests.slice(before)).toEqual(requests);
    }
  });
});

describe("a command of a session", () => {
  it("has the registries that it names and the hosts that it names, and is refused one that the worker has not", async () => {
    const network = {
      packages: [
        { kind: "npm", addresses },
        { kind: "pypi", addresses },
      ],
    };
    const handy = { shell_rules: { default: "pre_approved" } };
    const project = await open({
      workers: { w: { image: "corral/python", command: ["true"], sandbox: { network }, ...handy } },
      sandbox: { network },
    });
    await using opened = await openedSession(project);
    const { session } = opened;
    const [npmHost, pypiHost] = [`npm.example:${server.port}`, `pypi.example:${server.port}`];
    const ask = (url: string) => `curl -s -o /dev/null -w '%{http_code} ' http://${url}`;
    const command = `${ask(`${npmHost}/base/@acme%2fdemo`)}; ${ask(`${pypiHost}/base/simple/demo/`)}`;
    const said = async (given: object) => {
      const answer = await session.runTool("exec", { command, ...given }, new AbortController().signal);
      return answer.ok ? answer.text.trim() : answer.code;
    };
    expect([
      await said({}),
      await said({ packages: ["pypi"] }),
      await said({ packages: ["npm"] }),
      await said({ packages: ["pypi"], network: [npmHost] }),
      await said({ packages: [], network: [pypiHost] }),
      await said({ packages: [] }),
      await said({ packages: ["crates"] }),
    ]).toEqual(["200 200", "403 200", "200 403", "200 200", "403 200", "403 403", "BAD_NETWORK"]);
  });
});

describe("a file that is not the one of the lock file", () => {
  it("does not reach the cell whole, and is reported", async () => {
    server.spoil();
    const network = { packages: [{ kind: "pypi", addresses }] };
    const url = `http://pypi.example:${server.port}/base/packages/demo-1.0-py3-none-any.whl`;
    const project = await open({
      workers: {
        w: {
          command: sh(`curl -s -w "%{http_code}" ${url}`),
          sandbox: { network: { ...network, lockfiles: ["requirements.txt"] } },
        },
      },
      files: { "requirements.txt": `demo==1.0 --hash=sha256:${server.wheelDigest}\n` },
      sandbox: { network },
    });
    const result = await project.run("w");
    expect(result.stdout).toMatch(/The file is another one than the lock file names\.\n?502$/);
    expect(result.stdout).not.toContain("PK");
    expect(result.network?.denied).toMatchObject([{ to: `pypi.example:${server.port}`, reason: "digest", count: 1 }]);
  });
});
