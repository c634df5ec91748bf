import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, sh } from "../cli/cli-project.ts";
import { servedProject } from "../serve/served-project.ts";
import { startService, type TestService } from "../serve/service-client.ts";

const CLIENT = join(import.meta.dirname, "../../python");
/** Debian's, before one of the user. */
const PYTHON = ["/usr/bin/python3", "python3"].find((path) => objectionTo(path) === null);
const TESTS = globSync("tests/test_*.py", { cwd: CLIENT }).map((path) => basename(path, ".py"));

function objectionTo(python: string): string | null {
  const { status } = spawnSync(python, ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]);
  return status === 0 ? null : `${python} is missing, or is older than 3.11`;
}

if (PYTHON === undefined)
  process.stderr.write("the Python client is not tested: there is no python3 of 3.11 or newer\n");

describe.skipIf(PYTHON === undefined)("the Python client", () => {
  let projects: CliProject[] = [];
  let services: TestService[] = [];
  let env: Record<string, string> = {};

  beforeAll(async () => {
    projects = await Promise.all([servedProject(), servedProject()]);
    const [project, other] = projects as [CliProject, CliProject];
    await addWorkers(project);
    await project.corral(["map", "--fleet", "all"]);
    const listed = await project.corral(["fleet", "ls", "--json"]);
    const [{ id: fleet }] = JSON.parse(listed.stdout).fleets;
    const created = await project.corral(["serve", "token", "create", "--name", "reader", "--role", "read", "--json"]);
    const token = await project.corral(["serve", "token", "create", "--name", "python", "--role", "admin", "--json"]);
    const socket = join(other.stateDir, "python.sock");
    services = await Promise.all([
      startService(project, { token: JSON.parse(token.stdout).token }),
      startService(other, { socket }),
    ]);
    const [service] = services as [TestService];
    const openapi = join(project.stateDir, "openapi.json");
    await writeFile(openapi, (await service.ask("GET", "/openapi.json")).text);
    env = {
      CORRAL_TEST_URL: `http://127.0.0.1:${service.port}`,
      CORRAL_TEST_TOKEN: service.token,
      CORRAL_TEST_READER: JSON.parse(created.stdout).token,
      CORRAL_TEST_SOCKET: socket,
      CORRAL_TEST_OPENAPI: openapi,
      CORRAL_TEST_FLEET: fleet,
    };
  });
  afterAll(async () => {
    for (const service of services) await service[Symbol.asyncDispose]();
    for (const project of projects) await project[Symbol.asyncDispose]();
  });

  it.each(TESTS)("passes %s", async (name) => {
    const { status, output } = await python(["-W", "error::ResourceWarning", "-m", "unittest", `tests.${name}`], env);
    expect(status, output).toBe(0);
    expect(output).toMatch(/^Ran [1-9]\d* tests? in/m);
    expect(output).not.toContain("skipped");
  });
});

/** Its output, both streams together. */
async function python(args: readonly string[], more: Readonly<Record<string, string>>) {
  const env = { ...process.env, ...more, PYTHONPATH: join(CLIENT, "src"), PYTHONDONTWRITEBYTECODE: "1" };
  const child = spawn(PYTHON ?? "", args, { cwd: CLIENT, env, stdio: ["ignore", "pipe", "pipe"] });
  const [[status], ...streams] = await Promise.all([once(child, "close"), text(child.stdout), text(child.stderr)]);
  return { status: status as number | null, output: streams.join("") };
}

async function addWorkers({ dir }: CliProject): Promise<void> {
  const commands = {
    ticks: sh("i=0; while [ $i -lt 20 ]; do echo tick $i; sleep 0.05; i=$((i+1)); done"),
    picky: sh('given=$(cat); echo "$given"; case "$given" in *\'"fail":true\'*) exit 4;; esac'),
  };
  const workers = {
    ...Object.fromEntries(Object.entries(commands).map(([name, command]) => [name, { command }])),
    // Something new each time: what is as it was is not asked about.
    asks: { command: sh("(echo asked; date +%N) > /out/asked.txt"), sandbox: { inherit: true } },
    same: { command: sh("echo same > /out/$0.txt"), arguments: true, sandbox: { inherit: true } },
    proposes: { command: sh("(echo asked; date +%N) > /out/$0.txt"), arguments: true, sandbox: { inherit: true } },
  };
  for (const [name, worker] of Object.entries(workers)) {
    const about = JSON.stringify({ image: "corral/base", ...worker });
    await writeFile(join(dir, `workers/${name}.worker`), `---\n${about}\n---\n`);
  }
}
