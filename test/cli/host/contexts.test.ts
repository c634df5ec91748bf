import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, win32 } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Contexts, checkedAddress, chosenContext, parseContexts } from "../../../src/cli/host/contexts.ts";
import { attachedPaths } from "../../../src/cli/run/attachments.ts";
import { configFile } from "../../../src/cli/terminal/arguments.ts";
import { httpServer } from "../../egress/servers.ts";
import { withinProcess } from "../within-process.ts";

let home = "";
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "corral-home-"));
});
afterEach(() => rm(home, { recursive: true, force: true }));

const corral = (args: readonly string[], stdin = "", env: Readonly<Record<string, string>> = {}) =>
  withinProcess(args, { env: { HOME: home, ...env }, cwd: home, stdin });

/** Answers as a service that knows one token. */
async function serviceKnowing(token: string) {
  return await httpServer((request, response) => {
    const isKnown = request.headers.authorization === `Bearer ${token}`;
    response.writeHead(isKnown ? 200 : 401, { "content-type": "application/json" });
    const fault = { error: { code: "UNAUTHORIZED", message: "send a valid token" } };
    const caller = { name: "me", roles: ["admin"], version: "0", runs: [], unreadable: 0, more: false };
    response.end(JSON.stringify(isKnown ? caller : fault));
  });
}

describe("the file of contexts", () => {
  it.each([
    ["linux", { HOME: "/home/me" }, "/home/me/.config/corral/contexts.json"],
    ["linux", { HOME: "/home/me", XDG_CONFIG_HOME: "/etc/me" }, "/etc/me/corral/contexts.json"],
    ["linux", { HOME: "/home/me", XDG_CONFIG_HOME: "relative" }, "/home/me/.config/corral/contexts.json"],
    ["darwin", { HOME: "/Users/me" }, "/Users/me/.config/corral/contexts.json"],
    ["win32", { APPDATA: "C:\\Users\\me\\AppData\\Roaming" }, "C:\\Users\\me\\AppData\\Roaming\\Corral\\contexts.json"],
    ["win32", { USERPROFILE: "C:\\Users\\me" }, "C:\\Users\\me\\.config\\corral\\contexts.json"],
  ] as const)("is in the user's own folder on %s with %j", (platform, env, path) => {
    expect(configFile(env, platform)).toBe(path);
  });

  it("is read with the line ends and the mark that editors of Windows write", () => {
    const text = JSON.stringify({ current: "a", contexts: { a: { url: "https://a", token: "t" } } }, null, 2);
    expect(parseContexts(`\uFEFF${text.replaceAll("\n", "\r\n")}\r\n`, "file").current).toBe("a");
  });

  it.each([
    "[]x",
    '{"contexts":{"a":{"url":1,"token":"t"}}}',
    '{"contexts":{"a":{"url":"https://a"}}}',
    '{"contexts":{"../a":{"url":"https://a","token":"t"}}}',
    '{"contexts":{"local":{"url":"https://a","token":"t"}}}',
    '{"current":"b","contexts":{}}',
  ])("is refused if it is none: %s", (text) => {
    expect(() => parseContexts(text, "file")).toThrow("file is no list of contexts");
  });

  it("is refused if others can read its tokens", async () => {
    const env = { HOME: home };
    await (await Contexts.open({ env })).put("a", { url: "https://a.example.org", token: "t" });
    const file = configFile(env);
    await chmod(file, 0o644);
    await expect(Contexts.open({ env })).rejects.toThrow("chmod 600");
    expect((await corral(["runs", "ls"])).status).toBe(2);
  });
});

describe("an address", () => {
  it.each([
    "https://corral.example.org/base/",
    "http://127.0.0.1:7420",
    "http://[::1]:7420",
    "http://localhost",
    "unix:/run/c",
  ])("%s can have a token sent to it", (address) => {
    expect(checkedAddress(address, false)).toBe(address.replace(/\/$/, ""));
  });

  it.each([
    ["http://corral.example.org", "not encrypted"],
    ["http://127.0.0.1.example.org", "not encrypted"],
    ["https://me:secret@corral.example.org", "without a user"],
    ["https://corral.example.org/?token=secret", "without a user"],
    ["ftp://corral.example.org", "without a user"],
  ])("%s is refused, and what is secret in it is not repeated", (address, why) => {
    const refused = (): string => checkedAddress(address, false);
    expect(refused).toThrow(why);
    expect(refused).not.toThrow("secret");
  });

  it("without encryption is possible if the user has said so", () => {
    expect(checkedAddress("http://corral.example.org", true)).toBe("http://corral.example.org");
  });
});

