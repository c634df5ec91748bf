import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { RUN_LABEL, readLabels } from "../../../src/isolation/port/labels.ts";
import { readSealKey } from "../../../src/state/owner.ts";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../../..");
const NAME = `corral-compose-${process.pid}`;
const TAG = `corral-test/service-${process.pid}`;
/** One that is there already can be named. */
const POSTGRES = process.env.CORRAL_TEST_POSTGRES ?? `corral-test/postgres-${process.pid}`;
const PORT = 20_000 + (process.pid % 10_000);
const TOKEN = `corral_${randomBytes(32).toString("hex")}`;

/** Compose as a program of its own, or as a part of the Engine's client. */
const COMPOSE = [["docker-compose"], ["docker", "compose"]].find(
  ([program = "", ...args]) => spawnSync(program, [...args, "version"]).status === 0,
);

interface Service {
  readonly command?: readonly string[];
  readonly ports?: readonly unknown[];
}

let project: CliProject;
let env: NodeJS.ProcessEnv;
const compose = async (...args: string[]): Promise<string> => {
  const [program = "", ...first] = COMPOSE ?? [];
  const file = ["--file", join(ROOT, "compose.yaml"), "--project-name", NAME];
  const { stdout } = await run(program, [...first, ...file, ...args], { env, timeout: 120_000 });
  return stdout.trim();
};
const ask = async (path: string, body?: unknown) => {
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(`http://127.0.0.1:${PORT}${path}`, { headers, ...sent });
  // biome-ignore lint/suspicious/noExplicitAny: a test says by what it expects what the answer is.
  return { status: answer.status, json: (await answer.json()) as any };
};
const healthy = async (): Promise<void> => {
  // Compose takes as long for one look as the service for its start.
  const id = await compose("ps", "-q", "corral");
  const health = ["inspect", "-f", "{{.State.Health.Status}}", id];
  for (let look = 0; look < 120; look += 1) {
    if ((await run("docker", health)).stdout.trim() === "healthy") return;
    await pause(500);
  }
  throw new Error(`the service is not healthy:\n${await compose("logs", "corral")}`);
};

/** The name of a container, stopped or not, that this state directory made; null for another's, and for one that is gone. */
const ownedBy = async (key: Buffer, id: string): Promise<string | null> => {
  const inspected = await run("docker", ["inspect", "-f", "{{.Name}} {{json .Config.Labels}}", id]).catch(() => null);
  const [, name = "", labels = "{}"] = /^\/(\S+) (.*)/.exec(inspected?.stdout ?? "") ?? [];
  return readLabels(key, "container", name, JSON.parse(labels)) === null ? null : name;
};

it.skipIf(COMPOSE === undefined)(
  "compose.yaml is read by Compose, and lets nothing but this machine reach its service",
  async () => {
    const [program = "", ...first] = COMPOSE ?? [];
    const place = { ...process.env, CORRAL_PROJECT: "/p", CORRAL_PORT: "7421", CORRAL_TOKEN_FILE: "/t" };
    const config = [...first, "--file", join(ROOT, "compose.yaml"), "config"];
    const { stdout } = await run(program, config, { env: place });
    const { services, secrets } = parse(stdout) as {
      services: Record<string, Service>;
      secrets: Record<string, unknown>;
    };
    expect(Object.keys(services).toSorted()).toEqual(["corral", "machine-grants", "machine-role", "postgres", "work"]);
    expect(secrets).toMatchObject({ "corral-token": { file: "/t" } });
    expect(services.corral?.command).toContain("/run/secrets/corral-token");
    const published = Object.values(services).flatMap(({ ports = [] }) => ports);
    expect(published).toHaveLength(1);
    expect(JSON.stringify(published)).toMatch(/127\.0\.0\.1/);
  },
);

