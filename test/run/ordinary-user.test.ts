import { execFile } from "node:child_process";
import { once } from "node:events";
import { chown, cp, mkdtemp, realpath, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/index.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import { nodeIn, OTHER } from "../other-user.ts";
import { sh, writable, writeProject } from "./project-fixture.ts";

const ROOT = join(import.meta.dirname, "../..");

const PROXIED = "curl -s --noproxy '' -x http://127.88.0.1:3128";

let base: string;
let node: string;
let site: Server;

beforeAll(async () => {
  site = createServer((_, answer) => answer.end("hello\n")).listen(0, "127.0.0.1");
  await once(site, "listening");
  const to = `127.0.0.1:${(site.address() as AddressInfo).port}`;
  const network = { allow: [{ to, addresses: ["127.0.0.1/32"] }], dynamic: { within: ["*.granted.example:443"] } };
  base = await mkdtemp(join(tmpdir(), "cr-"));
  // The built package, and the one other that it loads, where this user can reach them.
  node = nodeIn(base);
  for (const part of ["package.json", "dist", "policies", "node_modules/zod"])
    await cp(join(ROOT, part), join(base, "c", part), { recursive: true });
  await writeFile(join(base, "run.mjs"), RUN);
  writeProject(join(base, "p"), {
    workers: {
      boss: {
        command: sh("id -u; cat /docs/private; echo mine > /out/boss; corral-call kid --attach /docs/private"),
        calls: ["kid"],
        sandbox: { zones: [writable("out"), { name: "docs" }] },
      },
      kid: {
        command: sh("id -u; cat /attachments/private; echo mine > /out/kid"),
        sandbox: { zones: [writable("out")] },
      },
      roots: { command: sh("echo x > /roots/x"), sandbox: { zones: [writable("roots")] } },
      reaches: {
        command: sh(
          `id -u; ${PROXIED} http://${to}/; ${PROXIED} -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:1/
          curl -s --unix-socket $CORRAL_SOCKET -d '{"host":"a.granted.example:443"}' http://corral/v1/access >&2
          grep granted /etc/hosts; bash -c ": < /dev/tcp/127.88.1.1/443" && echo listens`,
        ),
        sandbox: { network },
      },
      others: { command: sh("echo x > /others/x"), sandbox: { zones: [writable("others")] } },
    },
    zones: { out: "rw", docs: "ro", roots: "rw", others: "rw" },
    files: { "docs/private": "private\n" },
    sandbox: { network },
    policy: "default",
    yaml: {
      approval: { rules: [{ operation: "grant_network", hosts: ["*.granted.example:443"], decide: "approve" }] },
    },
  });
  await giveTo(OTHER, join(base, "p"), join(base, "p/out"), join(base, "p/docs"), join(base, "p/docs/private"), base);
  await chown(join(base, "p/roots"), 0, 0);
});

afterAll(async () => {
  site.close();
  await rm(base, { recursive: true, force: true });
});

async function giveTo(uid: number, ...paths: string[]): Promise<void> {
  for (const path of paths) await chown(path, uid, uid);
}

async function runAsUser(worker: string, driver = "auto") {
  const { socketPath } = await connect(process.env);
  if (socketPath === null) throw new Error("an Engine over TCP has no group");
  const { gid } = await stat(await realpath(socketPath));
  const line = [
    `--reuid=${OTHER}`,
    `--regid=${OTHER}`,
    `--groups=${gid}`,
    "env",
    "-i",
    `HOME=${base}`,
    `CORRAL_DRIVER=${driver}`,
    `NODE_COMPILE_CACHE=${join(base, "compiled")}`,
    `DOCKER_HOST=unix://${socketPath}`,
    `PATH=${base}:/usr/bin:/bin`,
    ...[node, join(base, "run.mjs"), join(base, "p"), join(base, "s"), worker],
  ];
  const { stdout } = await promisify(execFile)("setpriv", line);
  return JSON.parse(stdout) as RunResult;
}

const RUN = `
  import { openProject } from "./c/dist/index.js";
  const [, , dir, stateDir, worker] = process.argv;
  await using project = await openProject(dir, { env: process.env, stateDir });
  console.log(JSON.stringify(await project.run(worker)));
`;

describe("an ordinary user in the Engine's group", () => {
  it("runs workers as itself: they read its private files, and what they write is its own", async () => {
    const result = await runAsUser("boss");
    expect(result).toMatchObject({ status: "succeeded", stdout: `${OTHER}\nprivate\n${OTHER}\nprivate\n` });
    for (const name of ["boss", "kid"]) {
      const { uid, gid } = await stat(join(base, "p/out", name));
      expect([uid, gid]).toEqual([OTHER, OTHER]);
    }
    expect((await stat(join(base, "s"))).uid).toBe(OTHER);
    expect((await stat(join(base, "s"))).mode & 0o777).toBe(0o700);
  });

  it.each(["engine", "bwrap"])(
    "has the network of an allow list, and hosts that are granted while it runs (%s)",
    async (driver) => {
      const result = await runAsUser("reaches", driver);
      const lines = [65532, "hello", 403, "127.88.1.1\ta.granted.example", "listens"];
      expect(result, JSON.stringify(result)).toMatchObject({ status: "succeeded", stdout: `${lines.join("\n")}\n` });
      expect(result?.enforcement?.driver).toBe(driver);
      expect(result?.network).toMatchObject({ allowed: [{ connections: 1 }] });
      expect(result?.enforcement?.actual.network).toBe("loopback only, 0 hosts and a proxy through Corral");
    },
  );

  it.each(["roots", "others"])("cannot have a worker write what is not its own (%s)", async (whose) => {
    const result = await runAsUser(whose);
    expect(result).toMatchObject({ status: "refused", violations: [{ code: "USER_NOT_ALLOWED" }] });
  });
});
