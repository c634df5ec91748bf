import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { stringify } from "yaml";
import { loadProject } from "../../../src/declarations/project.ts";
import { privateRegistries } from "../../../src/run/explain/check.ts";
import { machineWith } from "../../declarations/network/machine-folder.ts";

const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
  "npm.corp.test": ["10.1.2.3"],
  "pypi.corp.test": ["93.184.216.34", "10.1.2.4"],
};

it("names each line that lacks the addresses of a registry that is not public", async () => {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  onTestFinished(() => rm(base, { recursive: true }));
  const dir = join(base, "p");
  const addresses = ["10.0.0.0/8"];
  await mkdir(join(dir, "workers"), { recursive: true });
  await writeFile(
    join(dir, "corral.yaml"),
    stringify({ version: 1, sandbox: { zones: {}, network: { packages: ["npm", "pypi"] } } }),
  );
  const workers = {
    bare: { sandbox: { network: { packages: ["npm"] } } },
    said: { sandbox: { network: { packages: [{ kind: "npm", addresses }] } } },
    public: { sandbox: { network: { packages: ["pypi"] } } },
    prepared: { environment: { npm: ["cowsay"] } },
    placed: { environment: { npm: ["cowsay"], addresses } },
  };
  for (const [name, worker] of Object.entries(workers))
    await writeFile(join(dir, `workers/${name}.worker`), `---\n${stringify({ command: ["true"], ...worker })}---\n`);
  const { env, root } = await machineWith({
    "~/.npmrc": "registry=https://npm.corp.test/\n",
    "~/.config/pip/pip.conf": "[global]\nindex-url = https://pypi.corp.test/simple/\n",
  });
  const project = await loadProject(dir, env, root);
  const resolveName = async (host: string): Promise<readonly string[]> => ADDRESSES[host] ?? [];
  const isPlace = "the registry of npm is npm.corp.test at 10.1.2.3/32, which is not public, so it is not reached.";
  const line = "Write `packages: [{ kind: npm, addresses: [10.1.2.3/32] }]`.";
  expect((await privateRegistries(project, { resolveName })).map((text) => text.replace(`${dir}/`, ""))).toEqual([
    `corral.yaml: sandbox.network: ${isPlace} ${line}`,
    `workers/bare.worker: sandbox.network: ${isPlace} ${line}`,
    `workers/prepared.worker: environment: ${isPlace} Write \`addresses: [10.1.2.3/32]\`.`,
  ]);
  expect(await privateRegistries(project, { resolveName: async () => [] })).toEqual([]);

  // What the project says counts for its workers; an environment is prepared apart.
  const network = { packages: [{ kind: "npm", addresses }, "pypi"] };
  await writeFile(join(dir, "corral.yaml"), stringify({ version: 1, sandbox: { zones: {}, network } }));
  const placed = await loadProject(dir, env, root);
  expect(await privateRegistries(placed, { resolveName })).toEqual([
    expect.stringContaining("workers/prepared.worker: environment: "),
  ]);
});
