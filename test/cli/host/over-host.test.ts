import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { httpServer } from "../../egress/servers.ts";
import { project, service, serviceForAll } from "../../serve/service-for-all.ts";
import { PROGRAM } from "../program.ts";
import { startWithin, withinProcess } from "../within-process.ts";

serviceForAll();

/** A user of another machine: another home, and no state directory, no project and no Engine that could be used. */
let home = "";
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "corral-home-"));
});
afterAll(() => rm(home, { recursive: true, force: true }));

const envOf = (port = service.port) => ({
  HOME: home,
  NO_COLOR: "1",
  PATH: "/nowhere",
  CORRAL_HOST: `http://127.0.0.1:${port}`,
  CORRAL_TOKEN: service.token,
  CORRAL_STATE_DIR: "/dev/null/state",
  DOCKER_HOST: "unix:///nowhere/docker.sock",
});
const over = (args: readonly string[], stdin = "") => withinProcess(args, { env: envOf(), cwd: home, stdin });
const jsonOver = async (args: readonly string[]) => JSON.parse((await over([...args, "--json"])).stdout);
const jsonHere = async (args: readonly string[]) => JSON.parse((await project.corral([...args, "--json"])).stdout);

describe("corral run over a host", () => {
  it("sends files of the client, and prints to the byte what the worker printed, with its exit status", async () => {
    const bytes = Buffer.from([0xff, 0x00, 0xc3, 0x0a, 0x1b, 0x5b]);
    await writeFile(join(home, "a.bin"), bytes);
    const child = spawn(process.execPath, [PROGRAM, "run", "attached", "--attach", "a.bin=b.bin"], {
      env: envOf(),
      cwd: home,
      stdio: ["ignore", "pipe", "inherit"],
    });
    const printed = await buffer(child.stdout);
    expect(printed).toEqual(Buffer.concat([Buffer.from("b.bin\n"), bytes]));
    expect((await over(["run", "words", "--", "a", "b c"])).stdout).toBe("a b c\n");
    expect(await over(["run", "echo", "--input", '{"a":1}'])).toMatchObject({ status: 0, stdout: '{"a":1}\n' });
    await writeFile(join(home, "input.json"), '\uFEFF{"a":\r\n2}\r\n');
    expect(await over(["run", "echo", "--input", "@input.json"])).toMatchObject({ status: 0, stdout: '{"a":2}\n' });
  });

  it("answers with the same JSON as on the machine, and with the same statuses and errors", async () => {
    const [there, here] = [await jsonOver(["run", "words"]), await jsonHere(["run", "words"])];
    expect(Object.keys(there)).toEqual(Object.keys(here));
    expect(there).toMatchObject({ status: "succeeded", stdout: "\n", worker: "words" });
    const refused = ["run", "hungry"];
    const [far, near] = [await over(refused), await project.corral(refused)];
    expect([far.status, near.status]).toEqual([126, 126]);
    expect(far.stderr).toBe(near.stderr);
    const unknown = ["run", "nobody", "--json"];
    expect(await over(unknown)).toEqual(await project.corral(unknown));
  });

  it("ends as cancelled with Ctrl-C, there too", async () => {
    const child = spawn(process.execPath, [PROGRAM, "run", "slow"], { env: envOf(), cwd: home, stdio: "pipe" });
    const status = new Promise((resolve) => child.on("exit", resolve));
    await new Promise((up) => child.stdout.once("data", up));
    child.kill("SIGINT");
    expect(await status).toBe(130);
    const [run] = (await jsonOver(["runs", "ls", "--worker", "slow"])).runs;
    expect(run.status).toBe("cancelled");
    expect((await over(["runs", "logs", run.id, "-n", "1"])).stdout).toMatch(/^tick \d+\n$/);
    expect((await over(["runs", "stop", run.id])).stderr).toContain("has already ended: it is cancelled");
  });

  it("says what it asks, and goes on when that was answered over the host", async () => {
    const running = startWithin(["run", "asks"], { env: envOf(), cwd: home });
    running.stdin.end();
    const told = once(running.stderr, "data");
    await expect.poll(async () => (await jsonOver(["approvals", "ls"])).approvals).toHaveLength(1);
    const [{ id, digest }] = (await jsonOver(["approvals"])).approvals;
    expect(String(await told)).toContain(
      `Worker asks asks to write in /out/asked.txt. Answer with: corral approvals decide ${id}`,
    );
    expect((await over(["approvals", "show", id.slice(0, 6)])).stdout).toContain(digest);
    expect(await over(["approvals", "decide", id, "once"])).toMatchObject({ status: 0 });
    expect(await over(["approvals", "decide", id, "no"])).toMatchObject({ status: 1 });
    expect(await running.ended).toBe(0);
    expect(await readFile(join(project.dir, "out/asked.txt"), "utf8")).toBe("asked\n");
  });

  it("asks the person at the terminal", async () => {
    await rm(join(project.dir, "out/asked.txt"), { force: true });
    const { stdin, stderr, stdout, ended } = startWithin(["run", "asks"], { env: envOf(), cwd: process.cwd() });
    for (const stream of [stdin, stdout, stderr])
      Object.assign(stream, { isTTY: true, setRawMode: () => stdin, columns: 100, rows: 40 });
    let shown = "";
    stderr.setEncoding("utf8").on("data", (piece: string) => {
      shown += piece;
    });
    stdout.resume();
    await expect.poll(() => shown).toContain("Yes, once");
    stdin.write("\u001b[B");
    await expect.poll(() => shown).toMatch(/● Yes, once/);
    stdin.write("\r");
    expect(await ended).toBe(0);
  });
});

