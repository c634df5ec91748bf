import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../../..");
/** One that is there already can be named. */
const NAMED = process.env.CORRAL_TEST_SERVICE;
const IMAGE = NAMED ?? `corral-test/service-up-${process.pid}`;
const NAME = `up-test-${process.pid}`;
const CONTAINER = `corral-${NAME}`;
const PORT = String(30_000 + (process.pid % 10_000));

let project: CliProject;
let home = "";
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "corral-home-"));
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { docs: { root: "docs", mode: "ro" } } },
    },
    workers: {
      reader: {
        image: "corral/base",
        command: sh("cat /docs/a.txt"),
        shell_rules: { default: "pre_approved" },
        sandbox: { inherit: true },
      },
    },
    files: { "docs/a.txt": "a document\n" },
  });
});
afterAll(async () => {
  await project?.[Symbol.asyncDispose]();
  await rm(home, { recursive: true, force: true });
});

const corral = (args: readonly string[], env: Readonly<Record<string, string>> = {}, stdin = "") =>
  project.built(args, { env: { HOME: home, ...env }, stdin });
/** What an agent does there, by a client. */
const SESSION = [
  "far=$(corral session start reader)",
  "corral session exec $far -- cat /docs/a.txt",
  "corral session put $far a.txt /tmp/a.txt",
  'corral session exec $far -- sh -c "tr a-z A-Z < /tmp/a.txt > /tmp/b.txt"',
  "corral session get $far /tmp/b.txt b.txt",
  "corral session stop $far",
  "cat b.txt",
].join("; ");
const UP = ["up", "--image", IMAGE, "--port", PORT, "--name", NAME];

describe("corral up", () => {
  it("says what is missing, and leaves nothing", async () => {
    const without = await corral(["up", "--image", "corral-test/none-of-this-name", "--name", NAME]);
    expect(without).toMatchObject({ status: 2, stderr: expect.stringContaining("npm run service-image") });
    expect(await corral(UP, { PATH: "/nowhere" })).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("the program docker is not on this machine"),
    });
    expect((await corral(["up", "--project", "docs"])).stderr).toContain("has no corral.yaml");
    expect((await corral(["down", NAME])).stderr).toContain("was not made by `corral up`");
    await expect(run("docker", ["inspect", CONTAINER])).rejects.toThrow(/no such/i);
  });

  it("removes what clients sent to a container that was removed by hand, or says where that is", async () => {
    const file = join(home, ".config/corral/contexts.json");
    const sent = `/var/lib/corral-up/${NAME}.files`;
    const down = async (image: string): Promise<string> => {
      const made = { url: `http://127.0.0.1:${PORT}`, token: "t", container: CONTAINER, image };
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, JSON.stringify({ current: NAME, contexts: { [NAME]: made } }), { mode: 0o600 });
      const { status, stderr } = await corral(["down"]);
      expect([status, JSON.parse(await readFile(file, "utf8"))]).toEqual([0, { contexts: {} }]);
      return stderr;
    };
    await mkdir(join(sent, "one"), { recursive: true });
    expect(await down("corral-test/none-of-this-name")).toContain(`what clients sent in ${sent}`);
    expect(await down("corral/base")).not.toContain(sent);
    await expect(readdir(sent)).rejects.toThrow("ENOENT");
  });
});

