import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { type Agent, createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connect, engineUnavailable, resolveEndpoint } from "../../../src/isolation/engine/open.ts";
import { EngineUnavailableError } from "../../../src/isolation/port/engine.ts";

/** What is read of an Engine when it is opened. */
const INFO = { DockerRootDir: "/var/lib/docker", ServerVersion: "28.0.0", Driver: "overlay2" };

let dir: string;
let engine: Server;
let socket: string;

/** An Engine that answers its ping, and says where its data is. */
const answer: RequestListener = (request, response) =>
  response.end(request.url?.endsWith("/info") ? JSON.stringify(INFO) : "OK");

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-connect-"));
  socket = join(dir, "engine.sock");
  engine = createServer(answer);
  await new Promise<void>((listening) => engine.listen(socket, listening));
});

afterEach(async () => {
  engine.closeAllConnections();
  engine.close();
  await rm(dir, { recursive: true });
});

/** A docker client configuration with one context, as `docker context create` and `docker context use` write it. */
async function writeContext(name: string, host: string, { current = false, tls = false } = {}): Promise<void> {
  const id = createHash("sha256").update(name).digest("hex");
  await mkdir(join(dir, "contexts/meta", id), { recursive: true });
  const meta = { Name: name, Metadata: {}, Endpoints: { docker: { Host: host, SkipTLSVerify: false } } };
  await writeFile(join(dir, "contexts/meta", id, "meta.json"), JSON.stringify(meta));
  if (current) await writeFile(join(dir, "config.json"), JSON.stringify({ currentContext: name }));
  if (!tls) return;
  await mkdir(join(dir, "contexts/tls", id, "docker"), { recursive: true });
  await writeFile(join(dir, "contexts/tls", id, "docker/ca.pem"), "the authority");
}

async function failure(env: Record<string, string>): Promise<EngineUnavailableError> {
  const error = await connect(env).then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(EngineUnavailableError);
  return error as EngineUnavailableError;
}

