import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
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

describe("a fleet over a host", () => {
  const attached = ["--attach", "{path}=in.txt"];
  const idIn = (text: string) => /fleet ([0-9a-f]{12})/.exec(text)?.[1] ?? "";

  it("runs a worker over files of the project there, and prints, results and status are those of the machine itself", async () => {
    const far = await over([
      "map",
      "attached",
      "--over",
      "docs/*.txt",
      ...attached,
      "--no-cache",
      "--junit",
      "far.xml",
    ]);
    expect(far).toMatchObject({ status: 0, stdout: "", stderr: expect.stringContaining("1 of 1 item done") });
    const id = idIn(far.stderr);
    for (const args of [
      ["show", id.slice(0, 6)],
      ["results", "latest", "--csv"],
      ["logs", id],
      ["logs", id, "a.txt"],
      ["report", id, "--junit"],
      ["cancel", id],
    ]) {
      const [there, here] = [await over(["fleet", ...args]), await project.corral(["fleet", ...args])];
      const withoutPlace = (text: string) => text.replaceAll(project.dir, "PROJECT");
      expect({ args, ...there }).toEqual({ args, ...here, stdout: withoutPlace(here.stdout) });
    }
    expect(await readFile(join(home, "far.xml"), "utf8")).toContain('tests="1"');
    const [listed] = (await jsonOver(["fleet", "ls"])).fleets;
    const { owner: _, ...known } = (await jsonHere(["fleet", "ls"])).fleets[0];
    expect({ ...listed, project: undefined }).toEqual({ ...known, project: undefined });
    const item = await over(["fleet", "show", id, "a.txt"]);
    expect(item.stdout).toContain("attachment  in.txt\n");
    expect(item.stdout + (await over(["fleet", "show", id, "a.txt", "--json"])).stdout).not.toContain(project.dir);
    expect(await over(["fleet", "show", "nobody"])).toMatchObject({ status: 2 });
  });

  it("sends a manifest of the client, says where its mistakes are, and prints each result as JSON", async () => {
    await writeFile(join(home, "items.jsonl"), '{"n":1}\n{"n":2}\n');
    const map = (file: string, ...more: string[]) => over(["map", "echo", "--manifest", file, ...more]);
    const { status, stdout } = await map("items.jsonl", "--input", '{"of":"{n}"}', "--key", "k{n}", "--json");
    const results = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect([status, results.map(({ key, output, fields }) => [key, output, fields])]).toEqual([
      0,
      [
        ["k1", '{"of":1}\n', { n: 1 }],
        ["k2", '{"of":2}\n', { n: 2 }],
      ],
    ]);
    await writeFile(join(home, "bad.jsonl"), '{"n":1}\n{"n"\n');
    const bad = await map("bad.jsonl");
    expect([bad.status, bad.stderr]).toEqual([2, expect.stringContaining("bad.jsonl:2")]);
    expect((await map("missing.jsonl")).status).toBe(2);
    expect((await over(["map", "attached", "--over", "../*", ...attached])).status).toBe(2);
    expect((await over(["map", "attached", "--over", "none/*", ...attached])).stderr).toContain(
      "PROJECT/none does not exist",
    );
  });

  it("is paused by Ctrl-C, continued by its id, and cancelled", async () => {
    const interrupted = async (...args: string[]) => {
      const child = spawn(process.execPath, [PROGRAM, ...args], { env: envOf(), cwd: home, stdio: "pipe" });
      const ended = new Promise((resolve) => child.on("exit", resolve));
      let said = "";
      child.stderr.setEncoding("utf8").on("data", (piece: string) => {
        said += piece;
      });
      await expect.poll(() => said).toContain("2 items");
      await expect.poll(async () => (await jsonOver(["fleet", "show", "latest"])).counts.running).toBeGreaterThan(0);
      child.kill("SIGINT");
      await expect.poll(() => said).toMatch(/Waiting for|Stopping/);
      child.kill("SIGINT");
      return { status: await ended, said };
    };
    const first = await interrupted("map", "slow", "--manifest", "items.jsonl", "--concurrency", "1");
    expect(first).toMatchObject({ status: 130, said: expect.stringContaining("is paused") });
    const id = idIn(first.said);
    expect((await over(["fleet", "show", id])).stdout).toContain("0 of 2 done");
    const second = await interrupted("fleet", "resume", id);
    expect(second).toMatchObject({ status: 130, said: expect.stringContaining(`fleet ${id} is paused`) });
    expect(second.said.match(/: 2 items/g)).toHaveLength(1);
    expect((await over(["fleet", "cancel", id])).stderr).toContain("2 items will not run");
  });
});

