import { type ChildProcess, execFileSync } from "node:child_process";
import { existsSync, globSync, readdirSync, readFileSync, statSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { cliProject, sh } from "../../cli/cli-project.ts";
import { servedProject } from "../../serve/served-project.ts";
import { eventsFrom, startService } from "../../serve/service-client.ts";
import { project, service, serviceForAll } from "../../serve/service-for-all.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";

serviceForAll();

const start = async (body: unknown): Promise<string> => (await service.ask("POST", "/v1/runs", { body })).json.run;
const resultOf = async (run: string) => (await service.ask("GET", `/v1/runs/${run}/result?wait=30`)).json;

/** A form as bytes, with names as they are. */
function form(parts: readonly { head: string; content: string | Buffer }[], boundary = "BOUNDARY") {
  const pieces = parts.flatMap(({ head, content }) => [`--${boundary}\r\n${head}\r\n\r\n`, content, "\r\n"]);
  const raw = Buffer.concat([...pieces, `--${boundary}--\r\n`].map((piece) => Buffer.from(piece)));
  return { raw, headers: { "content-type": `multipart/form-data; boundary=${boundary}` } };
}
const requestPart = { head: 'Content-Disposition: form-data; name="request"', content: '{"worker":"attached"}' };
const filePart = (name: string, content: string | Buffer = "x") => ({
  head: `Content-Disposition: form-data; name="f"; filename="${name}"`,
  content,
});
const uploads = (): string[] =>
  globSync(join(tmpdir(), readFileSync(join(project.stateDir, "service/uploads"), "utf8"), "*"));

describe("a hostile upload", () => {
  it("leaves its folder by no name", async () => {
    for (const name of [
      "../../evil",
      "..",
      ".",
      "/etc/evil",
      "a/b",
      "..\\\\evil",
      "a\\\\b",
      "",
      "\u0001",
      "x".repeat(300),
    ]) {
      const { status } = await service.ask("POST", "/v1/runs", form([requestPart, filePart(name)]));
      expect(status, name).toBe(400);
    }
    expect(existsSync(join(tmpdir(), "evil"))).toBe(false);
    await expect.poll(uploads).toEqual([]);
  });

  it("is refused with two files of one name, without a request, or with two", async () => {
    for (const parts of [
      [requestPart, filePart("a"), filePart("a")],
      [filePart("a")],
      [requestPart, requestPart],
      [requestPart, { head: 'Content-Disposition: form-data; name="other"', content: "x" }],
    ])
      expect((await service.ask("POST", "/v1/runs", form(parts))).status).toBe(400);
    const { raw } = form([requestPart]);
    for (const type of ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=other"])
      expect((await service.ask("POST", "/v1/runs", { raw, headers: { "content-type": type } })).status).toBe(400);
    await expect.poll(uploads).toEqual([]);
  });

  it("of very many parts is refused, and leaves nothing", async () => {
    const parts = Array.from({ length: 1100 }, (_, index) => filePart(`f${index}`));
    const { status } = await service.ask("POST", "/v1/runs", form([requestPart, ...parts]));
    expect(status).toBe(413);
    const headers = Array.from({ length: 2000 }, (_, index) => `X-${index}: ${"a".repeat(100)}`).join("\r\n");
    const bomb = form([requestPart, { head: `${filePart("a").head}\r\n${headers}`, content: "x" }]);
    expect((await service.ask("POST", "/v1/runs", bomb)).status).toBeLessThan(500);
    await expect.poll(uploads, { timeout: 30_000 }).toEqual([]);
  });

  it("that breaks off in the middle leaves nothing", async () => {
    const { raw, headers } = form([requestPart, filePart("a", Buffer.alloc(1024 ** 2))]);
    const request = httpRequest({
      host: "127.0.0.1",
      port: service.port,
      method: "POST",
      path: "/v1/runs",
      headers: {
        ...headers,
        host: `localhost:${service.port}`,
        authorization: `Bearer ${service.token}`,
        "content-length": raw.length,
      },
    });
    request.on("error", () => {});
    request.write(raw.subarray(0, 500_000));
    await expect.poll(() => uploads().length).toBe(1);
    request.destroy();
    await expect.poll(uploads).toEqual([]);
    expect((await service.ask("GET", "/v1/health", { token: null })).status).toBe(200);
  });

  it("is what its name says, and no file of the host", async () => {
    const { json } = await service.ask("POST", "/v1/runs", form([requestPart, filePart("passwd", "sent")]));
    expect(await resultOf(json.run)).toMatchObject({ stdout: "passwd\nsent" });
    await expect.poll(uploads).toEqual([]);
    for (const attachments of [["/etc/passwd"], [{ path: "/etc/passwd", name: "x" }]])
      expect((await service.ask("POST", "/v1/runs", { body: { worker: "attached", attachments } })).status).toBe(400);
  });
});

describe("a fleet of a hostile client", () => {
  it("attaches no file outside of the project", async () => {
    await writeFile(join(project.stateDir, "canary"), "CANARY");
    const literal = { worker: "attached", items: ["a"], template: { attach: ["/etc/passwd"] } };
    expect((await service.ask("POST", "/v1/fleets", { body: literal })).status).toBe(400);
    const items = [
      "/etc/passwd",
      "../../../etc/passwd",
      join(project.stateDir, "canary"),
      "docs/../../canary",
      "~/.ssh/id_rsa",
    ];
    const body = { worker: "attached", items, template: { attach: ["{path}"] } };
    const { json } = await service.ask("POST", "/v1/fleets", { body });
    await eventsFrom(await service.open("GET", `/v1/fleets/${json.fleet}/events`));
    const listed = (await service.ask("GET", `/v1/fleets/${json.fleet}/items`)).json.items;
    expect(listed.length).toBe(items.length);
    expect(listed.map(({ status }: { status: string }) => status)).not.toContain("succeeded");
    for (const { key } of listed) {
      const { text } = await service.ask("GET", `/v1/fleets/${json.fleet}/item?key=${encodeURIComponent(key)}`);
      expect(text).not.toMatch(/root:|CANARY/);
    }
  });
});

describe("a hostile worker", () => {
  it("ends no event and begins none by what it prints", async () => {
    const run = await start({ worker: "hostile" });
    const stream = await service.open("GET", `/v1/runs/${run}/events`);
    expect(stream.headers["content-type"]).toContain("text/event-stream");
    expect(stream.headers["x-content-type-options"]).toBe("nosniff");
    const bytes = (await buffer(stream)).toString();
    expect(bytes).not.toContain("\u001b");
    expect(bytes.match(/^event: ended$/gm)?.length).toBe(1);
    const events = await eventsFrom(await service.open("GET", `/v1/runs/${run}/events`));
    expect(events.map(({ event }) => event)).toEqual(["requested", "started", "output", "ended"]);
    expect(events[2]?.data.text).toContain("<script>alert(1)</script>");
    const output = await service.open("GET", `/v1/runs/${run}/output`);
    expect(output.headers["content-type"]).toBe("application/octet-stream");
    expect(output.headers["content-security-policy"]).toContain("default-src 'none'");
    expect((await buffer(output)).toString()).toContain("\u001b[2J");
  });

  it("puts no link into the archive of its files", async () => {
    const run = await start({ worker: "linker" });
    await resultOf(run);
    const archive = await buffer(await service.open("GET", `/v1/changesets/${run}/files`));
    const file = join(project.stateDir, "files.tar");
    await writeFile(file, archive);
    const listed = execFileSync("tar", ["tvf", file]).toString();
    expect(listed).toMatch(/^-rw-r--r-- 0\/0 .* out\/new\.txt\n$/);
    expect(listed).not.toMatch(/passwd|->/);
  });
});

describe("a decision", () => {
  it("on another question, a decided one, or one that does not exist changes nothing", async () => {
    const runs = [await start({ worker: "asks" }), await start({ worker: "writer" })];
    await expect.poll(async () => (await service.ask("GET", "/v1/approvals")).json.approvals.length).toBe(1);
    const [asked] = (await service.ask("GET", "/v1/approvals")).json.approvals;
    const path = `/v1/approvals/${asked.id}/decision`;
    const stale = {
      answer: "once",
      digest: asked.digest.replace(/^./, (digit: string) => (digit === "0" ? "1" : "0")),
    };
    expect((await service.ask("POST", path, { body: stale })).status).toBe(409);
    for (const body of [
      { answer: "session", digest: asked.digest },
      { answer: "once" },
      { answer: "once", digest: asked.digest, directory: "/" },
    ])
      expect((await service.ask("POST", path, { body })).status).toBe(400);
    const decision = { digest: asked.digest, answer: "once" };
    expect((await service.ask("POST", "/v1/approvals/0123456789ab/decision", { body: decision })).status).toBe(404);
    expect(existsSync(join(project.dir, "out/asked.txt"))).toBe(false);
    const no = { digest: asked.digest, answer: "no" };
    expect((await service.ask("POST", path, { body: no })).status).toBe(200);
    expect((await service.ask("POST", path, { body: decision })).status).toBe(409);
    expect(await resultOf(runs[0] ?? "")).toMatchObject({ status: "denied" });
    await resultOf(runs[1] ?? "");
    expect(existsSync(join(project.dir, "out/asked.txt"))).toBe(false);
  });
});

describe("a client that does not read", () => {
  // Of twenty clients, more than twice what the service may grow by.
  const BYTES = AT_LENGTH ? 30_000_000 : 24_000_000;

  // `serve/answer.test.ts` has what closes it, with a shorter time.
  it(`takes no memory${AT_LENGTH ? ", and its connection is closed" : ""}`, async () => {
    const loud = await cliProject({
      yaml: { version: 1, sandbox: { zones: {}, limits: { output: "40m" } } },
      workers: {
        loud: {
          image: "corral/base",
          command: sh(`head -c ${BYTES} /dev/zero | tr '\\0' x`),
          limits: { output: "40m" },
        },
      },
    });
    await using _ = loud;
    await using own = await startService(loud);
    const { json } = await own.ask("POST", "/v1/runs", { body: { worker: "loud" } });
    await expect.poll(async () => (await own.ask("GET", `/v1/runs/${json.run}`)).json.status).not.toBe("running");
    const before = memoryOf(own.child);
    const deaf = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const response = await own.open("GET", `/v1/runs/${json.run}/events`);
        response.pause();
        return response;
      }),
    );
    await new Promise((resolve) => setTimeout(resolve, 3000));
    // On a busy machine, V8 collects later what was sent.
    expect(memoryOf(own.child) - before).toBeLessThan(200 * 1024 ** 2);
    // The log has a line for each request that is over.
    const over = (): number => own.log().match(/"route":"\/v1\/runs\/\{run\}\/events".*"msg":"request"/g)?.length ?? 0;
    expect(over()).toBe(0);
    if (AT_LENGTH) await expect.poll(over, { timeout: 60_000, interval: 500 }).toBe(deaf.length);
    for (const response of deaf) response.destroy();
    expect((await own.ask("GET", "/v1/projects")).status).toBe(200);
    const events = await eventsFrom(await own.open("GET", `/v1/runs/${json.run}/events`));
    const text = events.flatMap(({ data }) => (data.type === "output" ? [data.text.length as number] : []));
    expect(text.reduce((sum, length) => sum + length, 0)).toBe(BYTES);
  });
});

