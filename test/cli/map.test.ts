import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

const text = { name: "text", mode: "rw", approval: "pre_approved" };
const COPY =
  'read -r x < /attachments/in; cat > /dev/null; case "$x" in *bad*) echo this is bad >&2; exit 3;; esac; echo "$x" | tee "$(echo /text/*)/out"';
const EACH = ["--attach", "{path}=in", "--allow-read", "/text/{stem}", "--allow-write", "/text/{stem}"];

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "batch",
      sandbox: { mode: "direct", zones: { text: { path: "text", mode: "rw" }, inbox: { path: "inbox", mode: "ro" } } },
    },
    workers: {
      copy: { command: sh(COPY), sandbox: { zones: [text] } },
      echo: { command: ["cat"], output: "json" },
      fails: { command: ["false"] },
      sleeps: { command: ["sleep", "60"], limits: { timeout: "5m" } },
      reads: { command: ["cat"], sandbox: { zones: [{ name: "inbox", mode: "ro" }] } },
      asks: { command: sh("echo x > /text/asked"), sandbox: { zones: [{ name: "text", mode: "rw" }] } },
      greedy: { command: ["true"], sandbox: { zones: [{ name: "inbox", mode: "rw" }] } },
    },
    folders: ["text"],
    files: {
      "inbox/a.txt": "document a\n",
      "inbox/b.txt": "document b\n",
      "other/c.txt": "bad\n",
      "other/d.txt": "document d\n",
      "twice/a.txt": "1\n",
      "twice/a.pdf": "2\n",
      "items.jsonl": '{"n":1,"who":"\\"}, {"}\n{"n":2,"who":"b"}\n',
      "items.csv": "n,who\n1,a\n2,b\n",
      "broken.jsonl": '{"n":1}\n{"n":\n',
      "twice.jsonl": '{"n":1}\n{"n":1}\n',
      "empty.csv": "n,who\n",
      "fleets/mistaken.yaml": JSON.stringify({
        version: 1,
        worker: "echo",
        over: "inbox/*",
        attach: ["{pth}=in"],
        input: ["{stm}"],
      }),
      "fleets/nightly.yaml": JSON.stringify({
        version: 1,
        worker: "copy",
        over: "inbox/*.txt",
        attach: ["{path}=in"],
        allow_write: ["/text/nightly-{stem}"],
        reuse: "scrubbed",
      }),
    },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