describe("corral login", () => {
  it("keeps the token in a file of this user alone, prints it nowhere, and uses the service from then on", async () => {
    await using service = await serviceKnowing("secret-token");
    const url = `http://127.0.0.1:${service.port}`;
    const login = await corral(["login", url, "--name", "team"], "\uFEFFsecret-token\r\n");
    expect(login).toMatchObject({ status: 0, stdout: "" });
    const file = configFile({ HOME: home });
    expect([(await stat(file)).mode & 0o777, (await stat(dirname(file))).mode & 0o777]).toEqual([0o600, 0o700]);
    expect(await readdir(dirname(file))).toEqual(["contexts.json"]);
    const list = await corral(["context", "ls", "--json"]);
    expect(JSON.parse(list.stdout)).toEqual([
      { name: "local", url: null, container: null, isUsed: false },
      { name: "team", url, container: null, isUsed: true },
    ]);
    expect((await corral(["runs", "ls", "--json"])).stdout).toBe('{"runs":[],"more":false}\n');
    for (const { stdout, stderr } of [login, list]) expect(stdout + stderr).not.toContain("secret-token");
  });

  it("keeps nothing of a token that the service does not know, or that is none", async () => {
    await using service = await serviceKnowing("secret-token");
    const url = `http://127.0.0.1:${service.port}`;
    const wrong = await corral(["login", url], "other\n");
    expect(wrong).toMatchObject({ status: 126 });
    expect(wrong.stderr).toContain("send a valid token");
    expect(wrong.stderr).not.toContain("other");
    expect((await corral(["login", url], "two\nlines\n")).status).toBe(2);
    await expect(readFile(configFile({ HOME: home }))).rejects.toThrow("ENOENT");
  });

  it("sends the token to no other place that the service names", async () => {
    const asked: (string | undefined)[] = [];
    await using other = await httpServer((request, response) => {
      asked.push(request.headers.authorization);
      response.end("{}");
    });
    await using service = await httpServer((_, response) => {
      response.writeHead(307, { location: `http://127.0.0.1:${other.port}/v1/caller` }).end();
    });
    expect((await corral(["login", `http://127.0.0.1:${service.port}`], "secret-token")).status).toBe(125);
    expect(asked).toEqual([]);
  });
});

describe("the host of a command", () => {
  const chosen = async (said: string | undefined, env: Readonly<Record<string, string>> = {}) =>
    await chosenContext(said, { env: { HOME: home, ...env } });

  it("is the one of --host, else of CORRAL_HOST, else the one in use, else this machine", async () => {
    expect(await chosen(undefined)).toBeNull();
    const contexts = await Contexts.open({ env: { HOME: home } });
    await contexts.put("a", { url: "https://a.example.org", token: "of-a" });
    await contexts.put("b", { url: "https://b.example.org", token: "of-b" });
    expect(await chosen(undefined)).toMatchObject({ token: "of-b" });
    expect(await chosen(undefined, { CORRAL_HOST: "a" })).toMatchObject({ token: "of-a" });
    expect(await chosen("b", { CORRAL_HOST: "a" })).toMatchObject({ token: "of-b" });
    expect(await chosen("https://a.example.org/")).toMatchObject({ token: "of-a" });
    expect(await chosen("https://c.example.org")).toMatchObject({ token: null });
    expect(await chosen("https://c.example.org", { CORRAL_TOKEN: "t" })).toMatchObject({ token: "t" });
    expect(await chosen("local", { CORRAL_HOST: "a" })).toBeNull();
    await expect(chosen("d")).rejects.toThrow("corral context ls");
    await contexts.use("local");
    expect(await chosen(undefined)).toBeNull();
  });

  it("is forgotten with `corral context rm`, and then it is this machine", async () => {
    await (await Contexts.open({ env: { HOME: home } })).put("a", { url: "https://a.example.org", token: "of-a" });
    expect((await corral(["context", "rm", "a"])).status).toBe(0);
    expect(await chosen(undefined)).toBeNull();
    expect(await readFile(configFile({ HOME: home }), "utf8")).not.toContain("of-a");
    expect((await corral(["context", "use", "a"])).status).toBe(2);
  });

  it.each([
    [["runs", "rm", "--all"], "no operation of the service"],
    [["gc", "--json"], "no operation of the service"],
    [["explain", "reader", "--policy", "default"], "--policy of `corral explain`"],
    [["explain", "reader", "--", "x"], "a service explains the workers"],
    [["run", "--ro", "/tmp", "--", "ls"], "--ro of `corral run`"],
    [["run", "reader", "--approve", "auto_deny"], "--approve of `corral run`"],
    [["audit", "--verify"], "--verify of `corral audit`"],
    [["run", "--", "ls"], "a service runs the workers of its projects"],
  ])("refuses what only the machine itself can do, in one line and before anything is asked: %j", async (args, why) => {
    const { status, stderr } = await corral(["--host", "http://127.0.0.1:1", ...args]);
    expect([status, stderr.trim().split("\n").length]).toEqual([2, 1]);
    expect(stderr).toContain(why);
  });

  it("is named in the error if it does not answer, with the reason", async () => {
    const { status, stderr, stdout } = await corral(["--host", "http://127.0.0.1:1", "runs", "ls", "--json"]);
    expect(status).toBe(125);
    expect(stderr).toContain("ECONNREFUSED");
    expect(JSON.parse(stdout).error.code).toBe("UNREACHABLE");
  });

  it("names what is attached and cannot be read before anything is asked", async () => {
    await writeFile(join(home, "a.txt"), "a");
    const run = ["--host", "http://127.0.0.1:1", "run", "reader", "--attach"];
    expect((await corral([...run, "missing.txt"])).stderr).toContain("--attach missing.txt cannot be read");
    expect((await corral([...run, "."])).status).toBe(2);
    expect((await corral([...run, "a.txt"])).status).toBe(125);
  });
});

it("names attachments by the paths of Windows", async () => {
  const named = async (raw: string) => await attachedPaths([raw], "C:\\Users\\me", win32);
  expect(await named("C:\\papers\\a b.pdf")).toEqual([{ path: "C:\\papers\\a b.pdf", name: "a b.pdf" }]);
  expect(await named("..\\x=1\\a.pdf")).toEqual([{ path: "..\\x=1\\a.pdf", name: "a.pdf" }]);
  expect(await named("C:/papers/a.pdf=in.pdf")).toEqual([{ path: "C:/papers/a.pdf", name: "in.pdf" }]);
});