describe("another project of the same user", () => {
  it("does not exist for a service that does not have it", async () => {
    await using other = await servedProject();
    const env = { CORRAL_STATE_DIR: project.stateDir };
    await other.corral(["run", "writer"], { env });
    const { stdout } = await other.corral(["runs", "ls", "--json"], { env });
    const [{ id }] = JSON.parse(stdout).runs;
    const shown = await other.corral(["changes", "show", id, "--json"], { env });
    const { digest } = JSON.parse(shown.stdout);
    for (const path of [
      `/v1/runs/${id}`,
      `/v1/runs/${id}/output`,
      `/v1/runs/${id}/events`,
      `/v1/runs/${id}/result`,
      `/v1/changesets/${id}`,
      `/v1/changesets/${id}/files`,
    ])
      expect((await service.ask("GET", path)).status, path).toBe(404);
    expect((await service.ask("DELETE", `/v1/runs/${id}`)).status).toBe(404);
    for (const verb of ["apply", "discard"])
      expect((await service.ask("POST", `/v1/changesets/${id}/${verb}`, { body: { digest } })).status).toBe(404);
    expect(existsSync(join(other.dir, "out/new.txt"))).toBe(false);
    expect((await service.ask("GET", "/v1/runs?limit=500")).text).not.toContain(id);
    expect((await service.ask("GET", "/v1/changesets")).text).not.toContain(id);
    expect((await service.ask("POST", "/v1/runs", { body: { worker: "echo", project: other.dir } })).status).toBe(400);
    expect((await service.ask("GET", "/v1/audit?project=other")).status).toBe(404);
  });
});

