import { execFile, spawnSync } from "node:child_process";
import { globSync, readFileSync, statSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { httpsServer, identityFor } from "../egress/servers.ts";
import { PROGRAM } from "./program.ts";

const LOADER = join(import.meta.dirname, "../../src/cli/compiled-files.ts");
const SOURCE = join(import.meta.dirname, "../../src/cli/corral.ts");

/** Prints the address of each file whose code is loaded, by Node or by the bundle. Standard output belongs to the command. */
const PRINT_LOADED = `import { registerHooks } from "node:module"; import fs from "node:fs";
const print = (url) => void fs.writeSync(2, url + "\\n");
registerHooks({ load(url, context, next) { if (url.startsWith("file:")) print(url); return next(url, context); } });
const { readFileSync } = fs;
fs.readFileSync = (path, ...how) => { if (how[0] === "latin1") print("file://" + path); return readFileSync(path, ...how); };`;

function loadedBy(program: string, ...args: readonly string[]): string[] {
  return loadedIn("/nowhere/state", program, ...args);
}

function loadedIn(stateDir: string, program: string, ...args: readonly string[]): string[] {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ["--import", `data:text/javascript,${encodeURIComponent(PRINT_LOADED)}`, program, ...args],
    { encoding: "utf8", env: { ...process.env, CORRAL_STATE_DIR: stateDir } },
  );
  expect([status, stdout === ""]).toEqual([0, false]);
  return stderr.trim().split("\n");
}

function packagesOf(urls: readonly string[]): string[] {
  const names = urls.flatMap((url) => /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1] ?? []);
  return [...new Set(names)].sort();
}

describe("a command that prints what it is", () => {
  it("loads nothing but the parser of the command line and colours: no zod, no yaml, no client of the Engine", () => {
    expect(packagesOf(loadedBy(SOURCE, "--help"))).toEqual(["commander", "picocolors"]);
    expect(packagesOf(loadedBy(SOURCE, "run", "--help"))).toEqual(["commander", "picocolors"]);
    expect(packagesOf(loadedBy(SOURCE, "--version"))).toEqual([]);
  });

  it("loads the options of no verb that the arguments do not name", () => {
    const verbFiles = (...args: readonly string[]): string[] =>
      loadedBy(SOURCE, ...args).flatMap((url) => /\/cli\/verbs\/([\w-]+)\.ts$/.exec(url)?.[1] ?? []);
    const always = verbFiles("--help");
    expect(always).not.toContain("run");
    expect(verbFiles("fleet", "--help").filter((name) => !always.includes(name))).toEqual(["fleet"]);
  });

  it.each([
    [["--version"], 20],
    [["--help"], 20],
    [["run", "--help"], 25],
    [["run", "-h", "-h"], 185],
  ])("reads few and small files of the built program: %j", (args, maxKib) => {
    const files = loadedBy(PROGRAM, ...args).map((url) => fileURLToPath(url));
    const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
    expect(bytes).toBeLessThan(maxKib * 1024);
    expect(files.length).toBeLessThan(12);
  });
});

describe("a command that asks the Engine", () => {
  let dir = "";
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "corral-start-"));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  it("loads no module of Node for TLS, threads or packed data, and no prompt", async () => {
    const print = `process.on("exit", () => process.stderr.write(process.moduleLoadList.join()))`;
    const preloaded = ["--import", `data:text/javascript,${encodeURIComponent(print)}`];
    const env = { ...process.env, CORRAL_STATE_DIR: join(dir, "state") };
    const { stderr, status } = spawnSync(process.execPath, [...preloaded, PROGRAM, "ps"], { encoding: "utf8", env });
    expect(status).toBe(0);
    const loaded = new Set(stderr.split(","));
    expect(loaded).toContain("NativeModule http");
    const heavy = ["https", "tls", "worker_threads", "zlib", "dns/promises"].map((name) => `NativeModule ${name}`);
    expect(heavy.filter((name) => loaded.has(name))).toEqual([]);
  });

  it("runs a module of the bundle when something of it is first used: it builds no schema of what it does not read", () => {
    const packs = loadedIn(join(dir, "state"), PROGRAM, "ps", "--json").map((url) =>
      basename(fileURLToPath(url)).replace(/-[\w-]{8}\.cjs$/, ""),
    );
    expect(packs).toContain("isolation-engine");
    expect(packs.filter((name) => ["yaml", "fleet", "changes", "run", "ai", "unbash"].includes(name))).toEqual([]);
  });

  it("reaches an Engine behind TLS", async () => {
    const { key, cert } = identityFor("127.0.0.1");
    const asked: string[] = [];
    await using server = await httpsServer({ key, cert }, ({ url = "" }, answer) => {
      asked.push(url);
      answer.writeHead(404).end("{}");
    });
    await Promise.all(
      [["ca", cert] as const, ["cert", cert] as const, ["key", key] as const].map(([name, text]) =>
        writeFile(join(dir, `${name}.pem`), text),
      ),
    );
    const engine = { DOCKER_HOST: `tcp://127.0.0.1:${server.port}`, DOCKER_TLS_VERIFY: "1", DOCKER_CERT_PATH: dir };
    const env = { ...process.env, ...engine, CORRAL_STATE_DIR: join(dir, "state") };
    await expect(promisify(execFile)(process.execPath, [PROGRAM, "ps"], { env })).rejects.toThrow(
      "No container Engine",
    );
    expect(asked).toContain("/info");
  });
});

