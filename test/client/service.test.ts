import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/client/client.ts";
import { transportTo } from "../../src/client/node.ts";
import { httpServer, type TestServer } from "../egress/servers.ts";
import { servedProject } from "../serve/served-project.ts";
import { startService } from "../serve/service-client.ts";
import { project, service, serviceForAll } from "../serve/service-for-all.ts";

serviceForAll();

const clientAt = (port: number, token = service.token, path = "") =>
  new ServiceClient(transportTo(`http://127.0.0.1:${port}${path}`), token);

/** A proxy at `/corral/` that ends each answer after `most` pieces, in good order. */
async function endingProxy(most: number): Promise<TestServer> {
  return await httpServer((from, to) => {
    const path = (from.url ?? "").replace(/^\/corral/, "");
    const headers = { ...from.headers, host: `127.0.0.1:${service.port}` };
    const passed = httpRequest(
      { host: "127.0.0.1", port: service.port, method: from.method, path, headers },
      (answer) => {
        to.writeHead(answer.statusCode ?? 502, answer.headers);
        let pieces = 0;
        answer.on("data", (piece: Buffer) => {
          // Some of what had come before the end follows it.
          if (pieces >= most) return;
          pieces += 1;
          to.write(piece);
          if (pieces < most) return;
          answer.destroy();
          to.end();
        });
        answer.on("end", () => to.end());
      },
    );
    from.pipe(passed.on("error", () => {}));
  });
}