describe("a session over a host", () => {
  it("says that a command, and what was written at the end, waits for an answer, and goes on then", async () => {
    const id = (await over(["session", "start", "asks"])).stdout.trim();
    const answered = async (args: readonly string[], what: RegExp): Promise<unknown> => {
      const running = startWithin(["session", ...args], { env: envOf(), cwd: home });
      running.stdin.end();
      const printed = text(running.stdout);
      const said = String((await once(running.stderr, "data"))[0]);
      const question = new RegExp(`^corral: Worker asks asks to ${what.source}.* Answer with: .* decide (\\w+)$`, "m");
      const [, asked = ""] = question.exec(said) ?? [said];
      expect(await over(["approvals", "decide", asked, "once"])).toMatchObject({ status: 0 });
      return [await running.ended, await printed];
    };
    const command = ["exec", id, "--", "sh", "-c", "echo ran; echo new > /out/at-end.txt"];
    expect(await answered(command, /.*echo ran/)).toEqual([0, "ran\n"]);
    expect(await answered(["stop", id], /write in \/out\/at-end\.txt/)).toEqual([0, ""]);
    expect(await readFile(join(project.dir, "out/at-end.txt"), "utf8")).toBe("new\n");
  });

  it("is started, used, seen and stopped as on the machine itself, by its id", async () => {
    const on = (...args: string[]) => over(["session", ...args]);
    const { stdout } = await on("start", "desk");
    const id = stdout.trim();
    expect(id).toMatch(/^[0-9a-f]{12}$/);
    expect((await on("ls")).stdout).toMatch(new RegExp(`^- +${id} +desk `, "m"));
    const ran = await on("exec", id.slice(0, 6), "--", "sh", "-c", "echo 'a  b'; echo c >&2; exit 7");
    expect(ran).toEqual({ status: 7, signal: null, stdout: "a  b\n", stderr: "c\n" });
    const fed = await over(["session", "exec", id, "-i", "--", "wc", "-c"], "x".repeat(100_000));
    expect(fed).toMatchObject({ status: 0, stdout: "100000\n" });
    expect(await over(["session", "shell", id], "echo in; exit 3\n")).toMatchObject({ status: 3, stdout: "in\n" });
    const command = (await on("exec", id, "--background", "--", "sh", "-c", "echo up; sleep 4765")).stdout.trim();
    await expect.poll(async () => (await on("logs", id, command)).stdout).toBe("up\n");
    const waiting = on("wait", id, command);
    expect(await on("signal", id, command, "KILL")).toMatchObject({ status: 0 });
    expect((await waiting).status).toBe(137);
    await writeFile(join(home, "up.bin"), Buffer.alloc(3_000_000, "ab\0"));
    expect(await on("put", id, join(home, "up.bin"), "/tmp/tree/up.bin")).toMatchObject({ status: 0 });
    expect(await on("get", id, "/tmp/tree", join(home, "down"))).toMatchObject({ status: 0 });
    expect(await readFile(join(home, "down/up.bin"))).toEqual(Buffer.alloc(3_000_000, "ab\0"));
    expect(await on("get", id, "/tmp/tree/up.bin", join(home, "x"), "--max-bytes", "1m")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("--max-bytes"),
    });
    expect((await on("ports", id)).stdout).toContain("8000");
    const serve = `$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1:8000");
      while ($c = $s->accept) { sysread $c, $_, 4096; print $c "HTTP/1.0 200 OK\\r\\n\\r\\nseen"; close $c }`;
    await on("exec", id, "--background", "--", "perl", "-MIO::Socket", "-e", serve);
    await expect.poll(async () => (await on("ports", id)).stdout).toMatch(/^8000 +- +yes/m);
    const forward = spawn(process.execPath, [PROGRAM, "session", "forward", id, "8000"], { env: envOf(), cwd: home });
    const [told] = await once(forward.stdout, "data");
    const [, at] = /^127\.0\.0\.1:(\d+) -> /.exec(String(told)) ?? [];
    expect(await (await fetch(`http://127.0.0.1:${at}/`)).text()).toBe("seen");
    const left = once(forward, "exit");
    forward.kill("SIGINT");
    expect(await left).toEqual([130, null]);
    expect(await on("pause", id)).toMatchObject({ status: 0 });
    expect((await on("ls")).stdout).toContain("paused");
    expect(await on("exec", id, "--", "true")).toMatchObject({ status: 126 });
    expect(await on("resume", id)).toMatchObject({ status: 0 });
    expect((await on("snapshot", id, "kept")).stdout).toMatch(/^[0-9a-f]{12}\n$/);
    await on("exec", id, "--", "sh", "-c", "echo later > /out/later");
    expect((await on("diff", id, "kept")).stdout).toMatch(/^create +file +6 +\/out\/later$/m);
    expect((await on("snapshots", id)).stdout).toMatch(/^[0-9a-f]{12} +kept +desk /m);
    const fork = (await on("fork", id)).stdout.trim();
    expect(await on("restore", id, "kept")).toMatchObject({ status: 0 });
    expect((await on("exec", id, "--", "ls", "/out")).stdout).not.toContain("later");
    expect((await on("exec", fork, "--", "cat", "/out/later")).stdout).toBe("later\n");
    const again = (await on("start", "desk", "--from", "kept")).stdout.trim();
    for (const one of [fork, again]) expect(await on("stop", one, "--discard")).toMatchObject({ status: 0 });
    expect(await on("snapshots", id, "--rm", "kept")).toMatchObject({ status: 0 });
    expect(await on("snapshots")).toMatchObject({ status: 2, stderr: expect.stringContaining("name a session") });
    expect(await on("stop", id)).toMatchObject({ status: 0 });
    expect(await on("exec", id, "--", "true")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("there is no session"),
    });
  });
});