function lines(stdout: string): Record<string, unknown>[] {
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

async function newest(): Promise<{ id: string; state: string; spec: { worker: string } }> {
  const { stdout } = await project.corral(["fleet", "ls", "--json"]);
  const [fleet] = JSON.parse(stdout).fleets as { id: string; state: string; spec: { worker: string } }[];
  if (fleet === undefined) throw new Error("there is no fleet");
  return fleet;
}

describe("corral map", () => {
  it("runs one worker over the files of a pattern, and prints nothing but results with --json", async () => {
    const { status, stdout, stderr } = await project.built(["map", "copy", "--over", "inbox/*.txt", ...EACH, "--json"]);
    expect(status, stderr).toBe(0);
    const results = lines(stdout).toSorted((a, b) => Number(a.index) - Number(b.index));
    expect(results).toMatchObject([
      { index: 0, status: "succeeded", exitCode: 0, output: "document a\n" },
      { index: 1, status: "succeeded", output: "document b\n" },
    ]);
    expect(await readFile(join(project.dir, "text/b/out"), "utf8")).toBe("document b\n");
    const again = await project.corral(["map", "copy", "--over", "inbox/*.txt", ...EACH, "--json"]);
    expect(lines(again.stdout).map((line) => line.status)).toEqual(["cached", "cached"]);
    expect(again.status).toBe(0);
    const { id } = await newest();
    expect((await project.corral(["fleet", "show", id])).stdout, "cached items took no time").not.toContain("Slowest");
    const retried = await project.corral(["fleet", "retry", id]);
    expect(retried.stderr).toContain(`fleet ${id} has no failed items`);
    expect([retried.status, (await newest()).id]).toEqual([126, id]);
  });

  it("takes items from manifests and from standard input, and keeps their values inside of their texts", async () => {
    const input = ["--input", '{"n":"{n}","who":"<{who}>"}', "--json", "--reuse", "scrubbed"];
    const [jsonl, csv, stdin] = await Promise.all([
      project.corral(["map", "echo", "--manifest", "items.jsonl", ...input]),
      project.corral(["map", "echo", "--manifest", "items.csv", ...input]),
      project.corral(["map", "echo", "--manifest", "-", "--format", "csv", ...input], { stdin: "n,who\n7,z\n" }),
    ]);
    const outputs = ({ stdout }: { stdout: string }) => lines(stdout).map((line) => line.output);
    expect(outputs(jsonl)).toContainEqual({ n: 1, who: '<"}, {>' });
    expect(outputs(csv)).toContainEqual({ n: "2", who: "<b>" });
    expect(outputs(stdin)).toEqual([{ n: "7", who: "<z>" }]);
    expect([jsonl.status, csv.status, stdin.status]).toEqual([0, 0, 0]);
  });

  it("runs what fleets/NAME.yaml says, and lets the command line say otherwise", async () => {
    const { status, stdout, stderr } = await project.corral([
      "map",
      "--fleet",
      "nightly",
      "--no-cache",
      "--concurrency",
      "1",
      "--json",
    ]);
    expect(status, stderr).toBe(0);
    expect(lines(stdout)).toHaveLength(2);
    expect(await readdir(join(project.dir, "text"))).toContain("nightly-a");
  });

  it("runs as corral.yaml says of all fleets, as far as the command line does not", async () => {
    await using other = await cliProject({
      yaml: { version: 1, policy: "batch", fleet: { concurrency: 1, reuse: "scrubbed", retries: 1, max_failures: 7 } },
      workers: { echo: { command: ["cat"] } },
      files: { "items.csv": "n\n1\n" },
    });
    const map = ["map", "echo", "--manifest", "items.csv", "--input", '"{n}"', "--json"];
    expect((await other.corral(map)).status).toBe(0);
    expect((await other.corral([...map, "--concurrency", "auto", "--reuse", "fresh", "--retries", "0"])).status).toBe(
      0,
    );
    const listed = JSON.parse((await other.corral(["fleet", "ls", "--json"])).stdout);
    expect(listed.more).toBe(false);
    const cut = await other.corral(["fleet", "ls", "--json", "--limit", "1"]);
    expect(JSON.parse(cut.stdout)).toEqual({ fleets: [listed.fleets[0]], more: true });
    expect(cut.stderr).toBe("");
    expect((await other.corral(["fleet", "ls", "--limit", "1"])).stderr).toBe(
      "corral: there are more; listed are the newest 1\n",
    );
    expect(listed.fleets.map(({ spec }: { spec: unknown }) => spec)).toMatchObject([
      { concurrency: "auto", reuse: "fresh", retries: 0, maxFailures: 7 },
      { concurrency: 1, reuse: "scrubbed", retries: 1, maxFailures: 7 },
    ]);
  });

  it("ends with 1 where an item failed; shows, exports, reports and tries it again", async () => {
    const args = ["map", "copy", "--over", "other/*.txt", ...EACH, "--retries", "1"];
    const { status, stdout, stderr } = await project.corral(args);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr).toContain("failed");
    const { id, state, spec } = await newest();
    expect([state, spec.worker]).toEqual(["done", "copy"]);
    const of = (verb: string, ...more: string[]) => project.corral(["fleet", verb, id, ...more]);
    const [ls, show, shown, jsonl, csv, report] = await Promise.all([
      project.corral(["fleet", "ls"]),
      of("show"),
      of("show", "--json"),
      of("results", "--status", "failed"),
      of("results", "--csv"),
      of("report", "--html", "--output", "report.html"),
    ]);
    expect(ls.stdout).toContain(id);
    expect(show.stdout).toMatch(/2 of 2 done, 1 failed/);
    expect(JSON.parse(shown.stdout)).toMatchObject({ id, counts: { total: 2, done: 2, failed: 1 } });
    expect(lines(jsonl.stdout)).toMatchObject([{ status: "failed", exitCode: 3, attempt: 2 }]);
    expect(csv.stdout).toMatch(/^index,.*,stderr_line,item\.path\r?\n0,.*c\.txt\r?\n/);
    expect(stderr).toMatch(/corral: c\.txt failed: this is bad \(Worker copy ended with exit code 3\.\)/);
    expect(stderr).toContain("corral: failures:\n  1 item: this is bad (e.g. c.txt)\n");
    expect(show.stdout).toContain("Failures:\n1 item: this is bad (e.g. c.txt)\n");
    const [item, itemJson, log, logs, unknown] = await Promise.all([
      of("show", "c.txt"),
      of("show", "c.txt", "--json"),
      of("logs", "c.txt"),
      of("logs", "--failed"),
      of("logs", "c.tx"),
    ]);
    expect(item.stdout).toMatch(
      /^Item c\.txt: failed, exit code 3\n[\s\S]*attachment {2}in {2}.*c\.txt\nmay read {4}\/text\/c\n[\s\S]*stderr:\n {2}this is bad\n/,
    );
    expect(JSON.parse(itemJson.stdout)).toMatchObject({
      key: "c.txt",
      result: { exitCode: 3, stderrLine: "this is bad" },
    });
    expect(log).toMatchObject({ status: 0, stdout: "", stderr: "this is bad\n" });
    expect(logs.stdout).toBe("==> c.txt (failed, exit code 3) stderr\nthis is bad\n");
    expect(unknown).toMatchObject({ status: 2, stderr: expect.stringContaining("did you mean `c.txt`?") });
    expect((await of("logs", "d.txt")).stdout).toBe("document d\n");
    expect(report.status, report.stderr).toBe(0);
    expect(await readFile(join(project.dir, "report.html"), "utf8")).toMatch(/^<!doctype html>/i);
    expect((await of("results", "--status", "failed", "--json")).stdout).toBe(jsonl.stdout);
    const [retry, resume] = [await of("retry", "--failed", "--json"), await of("resume")];
    expect(lines(retry.stdout)).toMatchObject([{ status: "failed", exitCode: 3, attempt: 4 }]);
    expect([retry.status, (await newest()).id]).toEqual([1, id]);
    expect((await of("show", "c.txt")).stdout).toMatch(/^earlier +attempt 2, .*, failed, exit code 3: this is bad$/m);
    const retriedAsNew = await of("retry", "--new", "--json");
    expect(lines(retriedAsNew.stdout)).toMatchObject([{ index: 0, status: "failed", exitCode: 3, attempt: 2 }]);
    expect((await newest()).id).not.toBe(id);
    expect(resume.stderr).toContain("no item is left");
    expect(resume.status).toBe(126);
    expect(await of("cancel")).toMatchObject({
      status: 0,
      stderr: `Fleet ${id} has already ended: it is done.\n`,
    });
    const [mistyped, nowhere] = [await of("results", "--status", "faild"), await of("report", "--output", "no/where")];
    expect(mistyped).toMatchObject({
      status: 2,
      stdout: "",
      stderr: expect.stringContaining("did you mean `failed`?"),
    });
    expect(nowhere).toMatchObject({ status: 2, stderr: expect.stringMatching(/^corral: --output no\/where: ENOENT/) });
  });

  it("begins nothing more after too many failures, and what waits can be cancelled then", async () => {
    const stdin = Array.from({ length: 12 }, (_, n) => `{"n":${n}}\n`).join("");
    const args = ["map", "fails", "--manifest", "-", "--max-failures", "0", "--concurrency", "1", "--json"];
    const { status, stdout, stderr } = await project.corral(args, { stdin });
    expect(status, stderr).toBe(1);
    expect(stderr).toContain("more than 0 items failed");
    // Once, and not in other words again.
    expect(stderr.match(/corral fleet resume/g)).toHaveLength(1);
    const done = lines(stdout).length;
    expect(done).toBeLessThan(12);
    const { id } = await newest();
    const cancelled = await project.corral(["fleet", "cancel", id]);
    expect(cancelled).toMatchObject({
      status: 0,
      stderr: `Fleet ${id} is cancelled; ${12 - done} items will not run.\n`,
    });
    const { stdout: results } = await project.corral(["fleet", "results", id, "--status", "cancelled"]);
    expect(lines(results)).toHaveLength(12 - done);
    expect((await newest()).state).toBe("cancelled");
  });

  it("is forgotten when somebody says so, once it has ended", async () => {
    const of = async (...args: string[]) => await project.corral(["fleet", ...args]);
    const stopping = ["map", "fails", "--manifest", "-", "--max-failures", "0", "--concurrency", "1"];
    await project.corral(stopping, { stdin: '{"n":1}\n{"n":2}\n{"n":3}\n' });
    const { id } = await newest();
    const refused = await of("rm", id);
    expect(refused.status).toBe(2);
    expect(refused.stderr).toContain(`fleet ${id} is paused; only a fleet that has ended can be removed`);
    expect((await of("rm")).stderr).toContain("--before");
    expect((await of("rm", "--before", "yesterday-ish")).stderr).toContain("takes a date such as");
    expect((await of("rm", "--before", "2020-01-01")).stderr).toBe("0 fleets are removed.\n");
    await of("cancel", id);
    expect(await of("rm", id)).toMatchObject({ status: 0, stderr: "1 fleet is removed.\n" });
    expect((await of("show", id)).stderr).toContain("there is no fleet");
    await of("rm", "--before", "2999-01-01");
    expect((await of("ls")).stderr).toBe("There are no fleets.\n");
  });

  it("asks nobody what needs agreement, and says so", async () => {
    const { status, stderr } = await project.corral(["map", "asks", "--manifest", "-"], { stdin: '{"n":1}\n' });
    expect(stderr).toMatch(/fleet [0-9a-f]{12} is pending after .*, 1 of 1 item done\n +1 {2}pending\n/);
    expect(stderr).toMatch(/the changes of 1 item wait for consent: `corral changes apply --fleet [0-9a-f]{12}` shows/);
    expect(status).toBe(3);
  });

  it("refuses only the items of which no request can be made, and says why", async () => {
    const stdin = '{"n":1,"who":"a"}\n{"n":2}\n{"n":3,"who":"c"}\n';
    const args = ["map", "echo", "--manifest", "-", "--input", '"{who}"', "--key", "{index:3}", "--json"];
    const { status, stdout } = await project.corral(args, { stdin });
    const results = lines(stdout).toSorted((a, b) => Number(a.index) - Number(b.index));
    expect(results).toMatchObject([
      { key: "000", status: "succeeded" },
      { key: "001", status: "refused", error: { message: expect.stringContaining("there is no field `who`") } },
      { key: "002", status: "succeeded", output: "c" },
    ]);
    expect(status).toBe(1);
  });

  it.each([
    [
      ["echo", "--over", "inbox/*", "--attach", "{pat}=in", "--key", "{nam}"],
      [
        /^corral: --attach \{pat\}=in: there is no field `pat`, did you mean `path`\? The fields are: name,.* hash$/m,
        /^corral: --key \{nam\}: .*`name`/m,
      ],
    ],
    [["echo", "--manifest", "items.csv", "--input", '{"x": "<{whom}>"}'], [/^corral: --input: "<\{whom\}>": .*`who`/m]],
    [["echo", "--manifest", "items.csv", "--input", '{"x": '], [/^corral: --input: is not JSON/m]],
    [
      ["copy", "--over", "inbox/*", "--allow-write", "/txt/{stem}"],
      [/^corral: --allow-write \/txt\/\{stem\}: .*\/text/m],
    ],
    [
      ["copy", "--over", "inbox/*", "--allow-write", "/text/{path}"],
      [/^corral: --allow-write \/text\/\{path\}: .* is absolute; use `\{relative\}`/m],
    ],
    [
      ["reads", "--over", "inbox/*", "--allow-read", "/inbox", "--allow-write", "/inbox/{stem}"],
      [/^corral: --allow-write \/inbox\/\{stem\}: /m],
    ],
    [
      ["--fleet", "mistaken"],
      [
        /^fleets\/mistaken.yaml:1:\d+: attach\.0: \{pth\}=in: .*`path`/m,
        /^fleets\/mistaken.yaml:1:\d+: input: "\{stm\}": .*`stem`/m,
      ],
    ],
    [["echo", "--manifest", "empty.csv"], [/^corral: empty.csv has no items\..*--allow-empty/]],
    [["echo", "--manifest", "items.csv", "--timeout", "30"], [/--timeout must be a duration such as/]],
  ])("reports a mistake once, before there is a fleet: %j", async (args, says) => {
    const before = await newest().catch(() => null);
    const { status, stdout, stderr } = await project.corral(["map", ...args]);
    for (const text of says) expect(stderr).toMatch(text);
    expect(stderr.trim().split("\n")).toHaveLength(says.length);
    expect([status, stdout]).toEqual([2, ""]);
    expect(await newest().catch(() => null)).toEqual(before);
  });

  it("shows the first items with --dry-run: runs nothing, makes no fleet, and needs no Engine", async () => {
    const before = await newest().catch(() => null);
    const env = { DOCKER_HOST: "unix:///nowhere/docker.sock" };
    const dry = async (...args: string[]) => await project.corral(["map", "copy", ...args], { env });
    const { status, stdout, stderr } = await dry(
      "--over",
      "inbox/*",
      ...EACH,
      "--input",
      '{"n": "{index}"}',
      "--dry-run",
      "1",
    );
    expect(stdout).toMatch(
      /^a\.txt\n {2}input +\{"n":0\}\n {2}attached +\/attachments\/in {2}.*a\.txt\n {2}files +\/text\/a rw {2}\//,
    );
    expect(stdout).toContain("… and 1 item more\n\n2 items with 2 attachments for copy. Nothing was run.\n");
    expect([status, stderr]).toEqual([0, ""]);
    const json = await dry("--over", "inbox/*", ...EACH, "--dry-run", "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({
      items: 2,
      refused: 0,
      attachments: 2,
      first: [{ key: "a.txt", problems: [], mounts: [{ path: "/text/a", mode: "rw" }] }, { key: "b.txt" }],
    });
    const [twice, mistaken, absent] = await Promise.all([
      dry("--over", "twice/*", ...EACH, "--dry-run"),
      dry("--over", "inbox/*", "--key", "{nam}", "--dry-run"),
      dry("--manifest", "items.csv", "--attach", "/no/such/{who}=in", "--dry-run"),
    ]);
    expect([twice.status, twice.stderr]).toEqual([126, expect.stringContaining("/text/a")]);
    expect([mistaken.status, mistaken.stderr]).toEqual([2, expect.stringContaining("did you mean `name`?")]);
    expect([absent.status, absent.stdout]).toEqual([1, expect.stringContaining("✗ /no/such/a: no such file")]);
    expect((await dry("--over", "inbox/*", "--dry-run", "none")).status).toBe(2);
    expect(await newest().catch(() => null)).toEqual(before);
  });

  it("writes events for other programs, runs a command at the end, and minds neither's failure", async () => {
    const stdin = '{"n":1}\n{"n":2,"who":"x"}\n';
    const map = ["map", "fails", "--manifest", "-"];
    const out = await project.built([...map, "--events", "-", "--notify", "sh -c 'cat > summary.json; exit 7'"], {
      stdin,
    });
    const events = lines(out.stdout);
    expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(["item_started", "item_ended", "progress"]));
    expect(events[0]).toMatchObject({ type: "fleet_started", items: 2, done: 0, at: expect.stringMatching(/Z$/) });
    expect(events.filter(({ type }) => type === "item_ended")).toMatchObject([
      { status: "failed", exitCode: 1, retryInMs: null },
      { status: "failed" },
    ]);
    expect(events.findLast(({ type }) => type === "progress")).toMatchObject({
      items: 2,
      done: 2,
      failed: 2,
      running: 0,
    });
    expect(events.at(-1)).toMatchObject({ type: "fleet_ended", state: "done", byStatus: { failed: 2 } });
    const summary = JSON.parse(await readFile(join(project.dir, "summary.json"), "utf8"));
    expect(summary).toMatchObject({ fleet: events[0]?.fleet, byStatus: { failed: 2 } });
    expect(out.stderr).toContain("corral: warning: --notify sh ended with exit status 7");
    expect(out.status).toBe(1);
    const toFile = await project.corral([...map, "--json", "--events", "events.jsonl", "--notify", "no-such-program"], {
      stdin,
    });
    expect(lines(toFile.stdout)).toHaveLength(2);
    expect(lines(await readFile(join(project.dir, "events.jsonl"), "utf8")).at(-1)?.type).toBe("fleet_ended");
    expect(toFile.stderr).toMatch(/warning: --notify no-such-program could not be started/);
  });

  it.each([
    [["--json", "--events", "-"], "cannot both write to standard output"],
    [["--events", "no/where/x"], "--events no/where/x: ENOENT"],
    [["--notify", "mail me | cat"], "no shell reads this command"],
  ])("refuses %j before anything runs", async (args, says) => {
    const { status, stderr } = await project.corral(["map", "echo", "--manifest", "items.csv", ...args]);
    expect(stderr).toContain(says);
    expect(status).toBe(2);
  });

  it("succeeds without items if that is allowed", async () => {
    for (const source of [
      ["--manifest", "empty.csv"],
      ["--over", "inbox/*.none"],
    ]) {
      const { status, stderr } = await project.corral(["map", "echo", ...source, "--allow-empty"]);
      expect(stderr).toContain("0 of 0 items done");
      expect(status).toBe(0);
    }
  });

  it("ends items at --timeout, which is not longer than the worker's own", async () => {
    const late = ["map", "sleeps", "--manifest", "-", "--json"];
    const { status, stdout } = await project.corral([...late, "--timeout", "500ms"], { stdin: '{"n":1}\n' });
    expect([status, lines(stdout)[0]?.status]).toEqual([1, "timed_out"]);
    const longer = await project.corral([...late, "--timeout", "6m"], { stdin: '{"n":1}\n' });
    expect(longer.stderr).toContain("the timeout 6m is longer than the limit of worker sleeps, which is 5m");
    expect(longer.status).toBe(126);
    expect(JSON.parse(longer.stdout)).toMatchObject({ error: { message: expect.stringContaining("the timeout 6m") } });
  });
});

