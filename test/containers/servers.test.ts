import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openQueue } from "../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../src/fleet/postgres/server.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import { listImages, pullImage, removableImages, removeImages } from "../../src/operations/images.ts";
import { loadedFleet, runAll } from "../fleet/journal/journal-fixture.ts";
import { openProject } from "../run/project-fixture.ts";
import { imageRegistryServer, pgBouncer, postgresServer, type Server, serversImage } from "./servers.ts";

/* Servers as users have them, each in a container that its test starts and removes. */

let image = "";
beforeAll(async () => {
  image = await serversImage((await connect(process.env)).docker);
}, 600_000);

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-servers-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

describe("PgBouncer in front of PostgreSQL", () => {
  it("carries a fleet in transaction mode, once the user of the queue has its settings, and is refused before", async () => {
    await using server = await postgresServer(image);
    const urlOf = ({ port }: Server): string => `postgres://postgres@127.0.0.1:${port}/postgres`;
    {
      await using pooler = await pgBouncer(image, server);
      await expect(connectServer(urlOf(pooler))).rejects.toThrow(/ignores the search_path.*ALTER ROLE/);
      await using admin = await connectServer(urlOf(server));
      for (const setting of ["search_path = pg_catalog", "enable_seqscan = off", "jit = off"])
        await admin.query(`ALTER ROLE postgres SET ${setting}`);
    }
    // Another one: the connections of the first began without the settings.
    await using pooler = await pgBouncer(image, server);
    await using store = await openQueue(urlOf(pooler), join(dir, "state"), "/project");
    const queue = await store.queue(await loadedFleet(store, 20));
    await runAll(queue);
    expect(await queue.counts()).toEqual({ total: 20, queued: 0, running: 0, done: 20, failed: 0, pending: 0 });
  });
});

describe("a registry of images", () => {
  const made: AsyncDisposable[] = [];
  afterEach(async () => {
    for (const one of made.splice(0).toReversed()) await one[Symbol.asyncDispose]();
  });

  it("gives an image by its tag, with its digest, and to a run by that digest alone", async () => {
    await using registry = await imageRegistryServer(image);
    const repository = `127.0.0.1:${registry.port}/team/tool`;
    const first = await openProject({ workers: {} });
    const gate = await readFile(await first.corral.environment.gate());
    await first[Symbol.asyncDispose]();
    await pushed(repository, { "bin/busybox": gate, unique: randomBytes(16) });

    const command = ["/bin/busybox", "echo", "from a registry"];
    const digest = await digestOf(`${repository}:1`);
    const project = await openProject({ workers: { w: { image: { pull: `${repository}:any`, digest }, command } } });
    made.push(project);
    const of = { stateDir: project.stateDir, engineEnv: process.env, project: project.corral.project };
    const states = async () => (await listImages(of)).filter(({ kind }) => kind === "pull").map(({ state }) => state);
    expect(await states()).toEqual(["missing"]);
    expect((await project.run("w")).stdout).toBe("from a registry\n");
    expect(await states()).toEqual(["present"]);
    await removeImages(of, await removableImages(of, [`${repository}:any`]));
    expect(await states()).toEqual(["missing"]);
  });
});

/** The registry asks for no name, and the Engine for a header with one. */
const NOBODY = Buffer.from("{}").toString("base64");

/** Pushes an image of these files with the tag `1`, and keeps none of it on this machine. */
async function pushed(repository: string, files: Readonly<Record<string, Buffer>>): Promise<void> {
  const { docker } = await connect(process.env);
  const archive = pack();
  for (const [name, content] of Object.entries(files)) archive.entry({ name, mode: 0o755 }, content);
  archive.finalize();
  const ended = (stream: NodeJS.ReadableStream): Promise<unknown> =>
    new Promise((resolve, reject) =>
      docker.modem.followProgress(stream, (error, all) => (error ? reject(error) : resolve(all))),
    );
  await ended(await docker.importImage(archive as unknown as NodeJS.ReadableStream, { repo: repository, tag: "1" }));
  const local = docker.getImage(`${repository}:1`);
  await ended(await local.push({ authconfig: { key: NOBODY } }));
  await local.remove({ force: true });
}

/** As a user learns it: by pulling the tag. */
async function digestOf(reference: string): Promise<string> {
  await using project = await openProject({ workers: {} });
  const of = { stateDir: project.stateDir, engineEnv: process.env, project: project.corral.project };
  const { digest } = await pullImage(of, reference, {});
  const { docker } = await connect(process.env);
  await docker.getImage(reference).remove({ force: true });
  return digest ?? "";
}