describe("a session with a name over a host", () => {
  it("is meant by its name, which no other open session has, and stays for as long as was said", async () => {
    const on = (...args: string[]) => over(["session", ...args]);
    expect(await on("start", "desk", "--name", "dev", "--idle", "45m")).toMatchObject({ status: 0, stdout: "dev\n" });
    expect((await on("ls")).stdout).toMatch(/^dev +[0-9a-f]{12} +desk /m);
    expect(await on("start", "desk", "--name", "dev")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("a session dev is open already"),
    });
    expect(await on("exec", "dev", "--", "sh", "-c", "echo mine > /out/mine")).toMatchObject({ status: 0 });
    expect(await on("fork", "dev", "--name", "try")).toMatchObject({ status: 0, stdout: "try\n" });
    expect((await on("exec", "try", "--", "cat", "/out/mine")).stdout).toBe("mine\n");
    for (const name of ["dev", "try"]) expect(await on("stop", name, "--discard")).toMatchObject({ status: 0 });
    const id = (await on("start", "desk")).stdout.trim();
    for (const name of [id, id.slice(0, 5)])
      expect(await on("start", "desk", "--name", name)).toMatchObject({ status: 0 });
    expect(await on("pause", id)).toMatchObject({ status: 0 });
    expect(await on("pause", id.slice(0, 5))).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("there are several sessions"),
    });
    const all: { id: string; name: string | null; isPaused: boolean }[] = JSON.parse((await on("ls", "--json")).stdout);
    const own = all.filter((one) => one.id === id || one.name?.startsWith(id.slice(0, 5)));
    expect(own.map((one) => [one.id === id, one.isPaused])).toEqual([
      [true, true],
      [false, false],
      [false, false],
    ]);
    for (const one of own) expect(await on("stop", one.id)).toMatchObject({ status: 0 });
    expect(await on("start", "desk", "--idle", "2h", "--end-after", "1h")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("--end-after is longer than --idle"),
    });
    expect(await on("start", "desk", "--name", "dev")).toMatchObject({ status: 0 });
    expect(await on("stop", "dev")).toMatchObject({ status: 0 });
  });
});