describe("a client of a service", () => {
  it("starts a run with files of any origin, follows it to its end, and has its result and its output", async () => {
    const client = clientAt(service.port);
    const streamed = Readable.from([Buffer.from("second"), Buffer.from(" content\n")]);
    const files = [
      { name: 'a "b".txt', content: new Blob(["first content\n"]) },
      { name: "ü.txt", content: streamed },
    ];
    const { run } = await client.call("runs.start", { worker: "attached" }, { files });
    const types: string[] = [];
    for await (const { event } of client.follow("runs.events", { run })) types.push(event.type);
    expect(types).toEqual(["requested", "started", ...types.filter((type) => type === "output"), "ended"]);
    const { status, stdout } = await client.call("runs.result", { run, wait: 30 });
    expect({ status, stdout }).toEqual({
      status: "succeeded",
      stdout: 'a "b".txt\nü.txt\nfirst content\nsecond content\n',
    });
    const { runs } = await client.call("runs.list", { limit: 1, calls: false });
    expect(runs[0]).toMatchObject({ id: run, callCount: 0, hasEvents: true });
    const output = await client.download("runs.output", { run, stream: "stdout", lines: 1 });
    expect((await buffer(output)).toString()).toBe("second content\n");
  });

  it("misses no event behind a proxy that ends each answer early, and sees none twice", async () => {
    await using proxy = await endingProxy(2);
    const near = clientAt(service.port);
    const far = clientAt(proxy.port, service.token, "/corral/");
    const { run } = await near.call("runs.start", { worker: "words", arguments: ["one", "two"] });
    const seen = [];
    for await (const one of far.follow("runs.events", { run })) seen.push(one);
    const whole = [];
    for await (const one of near.follow("runs.events", { run })) whole.push(one);
    expect(seen).toEqual(whole);
    expect(seen.at(-1)?.event).toMatchObject({ type: "ended", status: "succeeded" });
    expect(proxy.connections()).toBeGreaterThan(2);
    const rest = [];
    for await (const one of near.follow("runs.events", { run }, { after: seen[0]?.id ?? "" })) rest.push(one);
    expect(rest).toEqual(whole.slice(1));
  });

  it("applies what was written as it was shown, and downloads it", async () => {
    const client = clientAt(service.port);
    const { run } = await client.call("runs.start", { worker: "writer" });
    await client.call("runs.result", { run, wait: 30 });
    const archive = await buffer(await client.download("changesets.files", { changeset: run }));
    expect(archive.includes("out/new.txt")).toBe(true);
    const { digest } = await client.call("changesets.review", { changeset: run });
    const stale = client.call("changesets.apply", { changeset: run, digest: "0".repeat(64) });
    await expect(stale).rejects.toMatchObject({ status: 409, code: "CHANGESET_CHANGED" });
    const applied = await client.call("changesets.apply", { changeset: run, digest, only: ["/out/new.txt"] });
    expect(applied.left).toBe(2);
    expect(await readFile(join(project.dir, "out/new.txt"), "utf8")).toBe("new\n");
  });

  it("uses a session's tools, whose input is what it is", async () => {
    const client = clientAt(service.port);
    const { id: session } = await client.call("sessions.open", { worker: "desk" });
    const input = { path: "/docs/a.txt" };
    const answer = await client.call("sessions.use", { session, tool: "read_file", input });
    expect(answer).toMatchObject({ ok: true, text: expect.stringContaining("a document") });
    expect(await client.call("sessions.close", { session })).toMatchObject({ id: session, changes: [] });
  });

  it("has a session's name and its times, and its name is free when it could not be opened", async () => {
    const client = clientAt(service.port);
    const name = "dev";
    const times = { name, pauseAfterMs: 1000, endAfterMs: 3000 };
    await expect(client.call("sessions.open", { ...times, worker: "nobody" })).rejects.toMatchObject({ status: 404 });
    await expect(client.call("sessions.open", { ...times, worker: "desk", endAfterMs: 1000 })).rejects.toMatchObject({
      status: 422,
      code: "BAD_TIMES",
    });
    const opened = await client.call("sessions.open", { ...times, worker: "desk" });
    expect(opened).toMatchObject({ name, isPaused: false });
    const session = opened.id;
    await expect(client.call("sessions.open", { name, worker: "desk" })).rejects.toMatchObject({
      status: 409,
      code: "SESSION_THERE",
    });
    const state = async () =>
      await client.call("sessions.show", { session }).then(
        ({ isPaused }) => isPaused,
        ({ code }: { readonly code: string }) => code,
      );
    await expect.poll(state, { timeout: 10_000 }).toBe(true);
    await expect.poll(state, { timeout: 10_000 }).toBe("UNKNOWN_SESSION");
    const { id } = await client.call("sessions.open", { name, worker: "desk", endAfterMs: 60_000 });
    await client.call("sessions.close", { session: id });
  });

  it("runs a session's commands, each with its own input, signal and end, and moves files of any size", async () => {
    const client = clientAt(service.port);
    const { id: session } = await client.call("sessions.open", { worker: "desk" });
    const command = "echo out; echo err >&2; cat; exit 3";
    const printed = { stdout: "", stderr: "" };
    let ended: unknown;
    for await (const event of client.stream("sessions.exec", { session, command, input: true })) {
      if (event.type === "started") {
        const ask = { session, command: event.command };
        await client.upload("sessions.input", ask, Buffer.from("typed\n"));
        await client.upload("sessions.input", { ...ask, end: true }, new Uint8Array());
      } else if (event.type === "printed") printed[event.stream] += Buffer.from(event.base64, "base64").toString();
      else ended = event;
    }
    expect(printed).toEqual({ stdout: "out\ntyped\n", stderr: "err\n" });
    expect(ended).toMatchObject({ type: "ended", status: "failed", exitCode: 3 });
    const { id } = await client.call("sessions.start", { session, command: "echo up; sleep 4751" });
    const types: string[] = [];
    const following = (async () => {
      for await (const { event } of client.follow("sessions.output", { session, command: id })) types.push(event.type);
    })();
    await expect.poll(() => types).toEqual(["printed"]);
    const running = await client.call("sessions.command", { session, command: id, wait: 0 });
    expect(running).toMatchObject({ id, status: "running", isBackground: true });
    await client.call("sessions.signal", { session, command: id, signal: "SIGKILL" });
    await following;
    expect(types).toEqual(["printed", "ended"]);
    expect((await client.call("sessions.commands", { session })).commands).toHaveLength(2);
    const again = client.call("sessions.signal", { session, command: id, signal: "SIGTERM" });
    await expect(again).rejects.toMatchObject({ status: 409, code: "COMMAND_OVER" });
    const leaving = new AbortController();
    for await (const event of client.stream(
      "sessions.exec",
      { session, command: "sleep 4752" },
      { signal: leaving.signal },
    )) {
      expect(event.type).toBe("started");
      break;
    }
    leaving.abort(new Error("the client leaves"));
    const alive = async () =>
      (await client.call("sessions.commands", { session })).commands.filter(({ status }) => status === "running");
    await expect.poll(alive).toEqual([]);
    async function* megabytes() {
      for (let n = 0; n < 20; n += 1) yield Buffer.alloc(1024 ** 2, n);
    }
    const sent = await client.upload("sessions.upload", { session, path: "/tmp/large" }, megabytes());
    expect(sent).toEqual({ kind: "file", bytes: 20 * 1024 ** 2, files: 1 });
    const { header, pieces } = await client.downloadWith(
      "sessions.download",
      { session, path: "/tmp/large" },
      "x-corral-kind",
    );
    expect([header, Buffer.concat(await Array.fromAsync(pieces)).length]).toEqual(["file", 20 * 1024 ** 2]);
    // With their length, other processes than the service's own move them.
    const large = randomBytes(20 * 1024 ** 2 + 7);
    const said = { length: large.length };
    const at = { session, path: "/tmp/said" };
    expect(await client.upload("sessions.upload", at, large, said)).toEqual({
      kind: "file",
      bytes: large.length,
      files: 1,
    });
    expect((await buffer(await client.download("sessions.download", at))).equals(large)).toBe(true);
    async function* cut() {
      yield large.subarray(0, 6 * 1024 ** 2);
      throw new Error("the file cannot be read");
    }
    await expect(client.upload("sessions.upload", { session, path: "/tmp/cut" }, cut(), said)).rejects.toThrow();
    const full = client.upload("sessions.upload", { session, path: "/small/file" }, large, said);
    await expect(full).rejects.toMatchObject({ status: 422, code: "PATH_NOT_IN_SANDBOX" });
    const tmp = { tool: "exec", input: { command: "ls -A /tmp" } };
    await expect
      .poll(async () => JSON.stringify(await client.call("sessions.use", { session, ...tmp })))
      .toContain(String.raw`"stdout":"large\nsaid\n"`);
    for await (const piece of await client.download("sessions.download", at)) if (piece.length > 0) break;
    const refused = client.upload("sessions.upload", { session, path: "/etc/x" }, megabytes());
    await expect(refused).rejects.toMatchObject({ status: 422, code: "PATH_NOT_IN_SANDBOX" });
    await expect(client.download("sessions.download", { session, path: "/etc/passwd" })).rejects.toMatchObject({
      status: 422,
    });
    expect(await client.call("sessions.pause", { session })).toMatchObject({ isPaused: true });
    await expect(client.call("sessions.start", { session, command: "true" })).rejects.toMatchObject({
      code: "SESSION_PAUSED",
    });
    expect(await client.call("sessions.resume", { session })).toMatchObject({ isPaused: false });
    await client.call("sessions.close", { session });
  });

  it("has the service's code and words of an error, with every violation, and learns that its token is unknown", async () => {
    const client = clientAt(service.port);
    await expect(client.call("runs.start", { worker: "nobody" })).rejects.toMatchObject({
      name: "ApiError",
      status: 404,
      code: "UNKNOWN_WORKER",
      message: expect.stringContaining("there is no worker nobody"),
    });
    await expect(client.call("sessions.open", { worker: "hungry" })).rejects.toMatchObject({
      status: 422,
      code: "WORKER_REFUSED",
      violations: [{ code: "PATH_NOT_AVAILABLE" }],
    });
    let isSignedOut = false;
    const stranger = new ServiceClient(transportTo(`http://127.0.0.1:${service.port}`), "corral_unknown", () => {
      isSignedOut = true;
    });
    await expect(stranger.call("projects.list", {})).rejects.toMatchObject({ status: 401, code: "UNAUTHORIZED" });
    expect(isSignedOut).toBe(true);
    const over = new AbortController();
    over.abort(new Error("no longer wanted"));
    await expect(client.call("projects.list", {}, { signal: over.signal })).rejects.toThrow("no longer wanted");
  });
});

describe("a client at a Unix socket", () => {
  it("needs no token, and says if nothing listens there", async () => {
    await using own = await servedProject();
    const socket = join(own.stateDir, "client.sock");
    const client = new ServiceClient(transportTo(`unix:${socket}`), null);
    await expect(client.call("host.caller", {})).rejects.toMatchObject({ status: 0, code: "UNREACHABLE" });
    await using _ = await startService(own, { socket });
    expect(await client.call("host.caller", {})).toMatchObject({ name: "socket", roles: ["admin"] });
    const { workers } = await client.call("workers.list", {
      project: (await client.call("projects.list", {})).projects[0]?.name ?? "",
    });
    expect(workers.map(({ name }) => name)).toContain("echo");
  });
});