// The image alone takes half a minute.
describe.runIf(AT_LENGTH || NAMED !== undefined)("corral up with the image of the service (CORRAL_LONG=1)", () => {
  beforeAll(async () => {
    if (NAMED !== undefined) return;
    const image = ["scripts/service-image.ts", "--base", "corral/node", "--tag", IMAGE];
    await run(process.execPath, image, { cwd: ROOT, timeout: 200_000 });
  }, 300_000);
  afterAll(async () => {
    await run("docker", ["rm", "--force", CONTAINER]).catch(() => {});
    if (NAMED === undefined) await run("docker", ["rmi", IMAGE]);
    for (const end of ["", ".files"]) await rm(`/var/lib/corral-up/${NAME}${end}`, { recursive: true, force: true });
  });

  it("serves the project at its own path, to this user and to a client without an Engine, until `corral down`", async () => {
    const up = await corral(UP);
    expect(up).toMatchObject({ status: 0, stdout: "" });
    const list = JSON.parse((await corral(["context", "ls", "--json"])).stdout);
    expect(list.at(-1)).toEqual({ name: NAME, url: `http://127.0.0.1:${PORT}`, container: CONTAINER, isUsed: true });
    expect(await corral(["run", "reader"], { CORRAL_STATE_DIR: "/dev/null/state" })).toMatchObject({
      status: 0,
      stdout: "a document\n",
    });
    expect((await corral(UP)).stderr).toContain(`there is a context ${NAME}`);

    const { contexts } = JSON.parse(await readFile(join(home, ".config/corral/contexts.json"), "utf8"));
    const { token } = contexts[NAME];
    const inspected = await run("docker", ["inspect", CONTAINER]);
    expect(inspected.stdout + up.stderr).not.toContain(token);

    // Another machine: no Engine, no project, another home, and a network namespace that is not the host's.
    const client = ["run", "--rm", "--interactive", "--network", `container:${CONTAINER}`, "--entrypoint", "sh", IMAGE];
    const login = `read -r token; echo "$token" | corral login http://127.0.0.1:${PORT} 2>/dev/null; corral workers ls; corral run reader; corral runs ls; printf "plain words" > a.txt; corral convert --to text a.txt --out made; cat made/a.txt/text.txt; ${SESSION}`;
    const far = run("docker", [...client, "-c", `cd /tmp; export HOME=/tmp/other; ${login}`]);
    far.child.stdin?.end(`${token}\n`);
    const { stdout } = await far;
    expect(stdout).toMatch(
      /reader +corral\/base[\s\S]*^a document$[\s\S]*succeeded +reader[\s\S]*plain wordsa document\nPLAIN WORDS$/m,
    );

    // A service that was killed leaves what clients sent.
    await run("docker", ["exec", CONTAINER, "sh", "-c", 'echo sent > "$TMPDIR/left"']);
    expect((await corral(["context", "rm", NAME])).stderr).toContain(`corral down ${NAME}`);
    expect(await corral(["down"])).toMatchObject({ status: 0, stdout: "" });
    await expect(run("docker", ["inspect", CONTAINER])).rejects.toThrow(/no such/i);
    expect((await readdir("/var/lib/corral-up")).filter((name) => name.startsWith(NAME))).toEqual([NAME]);
    expect(JSON.parse((await corral(["context", "ls", "--json"])).stdout)).toHaveLength(1);
    await run("docker", ["image", "inspect", IMAGE]);
    expect(await readFile(join(project.dir, "docs/a.txt"), "utf8")).toBe("a document\n");
  }, 200_000);

  it("leaves no container of a service that does not start, and takes no other one for its own", async () => {
    await run("docker", ["create", "--name", CONTAINER, "corral/base", "true"]);
    expect(await corral(UP)).toMatchObject({ status: 125, stderr: expect.stringContaining("already in use") });
    await run("docker", ["inspect", CONTAINER]);
    await run("docker", ["rm", CONTAINER]);
    const wrong = [...UP, "--image", "corral/base"];
    expect(await corral(wrong)).toMatchObject({ status: 125, stdout: "" });
    await expect(run("docker", ["inspect", CONTAINER])).rejects.toThrow(/no such/i);
    await mkdir(join(project.dir, "faulty"));
    await writeFile(join(project.dir, "faulty/corral.yaml"), "version: 1\npolicy: [\n");
    const faulty = await corral([...UP, "--project", "faulty"]);
    expect(faulty.stderr).toMatch(/the service has ended:[\s\S]*corral\.yaml:/);
  }, 200_000);
});