describe("corral convert over a host", () => {
  it("sends files of the client, and writes the results, the report and the status of the machine itself", async () => {
    const files = {
      "in/sub/report.html": "<!doctype html><html><body><p>Words of a page</p></body></html>",
      "in/report.html": "not a page\n",
      "in/broken.docx": "PK\u0003\u0004 this is no archive",
      "in/new\nline": "a name of two lines\n",
      "in/nothing": "",
      "far/report%2Ehtml/stale.txt": "of an earlier time\n",
      "far/broken.docx/stale.txt": "of an earlier time\n",
    };
    for (const [name, content] of Object.entries(files)) {
      await mkdir(dirname(join(home, name)), { recursive: true });
      await writeFile(join(home, name), content);
    }
    await symlink("/etc/passwd", join(home, "in/link"));
    const convert = (out: string) => ["convert", "--to", "text", join(home, "in"), "--out", join(home, out), "--json"];
    const [far, near] = [await over(convert("far")), await project.corral(convert("near"))];
    expect([far.status, near.status], far.stderr).toEqual([1, 1]);
    const linesOf = (text: string) =>
      text
        .trimEnd()
        .split("\n")
        .map((line) => ({ ...JSON.parse(line), run: null, durationMs: 0, memoryBytesPeak: null }))
        .toSorted((one, other) => one.file.localeCompare(other.file));
    expect(linesOf(far.stdout)).toEqual(linesOf(near.stdout));
    const said = (text: string) => text.split("\n").filter((line) => /left out|[a-z] not possible:/.test(line));
    expect(said(far.stderr).toSorted()).toEqual(said(near.stderr.replaceAll("/near/", "/far/")).toSorted());
    const treeOf = async (out: string) => (await readdir(join(home, out), { recursive: true })).toSorted();
    expect(await treeOf("far")).toEqual(await treeOf("near"));
    const made = ["sub/report.html/text.txt", "report%2Ehtml/text.txt", "new%0Aline/text.txt"];
    for (const name of made)
      expect(await readFile(join(home, "far", name))).toEqual(await readFile(join(home, "near", name)));
    expect(linesOf(await readFile(join(home, "far/results.jsonl"), "utf8"))).toHaveLength(5);
    expect(await readFile(join(home, "far/report.html"), "utf8")).toBe(
      await readFile(join(home, "near/report.html"), "utf8"),
    );
    expect((await service.ask("GET", "/v1/conversions")).json.conversions).toEqual([]);
  });

  it("refuses what only the machine itself has, and what is not there", async () => {
    const convert = (...more: string[]) => over(["convert", "--to", "text", ...more]);
    for (const option of ["--retry", "--no-cache", "--init=x"])
      expect(await convert("in", "--out", "x", option)).toMatchObject({
        status: 2,
        stderr: expect.stringContaining("works on the machine itself"),
      });
    expect(await convert("nowhere", "--out", "x")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("there is no such file or folder"),
    });
    expect(await convert("in", "--out", "in")).toMatchObject({ status: 2 });
  });
});