describe("other commands over a host", () => {
  it("list and show what the machine itself has, without its paths", async () => {
    expect((await over(["workers", "ls"])).stdout).toBe((await project.corral(["workers", "ls"])).stdout);
    const [there, here] = [(await jsonOver(["runs", "ls"])).runs, (await jsonHere(["runs", "ls"])).runs];
    expect(there.map(({ id }: { id: string }) => id)).toEqual(here.map(({ id }: { id: string }) => id));
    const { owner: _, project: folder, ...shown } = await jsonHere(["runs", "show", "latest"]);
    const { project: name, callCount, ...far } = await jsonOver(["runs", "show", "latest"]);
    expect(far).toEqual(shown);
    expect([callCount, folder.endsWith(name)]).toEqual([0, true]);
    expect((await over(["audit", "--type", "run_ended"])).stdout).toBe(
      (await project.corral(["audit", "--type", "run_ended"])).stdout,
    );
    expect((await over(["grants"])).stderr).toBe("There are no grants.\n");
    expect((await over(["-C", "other", "runs", "ls"])).stderr).toContain("no such project");
  });

  it("review, apply and discard changes with the same outcomes", async () => {
    expect((await over(["run", "writer"])).status).toBe(3);
    const { stdout } = await over(["changes", "ls"]);
    expect(stdout).toMatch(/^[0-9a-f]{12} +writer/m);
    expect((await over(["changes", "diff", "latest"])).stdout).toBe(
      (await project.corral(["changes", "diff", "latest"])).stdout,
    );
    expect((await over(["changes", "show", "latest"])).stdout).toBe(
      (await project.corral(["changes", "show", "latest"])).stdout,
    );
    const withoutPerson = await over(["changes", "apply", "latest"]);
    expect(withoutPerson).toMatchObject({ status: 1, stderr: expect.stringContaining("Nothing was applied") });
    expect(await over(["changes", "apply", "latest", "--yes", "--digest", "0".repeat(64)])).toMatchObject({
      status: 1,
    });
    await expect(readFile(join(project.dir, "out/new.txt"))).rejects.toThrow("ENOENT");
    expect(await over(["changes", "apply", "latest", "--yes", "--only", "/out/dir/x"])).toMatchObject({
      status: 0,
      stdout: "2 applied; 1 wait\n",
    });
    expect(await over(["changes", "apply", "latest", "--yes"])).toMatchObject({ status: 0, stdout: "1 applied\n" });
    expect(await readFile(join(project.dir, "out/new.txt"), "utf8")).toBe("new\n");
    await rm(join(project.dir, "out/new.txt"));
    expect((await over(["run", "linker"])).status).toBe(3);
    expect((await over(["changes", "discard", "latest"])).stdout).toMatch(/^discarded [0-9a-f]{12}\n$/);
    expect((await over(["changes", "ls"])).stderr).toBe("No changes wait.\n");
  });
});

it("lets no text of a service reach the terminal as more than text", async () => {
  const poison = "\u001b]0;owned\u0007\u202e\r";
  const poisoned = (value: unknown): unknown => {
    if (typeof value === "string") return `${value}${poison}`;
    if (Array.isArray(value)) return value.map(poisoned);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, poisoned(one)]));
  };
  // A list that is not empty for each of them.
  expect((await over(["run", "linker"])).status).toBe(3);
  await rm(join(project.dir, "out/asked.txt"), { force: true });
  const asking = over(["run", "asks"]);
  await expect.poll(async () => (await jsonOver(["approvals"])).approvals).toHaveLength(1);
  const [{ id }] = (await jsonOver(["approvals"])).approvals;
  const [{ id: changeset }] = await jsonOver(["changes", "ls"]);
  const [{ id: run }] = (await jsonOver(["runs", "ls"])).runs;
  await using proxy = await httpServer((from, to) => {
    const headers = { ...from.headers, host: `127.0.0.1:${service.port}` };
    const passed = httpRequest(
      { host: "127.0.0.1", port: service.port, method: from.method, path: from.url, headers },
      async (answer) => {
        const content = await text(answer);
        to.writeHead(answer.statusCode ?? 502, { "content-type": "application/json" });
        to.end(content.startsWith("{") ? JSON.stringify(poisoned(JSON.parse(content))) : content);
      },
    );
    from.pipe(passed);
  });
  const commands = [
    ["runs", "ls"],
    ["runs", "show", run],
    ["runs", "show", "latest"],
    ["runs", "stop", run],
    ["workers", "ls"],
    ["approvals", "ls"],
    ["approvals", "ls", "--decided"],
    ["approvals", "show", id],
    ["changes", "ls"],
    ["changes", "show", changeset],
    ["changes", "diff", changeset],
    ["audit"],
    ["run", "nobody"],
    ["runs", "ls", "--json"],
  ];
  for (const args of commands) {
    const { stdout, stderr, ended } = startWithin(args, { env: envOf(proxy.port), cwd: process.cwd() });
    for (const stream of [stdout, stderr]) Object.assign(stream, { isTTY: true, columns: 200, rows: 40 });
    const [, out, err] = await Promise.all([ended, text(stdout), text(stderr)]);
    expect(`${out}${err}`.length).toBeGreaterThan(10);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    expect(`${args.join(" ")}: ${/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/.exec(out + err)}`).toBe(
      `${args.join(" ")}: null`,
    );
  }
  await over(["approvals", "decide", id, "no"]);
  await asking;
});