// The image alone takes half a minute.
describe.runIf(COMPOSE !== undefined && AT_LENGTH)("compose.yaml (CORRAL_LONG=1)", () => {
  beforeAll(async () => {
    project = await cliProject({
      yaml: {
        version: 1,
        sandbox: { paths: { docs: { root: "docs", mode: "ro" }, out: { root: "out", mode: "rw" } } },
      },
      workers: {
        copy: {
          image: "corral/base",
          command: sh("cp /docs/a.txt /out/b.txt; cat /out/b.txt"),
          sandbox: { inherit: true },
        },
        sent: { image: "corral/base", command: sh("cat /attachments/sent.txt") },
        brief: { image: "corral/base", command: sh("cat; sleep 0.5") },
        read: { image: "corral/base", command: sh("cat /docs/a.txt"), sandbox: { allow_read: ["/docs"] } },
      },
      files: {
        "docs/a.txt": "a document\n",
        token: `${TOKEN}\n`,
        "postgres-password": "pg secret\n",
        "machine-password": "machine's $secret\n",
      },
      folders: ["out"],
    });
    await run("chmod", ["600", join(project.dir, "token")]);
    const image = ["scripts/service-image.ts", "--base", "corral/node", "--tag", TAG];
    await run(process.execPath, image, { cwd: ROOT, timeout: 200_000 });
    env = {
      ...process.env,
      CORRAL_IMAGE: TAG,
      CORRAL_PROJECT: project.dir,
      CORRAL_STATE: project.stateDir,
      CORRAL_PORT: String(PORT),
      CORRAL_TOKEN_FILE: join(project.dir, "token"),
      POSTGRES_IMAGE: POSTGRES,
      POSTGRES_PASSWORD_FILE: join(project.dir, "postgres-password"),
      MACHINE_PASSWORD_FILE: join(project.dir, "machine-password"),
      CORRAL_WORK_STATE: `${project.stateDir}-work`,
      CORRAL_FILES: `${project.stateDir}-files`,
      // The service alone: no registry may be reachable here, and making the image of PostgreSQL takes minutes.
      CORRAL_QUEUE: "",
    };
    await compose("up", "-d", "--no-deps", "corral");
    await healthy();
  }, 300_000);
  afterAll(async () => {
    await compose("down", "--volumes").catch(() => {});
    await run("docker", ["image", "rm", TAG]).catch(() => {});
    if (process.env.CORRAL_TEST_POSTGRES === undefined) await run("docker", ["image", "rm", POSTGRES]).catch(() => {});
    for (const place of ["work", "files"]) await rm(`${project?.stateDir}-${place}`, { recursive: true, force: true });
    await project?.[Symbol.asyncDispose]();
  }, 120_000);

  it("runs a worker in a cell of the host's Engine, on the files of the host, and asks about its changes", async () => {
    const { json } = await ask("/v1/runs", { worker: "copy" });
    const waiting = async () => (await ask("/v1/approvals")).json.approvals;
    await expect.poll(waiting, { interval: 200, timeout: 30_000 }).toMatchObject([{ question: { worker: "copy" } }]);
    const [{ id, digest }] = await waiting();
    expect((await ask(`/v1/approvals/${id}/decision`, { answer: "once", digest })).status).toBe(200);
    const { json: result } = await ask(`/v1/runs/${json.run}/result?wait=30`);
    expect(result).toMatchObject({ status: "succeeded", stdout: "a document\n", changes: [{ outcome: "applied" }] });
    expect((await run("cat", [join(project.dir, "out/b.txt")])).stdout).toBe("a document\n");
  }, 60_000);

  it("mounts what a client sends", async () => {
    const form = new FormData();
    form.set("request", JSON.stringify({ worker: "sent" }));
    form.append("attachment", new Blob(["from a client\n"]), "sent.txt");
    const headers = { authorization: `Bearer ${TOKEN}` };
    const sent = await fetch(`http://127.0.0.1:${PORT}/v1/runs`, { method: "POST", headers, body: form });
    const { run: id } = (await sent.json()) as { run: string };
    const { json } = await ask(`/v1/runs/${id}/result?wait=30`);
    expect(json).toMatchObject({ status: "succeeded", stdout: "from a client\n" });
  }, 60_000);

  it("prints no token, and takes that of the secret alone", async () => {
    expect(await compose("logs", "corral")).not.toMatch(/corral_[\w-]{20}/);
    const stranger = await fetch(`http://127.0.0.1:${PORT}/v1/runs`, {
      headers: { authorization: "Bearer corral_no" },
    });
    expect(stranger.status).toBe(401);
  });

  it.runIf(AT_LENGTH)(
    "continues a fleet in a new container after the first was killed, each item once",
    async () => {
      const items = Array.from({ length: 8 }, (_, index) => ({ index }));
      const order = { worker: "brief", items, template: { input: { index: "{index}" } }, concurrency: 2, cache: false };
      const { fleet } = (await ask("/v1/fleets", order)).json;
      const killed = await compose("ps", "-q", "corral");
      await run("docker", ["kill", "--signal", "KILL", killed]);
      await compose("up", "-d", "--no-deps", "--force-recreate", "corral");
      expect(await compose("ps", "-q", "corral")).not.toBe(killed);
      await healthy();
      const counts = async () => (await ask(`/v1/fleets/${fleet}`)).json.counts;
      await expect.poll(counts, { interval: 500, timeout: 60_000 }).toMatchObject({ total: 8, done: 8, failed: 0 });
    },
    150_000,
  );

  // Its image is made of Debian's packages, which takes minutes; elsewhere it comes from a registry.
  it("starts it all: two machines with a role of their own run the items of an order", async () => {
    const folder = join(import.meta.dirname, "postgres");
    if (process.env.CORRAL_TEST_POSTGRES === undefined)
      await run("docker", ["build", "--quiet", "--network", "host", "--tag", POSTGRES, folder]);
    delete env.CORRAL_QUEUE;
    await compose("up", "-d", "--scale", "work=2");
    await healthy();
    const machines = async () => (await ask("/v1/machines")).json.machines;
    await expect.poll(machines, { interval: 500, timeout: 60_000 }).toHaveLength(2);
    const order = { worker: "read", items: [{}, {}, {}], cache: false, concurrency: 0, machines: true };
    const { status, json } = await ask("/v1/fleets", order);
    expect(status, JSON.stringify(json)).toBe(202);
    const items = async () => (await ask(`/v1/fleets/${json.fleet}/items`)).json.items;
    await expect
      .poll(items, { interval: 500, timeout: 60_000 })
      .toMatchObject(Array(3).fill({ status: "succeeded", machine: "corral-work" }));
    // The role can do nothing but what a machine does, and the service's is another one.
    const postgres = await compose("ps", "-q", "postgres");
    const psql = async (user: string, password: string, sql: string): Promise<string> => {
      const asked = ["psql", "-h", "127.0.0.1", "-U", user, "-d", "corral", "-tAc", sql];
      const said = await run("docker", ["exec", "-e", `PGPASSWORD=${password}`, postgres, ...asked]).catch(
        ({ stderr }: { stderr: string }) => ({ stdout: stderr }),
      );
      return said.stdout;
    };
    const sql = "SELECT count(*) FROM corral.items";
    expect(await psql("corral_machine", "machine's $secret", sql)).toContain("permission denied");
    expect(await psql("corral_machine", "another", sql)).toContain("password authentication failed");
    expect(await psql("corral", "pg secret", sql)).toBe("3\n");
    // Data stays over a restart, and nothing printed a password.
    await compose("restart", "postgres");
    await expect.poll(() => psql("corral", "pg secret", sql), { timeout: 60_000 }).toBe("3\n");
    expect(await compose("logs")).not.toMatch(/pg secret|\$secret/);
  }, 600_000);

  it("leaves nothing when it is taken down", async () => {
    await compose("down", "--volumes");
    for (const kind of [
      ["ps", "--all"],
      ["volume", "ls"],
      ["network", "ls"],
    ])
      expect(
        (await run("docker", [...kind, "--quiet", "--filter", `label=com.docker.compose.project=${NAME}`])).stdout,
      ).toBe("");
    const key = readSealKey(project.stateDir);
    const ids = (await run("docker", ["ps", "--all", "--quiet", "--filter", `label=${RUN_LABEL}`])).stdout.split(/\s+/);
    const left = await Promise.all(ids.filter(Boolean).map((id) => ownedBy(key, id)));
    expect(left.filter((name) => name !== null)).toEqual([]);
  }, 60_000);
});