describe("corral map, used wrongly", () => {
  it.each([
    [["map"], "name a worker, or use"],
    [["map", "copi", "--over", "inbox/*"], "did you mean `copy`?"],
    [["map", "copy"], "--over GLOB, or --manifest FILE"],
    [["map", "copy", "--over", "inbox/*", "--manifest", "items.csv"], "--over GLOB, or --manifest FILE"],
    [["map", "copy", "--fleet", "nightly"], "use either a worker or --fleet"],
    [["map", "--fleet", "nightli"], "nightly"],
    [["map", "--fleet", "nightly", "--allow-write", "/text/one"], "--allow-write is set in the file"],
    [["map", "--fleet", "nightly", "--format", "csv"], "--format is set in the file"],
    [["map", "copy", "--over", "inbox/*", "--within", "/"], "--within works only with --manifest"],
    [["map", "copy", "--over", "inbox/*", "--format", "csv"], "--format works only with --manifest"],
    [["map", "copy", "--over", "inbox/*", "--concurrency", "0"], "--concurrency 0 leaves all items to machines"],
    [["map", "copy", "--over", "inbox/*", "--concurrency", "-1"], "--concurrency must be a whole number"],
    [["map", "copy", "--over", "inbox/*", "--reuse", "dirty"], "fresh, scrubbed"],
    [["map", "copy", "--over", "inbox/*.pdf"], "corral: inbox/*.pdf: no file in"],
    [["map", "copy", "--manifest", "nowhere.jsonl"], "nowhere.jsonl"],
    [["map", "copy", "--manifest", "broken.jsonl"], "broken.jsonl:2"],
    [["fleet", "show", "nobody"], "there is no fleet"],
    [["fleet", "resume", "nobody"], "there is no fleet"],
  ])("says what is wrong with %j, and ends with 2", async (args, says) => {
    const { status, stdout, stderr } = await project.corral(args);
    expect(stderr).toContain(says);
    expect(stderr).not.toContain("    at ");
    expect(stdout).toBe("");
    expect(status, stderr).toBe(2);
  });

  it.each([
    [["map", "copy", "--over", "twice/*", ...EACH], "/text/a"],
    [["map", "echo", "--manifest", "twice.jsonl", "--key", "{n}"], "choose a `key`"],
    [["map", "greedy", "--over", "inbox/*"], "inbox"],
    [["map", "copy", "--over", "inbox/*", ...EACH, "--policy", "untrusted", "--reuse", "scrubbed"], "does not allow"],
  ])("refuses %j before anything runs, and ends with 126", async (args, says) => {
    const { status, stdout, stderr } = await project.corral(args);
    expect(stderr).toContain(says);
    expect(stderr).not.toContain("    at ");
    expect([status, stdout]).toEqual([126, ""]);
  });
});