describe("the Unix socket", () => {
  it("is its user's alone, and asks for no token", async () => {
    await using own = await servedProject();
    const socket = join(own.stateDir, "s");
    await using served = await startService(own, { socket });
    expect(statSync(socket).mode & 0o777).toBe(0o600);
    expect((await served.ask("GET", "/v1/projects")).status).toBe(200);
    expect((await served.ask("GET", "/v1/projects", { headers: { host: "evil.example" } })).status).toBe(403);
    expect((await served.ask("GET", "/v1/projects", { headers: { origin: "http://evil.example" } })).status).toBe(403);
    expect(existsSync(join(own.stateDir, "service/tokens.json"))).toBe(false);
  });

  it("does not take the place of a file or of a living service", async () => {
    await using own = await servedProject();
    const place = join(own.stateDir, "file");
    await writeFile(place, "precious");
    const refused = await own.corral(["serve", "--listen", `unix:${place}`]);
    expect([refused.status, refused.stderr]).toEqual([2, expect.stringContaining("is not a socket")]);
    expect(await readFile(place, "utf8")).toBe("precious");
    const taken = await own.corral(["serve", "--listen", "0.0.0.0:0"]);
    expect([taken.status, taken.stderr]).toEqual([2, expect.stringContaining("--remote")]);
    await using _ = await startService(own);
    const second = await own.corral(["serve", "--listen", "127.0.0.1:0"]);
    expect([second.status, second.stderr]).toEqual([2, expect.stringContaining("another `corral serve`")]);
    expect(readdirSync(own.stateDir)).not.toContain("s");
  });
});

function memoryOf({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}