describe("the modules of the bundle", () => {
  it("run in whatever order they are first used", () => {
    const loadAll = `const [loader, dir, ...names] = process.argv.slice(1);
      import(loader).then(({ compiledFiles }) => { const load = compiledFiles(dir, null); for (const name of names) load(name); process.exit(); });`;
    const dir = dirname(PROGRAM);
    const packed = globSync("*-????????.cjs", { cwd: dir }).map((file) => readFileSync(join(dir, file), "utf8"));
    const names = packed.flatMap((text) =>
      [...text.matchAll(/^(?:\(\{)?"(\S+)": function \(exports,/gm)].map(([, name = ""]) => name),
    );
    expect(names.length).toBeGreaterThan(1000);
    const shuffled = names
      .map((name) => ({ name, at: Math.random() }))
      .sort((one, other) => one.at - other.at)
      .map(({ name }) => name);
    for (const order of [names, names.toReversed(), shuffled]) {
      const { status, stderr } = spawnSync(process.execPath, ["-e", loadAll, LOADER, dir, ...order], {
        encoding: "utf8",
      });
      expect([status, stderr], order.join(" ")).toEqual([0, ""]);
    }
  });
});

describe("a help text that the build made", () => {
  it("is what the parser prints, of the program and of each command", async () => {
    const dir = join(dirname(PROGRAM), "help");
    const names = (await readdir(dir)).map((file) => file.replace(".txt", ""));
    const verbs = [...(await helpOf()).matchAll(/^ {2}([a-z]+)/gm)].map(([, name = ""]) => name);
    expect(names.sort()).toEqual([...verbs.filter((name) => name !== "help"), "complete", "corral"].sort());
    for (const name of names)
      expect(await readFile(join(dir, `${name}.txt`), "utf8"), name).toBe(
        await helpOf(...(name === "corral" ? [] : [name])),
      );
  });

  it("is printed without the parser where there is no terminal, and by the parser where there is one", async () => {
    const run = (...args: readonly string[]) => spawnSync(process.execPath, [PROGRAM, ...args], { encoding: "utf8" });
    for (const args of [["-h"], ["run", "--help"], ["changes", "-h"]]) {
      const [verb = ""] = args.filter((arg) => !arg.startsWith("-"));
      expect(run(...args).stdout).toBe(await helpOf(...(verb === "" ? [] : [verb])));
      expect(loadedBy(PROGRAM, ...args).some((file) => file.includes("program"))).toBe(false);
    }
    // `script` gives it a terminal of 60 columns.
    const command = `stty cols 60; '${process.execPath}' '${PROGRAM}' --help`;
    const { stdout } = spawnSync("script", ["-qec", command, "/dev/null"], { encoding: "utf8" });
    const lines = stdout.split("\r\n");
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(60);
    expect(lines.length).toBeGreaterThan((await helpOf()).split("\n").length);
    expect(run("../corral", "--help").status).toBe(0);
    expect(run("runn", "--help").stdout).toBe(await helpOf());
    expect(run("changes", "apply", "--help").stdout).toContain("Usage: corral changes apply");
  });
});

describe("each verb of the program", () => {
  it("gets its options when it is named", async () => {
    const verbs = [...(await helpOf()).matchAll(/^ {2}([a-z]+)/gm)].map(([, name = ""]) => name);
    expect(verbs.length).toBeGreaterThan(20);
    for (const verb of [...verbs, "complete"].filter((name) => name !== "help"))
      expect(await helpOf(verb), verb).toContain("print this help");
  });
});

async function helpOf(...verb: readonly string[]): Promise<string> {
  let text = "";
  const stream = { write: (piece: string) => (text += piece) };
  const terminal = { env: {}, cwd: "/", stdout: stream, stderr: stream } as unknown as Terminal;
  expect(await main([...verb, "--help"], terminal)).toBe(0);
  return text;
}