describe("corral tool over a host", () => {
  it("is one tool in the sandbox of a worker there, with the answers and statuses of the machine itself", async () => {
    const read = ["tool", "read_file", '{"path": "/docs/a.txt"}', "--worker", "desk"];
    const there = await over(read);
    expect(there).toMatchObject({ status: 0, stdout: expect.stringContaining("a document") });
    expect(there).toEqual(await project.corral(read));
    expect(await over(["tool", "exec", '{"command": "echo a; exit 4"}', "--worker", "desk"])).toMatchObject({
      status: 4,
    });
    const refused = ["tool", "read_file", '{"path": "/nowhere"}', "--worker", "desk"];
    expect(await over(refused)).toEqual(await project.corral(refused));
    const names = (tools: { name: string }[]) => tools.map(({ name }) => name);
    const listed = ["tool", "--worker", "desk"];
    expect(names(await jsonOver(listed))).toEqual(names(await jsonHere(listed)));
    expect(await over(["tool", "read_file", "{}"])).toMatchObject({ status: 2 });
    expect((await over(["session", "ls"])).stdout).not.toContain("desk");
  });
});

describe("other commands over a host", () => {
  it("list and show what the machine itself has, without its paths", async () => {
    expect((await over(["workers", "ls"])).stdout).toBe((await project.corral(["workers", "ls"])).stdout);
    const [there, here] = [(await jsonOver(["runs", "ls"])).runs, (await jsonHere(["runs", "ls"])).runs];
    expect(there.map(({ id }: { id: string }) => id)).toEqual(here.map(({ id }: { id: string }) => id));
    const { owner: _, project: folder, ...shown } = await jsonHere(["runs", "show", "latest"]);
    const { project: name, callCount, hasEvents, ...far } = await jsonOver(["runs", "show", "latest"]);
    expect(far).toEqual(shown);
    expect([callCount, hasEvents, folder.endsWith(name)]).toEqual([0, false, true]);
    expect((await over(["audit", "--type", "run_ended"])).stdout).toBe(
      (await project.corral(["audit", "--type", "run_ended"])).stdout,
    );
    expect((await over(["grants"])).stderr).toBe("There are no grants.\n");
    expect((await over(["-C", "other", "runs", "ls"])).stderr).toContain("no such project");
  });

  it("explain, check, measure and list what is on the machine of the service", async () => {
    const [there, here] = [await over(["explain", "echo"]), await project.corral(["explain", "echo"])];
    expect([there.status, there.stdout.split("\n").length]).toEqual([0, here.stdout.split("\n").length]);
    expect(there.stdout).toContain("network    none");
    expect(there.stdout).not.toContain(project.dir);
    expect((await jsonOver(["explain", "hungry"])).tree.refused).toEqual(
      (await jsonHere(["explain", "hungry"])).tree.refused,
    );
    expect((await over(["explain", "hungry"])).status).toBe(1);
    expect(await over(["check"])).toEqual(await project.corral(["check"]));
    expect(await over(["images", "ls"])).toEqual(await project.corral(["images", "ls"]));
    const names = (await jsonHere(["du"])).map(({ name }: { name: string }) => name);
    expect((await jsonOver(["du"])).map(({ name }: { name: string }) => name)).toEqual(names);
    expect((await over(["ps"])).stderr).toBe("There are no containers.\n");
    expect((await over(["doctor"])).stdout).toContain("corral/base");
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
  const { id: fleet } = (await jsonOver(["fleet", "ls"])).fleets.at(-1);
  await using proxy = await httpServer((from, to) => {
    const headers = { ...from.headers, host: `127.0.0.1:${service.port}` };
    const passed = httpRequest(
      { host: "127.0.0.1", port: service.port, method: from.method, path: from.url, headers },
      async (answer) => {
        const content = await text(answer);
        to.writeHead(answer.statusCode ?? 502, { "content-type": "application/json" });
        const lines = content.split("\n");
        to.end(
          lines.map((line) => (line.startsWith("{") ? JSON.stringify(poisoned(JSON.parse(line))) : line)).join("\n"),
        );
      },
    );
    from.pipe(passed);
  });
  const commands = [
    ["runs", "ls"],
    ["fleet", "ls"],
    ["fleet", "show", fleet],
    ["fleet", "show", fleet, "a.txt"],
    ["fleet", "results", fleet, "--json"],
    ["runs", "show", run],
    ["runs", "show", "latest"],
    ["runs", "stop", run],
    ["workers", "ls"],
    ["explain", "hungry"],
    ["check"],
    ["images", "ls"],
    ["du"],
    ["doctor"],
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
