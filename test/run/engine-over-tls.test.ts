import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect as connectTo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer, type Server, type TLSSocket } from "node:tls";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { type Certificate, type Certificates, makeCertificates } from "../attacks/egress/certificates.ts";
import { openProject, sh, writable } from "./project-fixture.ts";

let dir: string;
let certificates: Certificates;
let server: Server;
const open = new Set<TLSSocket>();

/** This machine's Engine as `dockerd --tlsverify` has it: at a port, for clients with a certificate of its authority. */
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-tls-"));
  certificates = await makeCertificates(["localhost"]);
  const { socketPath } = await connect(process.env);
  const { authority: ca, good } = certificates;
  server = createServer({ ...good, ca, requestCert: true, rejectUnauthorized: true, allowHalfOpen: true }, (client) => {
    const engine = connectTo({ path: socketPath ?? "", allowHalfOpen: true });
    open.add(client);
    client
      .on("error", () => {})
      .on("close", () => {
        open.delete(client);
        engine.destroy();
      });
    engine.on("error", () => {}).on("close", () => client.destroy());
    client.pipe(engine).pipe(client);
  }).listen(0, "localhost");
  await once(server, "listening");
});

afterAll(async () => {
  server?.close();
  for (const client of open) client.destroy();
  await rm(dir, { recursive: true, force: true });
});

interface Client extends Certificate {
  /** Whose certificate the Engine must have. */
  readonly authority: string;
}

/** The environment of a user who has made a context with Docker's own command. */
async function contextOf(
  name: string,
  { key, cert, authority }: Client,
  host = "localhost",
): Promise<Record<string, string>> {
  const home = join(dir, name);
  await mkdir(home);
  for (const [file, text] of Object.entries({ "ca.pem": authority, "cert.pem": cert, "key.pem": key }))
    await writeFile(join(home, file), text);
  const env = { PATH: process.env.PATH ?? "", HOME: home, DOCKER_CONFIG: join(home, ".docker") };
  const files = ["ca", "cert", "key"].map((kind) => `${kind}=${join(home, `${kind}.pem`)}`);
  const place = server.address();
  if (place === null || typeof place === "string") throw new Error("the server does not listen");
  const endpoint = [`host=tcp://${host}:${place.port}`, ...files].join(",");
  execFileSync("docker", ["context", "create", name, "--docker", endpoint], { env, stdio: "pipe" });
  return env;
}

interface Wrong {
  readonly cert?: "selfSigned";
  readonly authority?: "selfSigned";
  readonly host?: string;
}

describe("an Engine behind TLS, by a context of Docker's", () => {
  it("makes cells, whether DOCKER_CONTEXT or the user's configuration names it", async () => {
    const env = await contextOf("far", { ...certificates.otherName, authority: certificates.authority });
    const workers = {
      w: { command: sh("cat /in/x; echo made > /out/y"), sandbox: { zones: [{ name: "in" }, writable("out")] } },
    };
    for (const how of ["variable", "configuration"]) {
      if (how === "configuration") execFileSync("docker", ["context", "use", "far"], { env, stdio: "pipe" });
      const engineEnv = how === "variable" ? { ...env, DOCKER_CONTEXT: "far" } : env;
      const spec = { workers, zones: { in: "ro", out: "rw" }, files: { "in/x": "over TLS\n" } } as const;
      await using project = await openProject(spec, { engineEnv });
      expect(await connect(engineEnv)).toMatchObject({ endpoint: { source: "context far" }, socketPath: null });
      expect(await project.run("w")).toMatchObject({
        status: "succeeded",
        stdout: "over TLS\n",
        enforcement: { driver: "engine" },
      });
      expect(await project.traces()).toEqual([]);
    }
  });

  it.each([
    [
      "has a certificate that the Engine does not know",
      "wrong-user",
      { cert: "selfSigned" },
      /socket hang up|ECONNRESET/,
    ],
    ["trusts another authority", "wrong-authority", { authority: "selfSigned" }, /self-signed certificate/],
    ["names the Engine otherwise than its certificate", "wrong-name", { host: "127.0.0.1" }, /not match/],
  ] as const)("is refused before anything starts, with what to do, if the user %s", async (_, name, wrong, why) => {
    const { cert, authority, host }: Wrong = wrong;
    const ca = authority === undefined ? certificates.authority : certificates[authority].cert;
    const env = await contextOf(name, { ...certificates[cert ?? "otherName"], authority: ca }, host);
    const { message } = await connect({ ...env, DOCKER_CONTEXT: name }).then(
      () => new Error("it was not refused"),
      (error: Error) => error,
    );
    expect(message).toMatch(why);
    expect(message).toContain(`(from context ${name}): the connection with TLS failed: `);
    expect(message).toContain(`Check ca.pem, cert.pem and key.pem of the context ${name}`);
  });
});