describe("connect", () => {
  it("follows DOCKER_HOST to a Unix socket", async () => {
    const connection = await connect({ DOCKER_HOST: `unix://${socket}`, HOME: dir });
    expect(connection).toMatchObject({
      endpoint: { url: `unix://${socket}`, source: "DOCKER_HOST" },
      socketPath: socket,
    });
  });

  it("prints nothing of its connections, because the client library prints them at each call", async () => {
    const { docker } = await connect({ DOCKER_HOST: `unix://${socket}` });
    const { agent } = docker.modem as unknown as { agent: Agent };
    expect(Object.keys(agent.freeSockets)).toHaveLength(1);
    expect(inspect(agent, { showHidden: true, depth: null })).toBe("Agent");
  });

  it("lets Node derive no name for TLS of a plain connection: that takes longer than the call", async () => {
    const { docker } = await connect({ DOCKER_HOST: `unix://${socket}` });
    type Inside = { readonly options: object; addRequest(request: unknown, options: object): void };
    const { agent } = docker.modem as unknown as { agent: Inside };
    const names: unknown[] = [];
    const add = agent.addRequest.bind(agent);
    agent.addRequest = (request, options) => {
      add(request, options);
      names.push(({ ...options, ...agent.options } as { servername?: string }).servername);
    };
    await docker.ping();
    expect(names).toEqual([""]);
  });

  it("follows DOCKER_HOST over TCP, with or without its scheme", async () => {
    const remote = createServer(answer);
    await new Promise<void>((listening) => remote.listen(0, "127.0.0.1", listening));
    const { port } = remote.address() as AddressInfo;
    for (const host of [`tcp://127.0.0.1:${port}`, `127.0.0.1:${port}`]) {
      const connection = await connect({ DOCKER_HOST: host });
      expect(connection).toMatchObject({ endpoint: { url: `tcp://127.0.0.1:${port}` }, socketPath: null });
    }
    remote.closeAllConnections();
    remote.close();
  });

  it("follows the client's current context, and DOCKER_CONTEXT before it", async () => {
    await writeContext("mine", `unix://${socket}`, { current: true });
    expect((await connect({ DOCKER_CONFIG: dir })).endpoint.source).toBe("context mine");
    await writeContext("other", "unix:///nowhere/at/all");
    expect((await failure({ DOCKER_CONFIG: dir, DOCKER_CONTEXT: "other" })).source).toBe("context other");
  });

  it("prefers DOCKER_HOST over a context", async () => {
    await writeContext("mine", "unix:///nowhere/at/all", { current: true });
    expect((await connect({ DOCKER_CONFIG: dir, DOCKER_HOST: `unix://${socket}` })).endpoint.source).toBe(
      "DOCKER_HOST",
    );
  });

  it("says which socket is missing, who named it, and what to do", async () => {
    const error = await failure({ DOCKER_HOST: `unix://${dir}/none.sock` });
    expect(error.reason).toBe("no_socket");
    expect(error.message).toContain(`unix://${dir}/none.sock (from DOCKER_HOST)`);
    expect(error.message).toContain("apt-get install docker.io");
  });

  it("tells a place where nobody listens from a missing socket", async () => {
    const closed = createServer();
    await new Promise<void>((listening) => closed.listen(0, "127.0.0.1", listening));
    const { port } = closed.address() as AddressInfo;
    await new Promise((gone) => closed.close(gone));
    expect((await failure({ DOCKER_HOST: `tcp://127.0.0.1:${port}` })).reason).toBe("refused");
  });

  it("names the docker group where permission is missing", () => {
    const cause = Object.assign(new Error("connect EACCES"), { code: "EACCES" });
    const error = engineUnavailable({ url: "unix:///run/docker.sock", source: "default" }, cause);
    expect(error.reason).toBe("permission");
    expect(error.message).toContain("group docker");
  });

  it("refuses endpoints that it cannot run cells on, before it connects", async () => {
    for (const host of ["ssh://somewhere", "npipe:////./pipe/docker_engine", "http://x", "tcp://"]) {
      const error = await failure({ DOCKER_HOST: host });
      expect(error.reason).toBe("setting");
      expect(error.message).toContain(host);
    }
  });

  it.each([
    ["Podman", { BuildahVersion: "1.28.2" }, "Podman"],
    ["Podman 5", { BuildahVersion: "1.39.3", ServerVersion: "5.4.2", SecurityOptions: [] }, "Podman 5.4.2"],
    ["rootless", { SecurityOptions: ["name=seccomp,profile=builtin", "name=rootless"] }, "rootless"],
    ["of other users", { SecurityOptions: ["name=userns"] }, "userns-remap"],
  ])("refuses an Engine that is %s before anything starts, and says what to do", async (_, more, named) => {
    engine.removeAllListeners("request");
    engine.on("request", (_, response) => response.end(JSON.stringify({ ...INFO, ...more })));
    const error = await failure({ DOCKER_HOST: `unix://${socket}` });
    expect(error.reason).toBe("unfit");
    expect(error.message).toContain("The container Engine at");
    expect(error.message).toContain(named);
    expect(error.message).toContain("another Engine with DOCKER_HOST");
    expect(error.message.split("\n")).toHaveLength(1);
  });

  it("says so where a context is named that does not exist", async () => {
    expect((await failure({ DOCKER_CONFIG: dir, DOCKER_CONTEXT: "gone" })).message).toContain('"gone"');
  });
});

describe("resolveEndpoint", () => {
  it("uses the default socket where nothing is said, or the default context is", async () => {
    expect(await resolveEndpoint({ HOME: dir })).toEqual({ url: "unix:///var/run/docker.sock", source: "default" });
    expect(await resolveEndpoint({ HOME: dir, DOCKER_CONTEXT: "default" })).toMatchObject({ source: "default" });
  });

  it("reads the certificates that DOCKER_TLS_VERIFY asks for, and none where nobody asks", async () => {
    for (const name of ["ca.pem", "cert.pem", "key.pem"]) await writeFile(join(dir, name), name);
    const env = { DOCKER_HOST: "tcp://engine.example:2376", DOCKER_CERT_PATH: dir };
    const { tls } = await resolveEndpoint({ ...env, DOCKER_TLS_VERIFY: "1" });
    expect(tls).toEqual({
      ca: Buffer.from("ca.pem"),
      cert: Buffer.from("cert.pem"),
      key: Buffer.from("key.pem"),
      verify: true,
    });
    expect(await resolveEndpoint(env)).not.toHaveProperty("tls");
  });

  it("takes a context's certificates from beside it", async () => {
    await writeContext("far", "tcp://engine.example:2376", { tls: true });
    const { tls } = await resolveEndpoint({ DOCKER_CONFIG: dir, DOCKER_CONTEXT: "far" });
    expect(tls).toEqual({ ca: Buffer.from("the authority"), verify: true });
  });
});
