import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import tar from "tar-stream";
import { describe, expect, it } from "vitest";
import { describedRoutes, eventsFrom } from "./service-client.ts";
import { project, service, serviceForAll } from "./service-for-all.ts";

serviceForAll();

const start = async (body: unknown): Promise<string> => {
  const { status, json } = await service.ask("POST", "/v1/runs", { body });
  expect(status, JSON.stringify(json)).toBe(202);
  return json.run;
};
const resultOf = async (run: string) => (await service.ask("GET", `/v1/runs/${run}/result?wait=30`)).json;
const waiting = async () =>
  await expect
    .poll(async () => (await service.ask("GET", "/v1/approvals")).json.approvals, { interval: 100, timeout: 30_000 })
    .not.toEqual([]);

describe("runs", () => {
  it("start, are followed to their end, and leave their output and result", async () => {
    const run = await start({ worker: "echo", input: { a: 1 } });
    const events = await eventsFrom(await service.open("GET", `/v1/runs/${run}/events`));
    expect(events.map(({ event }) => event)).toEqual(["requested", "started", "output", "ended"]);
    expect(events[2]?.data.text).toBe('{"a":1}\n');
    expect(await resultOf(run)).toMatchObject({ run, status: "succeeded", stdout: '{"a":1}\n' });
    expect((await service.ask("GET", `/v1/runs/${run}/output`)).text).toBe('{"a":1}\n');
    const { json } = await service.ask("GET", `/v1/runs/${run}`);
    expect(json).toMatchObject({ id: run, status: "succeeded", worker: "echo" });
    expect(JSON.stringify(json)).not.toContain(project.dir);
    expect((await service.ask("GET", "/v1/runs?limit=1")).json.runs).toMatchObject([{ id: run }]);
  });

  it("are listed with whether there are more", async () => {
    for (const worker of ["echo", "echo"]) await resultOf(await start({ worker }));
    const { runs, more } = (await service.ask("GET", "/v1/runs?limit=1")).json;
    expect({ length: runs.length, more }).toEqual({ length: 1, more: true });
    expect((await service.ask("GET", "/v1/runs?limit=500")).json.more).toBe(false);
  });

  it("take arguments, and attachments as a form", async () => {
    expect(await resultOf(await start({ worker: "words", arguments: ["one", "two words"] }))).toMatchObject({
      stdout: "one two words\n",
    });
    const form = new FormData();
    form.set("request", JSON.stringify({ worker: "attached" }));
    form.set("any", new File(["the content\n"], "a file.txt"));
    const sent = new Response(form);
    const raw = Buffer.from(await sent.arrayBuffer());
    const headers = { "content-type": sent.headers.get("content-type") ?? "" };
    const { status, json } = await service.ask("POST", "/v1/runs", { raw, headers });
    expect(status).toBe(202);
    expect(await resultOf(json.run)).toMatchObject({ stdout: "a file.txt\nthe content\n" });
  });

  it("are stopped", async () => {
    const run = await start({ worker: "slow" });
    expect((await service.ask("GET", `/v1/runs/${run}/result`)).json.error.code).toBe("RUN_NOT_OVER");
    const output = await service.open("GET", `/v1/runs/${run}/output?follow=true`);
    await new Promise((resolve) => output.once("data", resolve));
    expect((await service.ask("DELETE", `/v1/runs/${run}`)).json).toMatchObject({
      outcome: "stopped",
      status: "cancelled",
    });
    expect(await resultOf(run)).toMatchObject({ status: "cancelled" });
  });

  it("lose no event over a reconnect, and send none twice", async () => {
    const run = await start({ worker: "slow" });
    const all: number[] = [];
    let last = "0";
    for (let turn = 0; turn < 4; turn += 1) {
      const response = await service.open("GET", `/v1/runs/${run}/events`, { headers: { "last-event-id": last } });
      const events = await eventsFrom(response, 5);
      response.destroy();
      all.push(...events.map(({ id }) => id));
      last = String(events.at(-1)?.id);
    }
    await service.ask("DELETE", `/v1/runs/${run}`);
    const whole = await eventsFrom(await service.open("GET", `/v1/runs/${run}/events`));
    expect(whole.slice(0, all.length).map(({ id }) => id)).toEqual(all);
    const ticks = whole.flatMap(({ data }) => (data.type === "output" ? data.text : [])).join("");
    expect((await service.ask("GET", `/v1/runs/${run}/output`)).text).toBe(ticks);
    const headers = { "last-event-id": String(whole.at(-1)?.id) };
    expect((await service.ask("GET", `/v1/runs/${run}/events`, { headers })).status).toBe(204);
    const wrong = { "last-event-id": String((whole.at(-1)?.id ?? 0) - 1) };
    expect((await service.ask("GET", `/v1/runs/${run}/events`, { headers: wrong })).status).toBe(400);
  });

  it("are refused with a code", async () => {
    for (const [body, status, code] of [
      [{ worker: "nobody" }, 404, "UNKNOWN_WORKER"],
      [{ worker: "echo", project: "other" }, 404, "UNKNOWN_PROJECT"],
      [{ worker: "echo", arguments: ["x"] }, 400, "ARGUMENTS"],
      [{ worker: "echo", continues: "0123456789ab" }, 409, "CONTINUE"],
      [{ worker: "echo", policy: "nowhere" }, 400, "UNKNOWN_POLICY"],
      [{ worker: "echo", inputs: 1 }, 400, "WRONG_REQUEST"],
    ] as const) {
      const reply = await service.ask("POST", "/v1/runs", { body });
      expect([reply.status, reply.json.error.code]).toEqual([status, code]);
    }
    const refused = await resultOf(await start({ worker: "hungry" }));
    expect(refused).toMatchObject({ status: "refused", violations: [{ code: "PATH_NOT_AVAILABLE" }] });
  });

  it("show what the command line has run as well", async () => {
    await project.corral(["run", "echo", "--input", "1"]);
    const [run] = (await service.ask("GET", "/v1/runs?worker=echo&status=succeeded&limit=1")).json.runs;
    expect((await service.ask("GET", `/v1/runs/${run.id}/output`)).text).toBe("1\n");
    expect((await service.ask("GET", `/v1/runs/${run.id}/events`)).json.error.code).toBe("NO_EVENTS");
  });
});

describe("what waits", () => {
  it("is a changeset with its diff and its files, applied only as it was shown", async () => {
    const run = await start({ worker: "writer" });
    expect(await resultOf(run)).toMatchObject({ status: "failed", exitCode: 3 });
    expect((await service.ask("GET", "/v1/changesets")).json.changesets).toMatchObject([{ id: run }]);
    const { json } = await service.ask("GET", `/v1/changesets/${run}`);
    expect(json.diff).toContain("+new");
    expect(JSON.stringify(json)).not.toContain(project.dir);
    const review = (await service.ask("GET", `/v1/changesets/${run}/review`)).json;
    expect(review).toMatchObject({
      id: run,
      digest: json.digest,
      project: json.project,
      waiting: 3,
      unfit: [],
      notShown: 0,
    });
    expect(review.parts.map(({ path, lines }: { path: string; lines: string[] }) => [path, lines.at(-1)])).toEqual([
      ["/out/new.txt", "+new"],
      ["/out/dir/x", "+x"],
    ]);
    expect(JSON.stringify(review)).not.toContain(project.dir);
    const archive = await buffer(await service.open("GET", `/v1/changesets/${run}/files`));
    expect(await entriesOf(archive)).toEqual({ "out/dir": "", "out/dir/x": "x\n", "out/new.txt": "new\n" });
    const other = { digest: "0".repeat(64) };
    for (const verb of ["apply", "discard"]) {
      const reply = await service.ask("POST", `/v1/changesets/${run}/${verb}`, { body: other });
      expect([reply.status, reply.json.error.code]).toEqual([409, "CHANGESET_CHANGED"]);
    }
    for (const list of ["only", "which"]) {
      const none = { digest: json.digest, [list]: [] };
      const reply = await service.ask("POST", `/v1/changesets/${run}/apply`, { body: none });
      expect(reply.json).toMatchObject({ changes: [], left: 3 });
    }
    const body = { digest: json.digest, only: ["/out/new.txt"] };
    expect((await service.ask("POST", `/v1/changesets/${run}/apply`, { body })).json).toMatchObject({ left: 2 });
    expect(await readFile(join(project.dir, "out/new.txt"), "utf8")).toBe("new\n");
    const rest = { digest: (await service.ask("GET", `/v1/changesets/${run}`)).json.digest };
    expect((await service.ask("POST", `/v1/changesets/${run}/discard`, { body: rest })).status).toBe(200);
    expect((await service.ask("GET", `/v1/changesets/${run}`)).status).toBe(404);
    const { records } = (await service.ask("GET", `/v1/audit?run=${run}`)).json;
    const who = records.map(({ type, by }: { type: string; by?: string }) => [type, by]);
    expect(who).toEqual(
      expect.arrayContaining([
        ["changes_applied", "first"],
        ["changes_discarded", "first"],
      ]),
    );
    expect(who.filter(([type]: [string]) => type === "approval")).toEqual([["approval", "first"]]);
  });

  it("is that of each run alone, also if its cell comes from a place that was made ahead", async () => {
    const ended: unknown[] = [];
    for (let turn = 0; turn < 8; turn += 1) ended.push((await resultOf(await start({ worker: "writer" }))).error?.code);
    expect(ended).toEqual(Array.from({ length: 8 }, () => "FAILED"));
    const { changesets } = (await service.ask("GET", "/v1/changesets?worker=writer")).json;
    expect(changesets.length).toBe(8);
  });

  it("is a question, which one client decides and the others see", async () => {
    const run = await start({ worker: "asks" });
    await waiting();
    const [asked] = (await service.ask("GET", "/v1/approvals")).json.approvals;
    expect(asked).toMatchObject({ state: "waiting", question: { run, worker: "asks", operations: ["write"] } });
    expect(asked.question.diff).toContain("+asked");
    const path = `/v1/approvals/${asked.id}`;
    const stale = await service.ask("POST", `${path}/decision`, { body: { answer: "once", digest: "1".repeat(64) } });
    expect([stale.status, stale.json.error.code]).toEqual([409, "QUESTION_CHANGED"]);
    const body = { answer: "once", digest: asked.digest };
    const both = await Promise.all([1, 2].map(() => service.ask("POST", `${path}/decision`, { body })));
    expect(both.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    expect(await resultOf(run)).toMatchObject({ status: "succeeded", changes: [{ outcome: "applied" }] });
    expect((await service.ask("GET", path)).json).toMatchObject({ state: "decided", outcome: "approved", by: "first" });
    expect((await service.ask("GET", "/v1/approvals?state=decided")).json.approvals).toMatchObject([{ id: asked.id }]);
    const { records } = (await service.ask("GET", `/v1/audit?run=${run}&type=approval`)).json;
    expect(JSON.stringify(records)).toContain("first approved it through the service");
  });
});

describe("a question that two runs ask", () => {
  const listed = async (root: string) => (await service.ask("GET", `/v1/approvals?root=${root}`)).json.approvals;

  it("is shown to the clients of both, stays while one of them waits, and is withdrawn with the last", async () => {
    await rm(join(project.dir, "out/asked.txt"), { force: true });
    const first = await start({ worker: "asks" });
    await expect.poll(() => listed(first), { interval: 100, timeout: 30_000 }).toHaveLength(1);
    const [alone] = await listed(first);
    const second = await start({ worker: "asks" });
    await expect.poll(() => listed(second), { interval: 100, timeout: 30_000 }).toHaveLength(1);
    const [both] = await listed(second);
    expect(both).toMatchObject({ id: alone.id, question: { run: first, root: first, runs: 2 } });
    expect(both.question.waiting).toEqual([first, second].map((run) => ({ run, root: run })));
    expect(await listed(first)).toEqual([both]);
    expect(await listed("000000000000")).toEqual([]);
    const decision = `/v1/approvals/${alone.id}/decision`;
    const stale = await service.ask("POST", decision, { body: { answer: "once", digest: alone.digest } });
    expect([stale.status, stale.json.error.code]).toEqual([409, "QUESTION_CHANGED"]);
    expect((await service.ask("DELETE", `/v1/runs/${first}`)).status).toBe(200);
    await resultOf(first);
    await expect.poll(() => listed(first), { interval: 100, timeout: 30_000 }).toEqual([]);
    expect(await listed(second)).toMatchObject([{ id: alone.id, question: { run: second, runs: 1 } }]);
    expect((await service.ask("DELETE", `/v1/runs/${second}`)).status).toBe(200);
    await resultOf(second);
    const ended = async () => (await service.ask("GET", `/v1/approvals/${alone.id}`)).json.outcome;
    await expect.poll(ended, { interval: 100, timeout: 30_000 }).toBe("withdrawn");
  });
});

describe("a question of another process", () => {
  it("is decided by a client of the service, and one of the service by a command", async () => {
    const file = join(project.dir, "out/asked.txt");
    await rm(file, { force: true });
    const running = project.start(["run", "asks", "--ask-elsewhere"]);
    await waiting();
    const [asked] = (await service.ask("GET", "/v1/approvals")).json.approvals;
    expect(asked).toMatchObject({ at: "board", answers: ["once", "tree", "no"], question: { worker: "asks" } });
    expect(JSON.stringify(asked)).not.toContain(project.dir);
    const body = { answer: "once", digest: asked.digest };
    const reply = await service.ask("POST", `/v1/approvals/${asked.id}/decision`, { body });
    expect(reply.json).toMatchObject({ outcome: "approved", by: "first", via: "service" });
    const { status, stderr } = await running.ended;
    expect({ status, stderr }).toMatchObject({ status: 0, stderr: expect.stringContaining(asked.id) });

    await rm(file);
    const run = await start({ worker: "asks" });
    await waiting();
    const [{ digest }] = (await service.ask("GET", "/v1/approvals")).json.approvals;
    const decided = await project.corral(["approvals", "decide", "latest", "no", "--digest", digest, "--json"]);
    expect(JSON.parse(decided.stdout)).toMatchObject({ outcome: "denied", via: "command", question: { run } });
    expect(await resultOf(run)).toMatchObject({ status: "denied" });
    const [last] = (await service.ask("GET", "/v1/approvals?state=decided&limit=1")).json.approvals;
    expect(last).toMatchObject({ id: JSON.parse(decided.stdout).id, via: "command", state: "decided" });
  });
});

describe("fleets", () => {
  it("run items, show them in pages and by filter, and are followed", async () => {
    const items = Array.from({ length: 7 }, (_, index) => ({ id: `item ${index}`, n: index }));
    const body = { worker: "echo", items, template: { input: { n: "{n}" } }, cache: false };
    const { fleet } = (await service.ask("POST", "/v1/fleets", { body })).json;
    const events = await eventsFrom(await service.open("GET", `/v1/fleets/${fleet}/events`));
    expect(events.filter(({ event }) => event === "settled").length).toBe(7);
    expect(events.at(-1)?.data).toMatchObject({ type: "ended", summary: { state: "done", done: 7 } });
    const keys: string[] = [];
    for (let cursor: number | null = 0; cursor !== null; ) {
      const page: { items: { key: string }[]; next: number | null } = (
        await service.ask("GET", `/v1/fleets/${fleet}/items?limit=3&cursor=${cursor}`)
      ).json;
      keys.push(...page.items.map(({ key }) => key));
      cursor = page.next;
    }
    expect(keys).toEqual(items.map(({ id }) => id));
    const found = await service.ask("GET", `/v1/fleets/${fleet}/items?search=m%204&status=succeeded&state=done`);
    expect(found.json.items).toMatchObject([{ key: "item 4", index: 4 }]);
    expect((await service.ask("GET", `/v1/fleets/${fleet}/items?failed=true`)).json.items).toEqual([]);
    const one = await service.ask("GET", `/v1/fleets/${fleet}/item?key=item%204`);
    expect(one.json.result.output).toBe('{"n":4}\n');
    expect((await service.ask("GET", `/v1/fleets/${fleet}`)).json).toMatchObject({ state: "done", id: fleet });
    expect((await service.ask("GET", "/v1/fleets")).json.fleets[0]).toMatchObject({ id: fleet });
    for (const verb of ["resume", "retry"]) {
      const again = await service.ask("POST", `/v1/fleets/${fleet}/${verb}`);
      expect([again.status, again.json.error.code]).toEqual([422, "FLEET_REFUSED"]);
    }
    expect((await service.ask("POST", `/v1/fleets/${fleet}/cancel`)).json).toMatchObject({ outcome: "ended" });
    const pause = await service.ask("POST", `/v1/fleets/${fleet}/pause`, { body: {} });
    expect(pause.json).toEqual({ fleet, outcome: "not_running" });
    const linesOf = async (path: string) => (await service.ask("GET", `/v1/fleets/${fleet}/${path}`)).text.split("\n");
    expect((await linesOf("results")).filter((line) => line !== "").length).toBe(7);
    expect((await linesOf("logs")).filter((line) => line !== "").length).toBe(7);
    expect((await linesOf("results?form=csv&status=succeeded")).at(1)).toContain("item 0,succeeded");
    expect((await service.ask("GET", `/v1/fleets/${fleet}/results?status=none`)).status).toBe(400);
  });

  it("are those that files of the project declare", async () => {
    const { status, json } = await service.ask("POST", "/v1/fleets", { body: { fleet: "all" } });
    expect(status).toBe(202);
    await eventsFrom(await service.open("GET", `/v1/fleets/${json.fleet}/events`));
    const { items } = (await service.ask("GET", `/v1/fleets/${json.fleet}/items`)).json;
    expect(items).toMatchObject([{ status: "succeeded" }]);
    const wrong = await service.ask("POST", "/v1/fleets", { body: { fleet: "none" } });
    expect([wrong.status, wrong.json.error.code]).toEqual([422, "WRONG_DECLARATION"]);
  });
});

describe("sessions", () => {
  it("have a worker's tools, and end with what was changed", async () => {
    const opened = await service.ask("POST", "/v1/sessions", { body: { worker: "desk" } });
    expect(opened.status).toBe(201);
    const { id } = opened.json;
    const tool = async (name: string, body: unknown) =>
      (await service.ask("POST", `/v1/sessions/${id}/tools/${name}`, { body })).json;
    expect(await tool("read_file", { path: "/docs/a.txt" })).toMatchObject({ ok: true });
    expect(await tool("read_file", { path: "/etc/passwd" })).toMatchObject({ ok: false });
    expect(await tool("exec", { command: "cat /docs/a.txt; echo from > /out/session.txt" })).toMatchObject({
      ok: true,
      data: { stdout: "a document\n" },
    });
    expect((await service.ask("GET", "/v1/sessions")).json.sessions).toMatchObject([{ id, worker: "desk" }]);
    expect((await service.ask("GET", `/v1/sessions/${id}`)).status).toBe(200);
    const { tools } = (await service.ask("GET", `/v1/sessions/${id}/tools`)).json;
    expect(tools.map((one: { name: string }) => one.name)).toEqual(opened.json.tools);
    expect(tools.find((one: { name: string }) => one.name === "read_file")).toMatchObject({
      readOnly: true,
      inputSchema: { type: "object", required: ["path"] },
    });
    // What a schema allows fits into a request.
    const lengths = [...JSON.stringify(tools).matchAll(/"maxLength":(\d+)/g)].map(([, length]) => Number(length));
    expect(Math.max(...lengths)).toBe(8 * 1024 ** 2);
    const ending = service.ask("DELETE", `/v1/sessions/${id}`);
    await waiting();
    const [asked] = (await service.ask("GET", "/v1/approvals")).json.approvals;
    const body = { answer: "tree", digest: asked.digest };
    await service.ask("POST", `/v1/approvals/${asked.id}/decision`, { body });
    expect((await ending).json).toMatchObject({ id, changes: [{ path: "/out/session.txt", outcome: "applied" }] });
    expect((await service.ask("GET", `/v1/sessions/${id}`)).status).toBe(404);
  });

  it("run commands beside each other, each with its output, input, signals and terminal", async () => {
    const { id } = (await service.ask("POST", "/v1/sessions", { body: { worker: "desk" } })).json;
    const at = `/v1/sessions/${id}`;
    const run = await service.ask("POST", `${at}/exec`, { body: { command: "echo seen; exit 3" } });
    expect(run.text).toContain(`"base64":"${Buffer.from("seen\n").toString("base64")}"`);
    expect(run.text).toMatch(/"type":"ended".*"exitCode":3/);
    const started = async (body: unknown) => (await service.ask("POST", `${at}/commands`, { body })).json.id as string;
    const cat = await started({ command: "cat", input: true });
    const top = await started({ command: "sleep 100", terminal: { columns: 80, rows: 24 } });
    const listed = (await service.ask("GET", `${at}/commands`)).json.commands;
    expect(listed.map((one: { id: string }) => one.id)).toEqual(expect.arrayContaining([cat, top]));
    const typed = { raw: "typed\n", headers: { "content-type": "application/octet-stream" } };
    expect((await service.ask("POST", `${at}/commands/${cat}/input?end=true`, typed)).json).toEqual({ bytes: 6 });
    expect((await service.ask("GET", `${at}/commands/${cat}?wait=30`)).json).toMatchObject({ exitCode: 0 });
    const printed = await service.ask("GET", `${at}/commands/${cat}/output?follow=false`);
    expect(printed.text).toContain(Buffer.from("typed\n").toString("base64"));
    const size = { columns: 100, rows: 30 };
    expect((await service.ask("POST", `${at}/commands/${top}/size`, { body: size })).json).toMatchObject({ id: top });
    for (const verb of ["pause", "resume"]) expect((await service.ask("POST", `${at}/${verb}`)).status).toBe(200);
    expect((await service.ask("GET", `${at}/ports`)).json.ports).toMatchObject([{ port: 8000, isListening: false }]);
    expect((await service.ask("POST", `${at}/ports/8000`)).status).toBe(201);
    expect((await service.ask("GET", `${at}/ports/8000/connection`)).status).toBe(400);
    const kept = await service.ask("POST", `${at}/snapshots`, { body: { name: "kept" } });
    expect([kept.status, kept.json]).toMatchObject([201, { name: "kept", worker: "desk", session: id, has: ["/out"] }]);
    expect((await service.ask("GET", `${at}/commands/${top}`)).json).toMatchObject({ status: "cancelled" });
    await service.ask("POST", `${at}/exec`, { body: { command: "printf x > /out/later" } });
    expect((await service.ask("GET", `${at}/snapshots/kept/diff`)).json).toEqual({
      differences: [{ path: "/out/later", kind: "create", type: "file", bytes: 1 }],
      more: false,
    });
    expect((await service.ask("POST", `${at}/snapshots/kept/restore`)).json).toMatchObject({ name: "kept" });
    expect((await service.ask("POST", `${at}/tools/list_files`, { body: { path: "/out" } })).text).not.toContain(
      "later",
    );
    const fork = await service.ask("POST", "/v1/sessions", { body: { worker: "desk", from: "kept" } });
    expect(fork.status).toBe(201);
    await service.ask("DELETE", `/v1/sessions/${fork.json.id}`);
    expect((await service.ask("POST", "/v1/sessions", { body: { worker: "desk", from: "none" } })).status).toBe(404);
    expect((await service.ask("GET", `${at}/snapshots`)).json.snapshots).toMatchObject([{ name: "kept" }]);
    expect((await service.ask("DELETE", `${at}/snapshots/kept`)).status).toBe(200);
    // At once, when its process is not known yet.
    const nap = await started({ command: "sleep 100", terminal: size });
    const signal = { body: { signal: "SIGTERM" } };
    expect((await service.ask("POST", `${at}/commands/${nap}/signal`, signal)).status).toBe(200);
    expect((await service.ask("GET", `${at}/commands/${nap}?wait=30`)).json).toMatchObject({ signal: "SIGTERM" });
    await service.ask("DELETE", at);
  });

  it("leave a command to the rules of the worker, unless an admin says that the owner asks", async () => {
    const { id } = (await service.ask("POST", "/v1/sessions", { body: { worker: "ruled" } })).json;
    const exec = (token: string | undefined, asOwner?: boolean) =>
      service.ask("POST", `/v1/sessions/${id}/exec`, { ...(token && { token }), body: { command: "echo a", asOwner } });
    const token = (await project.corral(["serve", "token", "create", "--role", "run"])).stdout.trim();
    expect((await exec(token)).status).toBe(422);
    expect((await exec(token, true)).text).toContain("FORBIDDEN");
    expect((await exec(undefined)).status).toBe(422);
    expect((await exec(undefined, true)).text).toContain(Buffer.from("a\n").toString("base64"));
    await service.ask("DELETE", `/v1/sessions/${id}`);
  });
});

describe("the description", () => {
  it("has the rest of the routes too, and every route was answered as it says", async () => {
    expect((await service.ask("GET", "/v1/caller")).json).toMatchObject({ name: "first", roles: ["admin"] });
    expect((await service.ask("GET", "/v1/health", { token: null })).json).toEqual({ status: "ok" });
    const { name } = (await service.ask("GET", "/v1/projects")).json.projects[0];
    const { workers, problems } = (await service.ask("GET", `/v1/projects/${name}/workers`)).json;
    expect([workers.length, problems]).toEqual([12, []]);
    const explained = (await service.ask("GET", `/v1/projects/${name}/workers/echo`)).json;
    expect(explained).toMatchObject({ worker: "echo" });
    expect(JSON.stringify(explained)).not.toContain(project.dir);
    expect(JSON.stringify(explained)).not.toContain(project.stateDir);
    expect((await service.ask("GET", "/v1/grants")).json).toEqual({ grants: [] });
    const grant = { path: "/x", mode: "read" };
    expect((await service.ask("POST", "/v1/runs/0123456789ab/grants", { body: grant })).status).toBe(404);
    expect((await service.ask("DELETE", "/v1/grants/0123456789ab")).status).toBe(404);
    const first = (await service.ask("GET", "/v1/audit?limit=3")).json;
    const second = (await service.ask("GET", `/v1/audit?limit=3&cursor=${first.next}`)).json;
    const seqs = [...first.records, ...second.records].map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, index) => seqs[0] - index));
    const machine = (await service.ask("GET", "/v1/machine")).json;
    expect(machine.findings).toContainEqual({ what: "image", state: "ok", detail: "corral/base" });
    expect(JSON.stringify(machine)).toContain(project.stateDir);
    const reader = (await project.corral(["serve", "token", "create", "--role", "read"])).stdout.trim();
    const seen = (await service.ask("GET", "/v1/machine", { token: reader })).json;
    expect(seen.findings.map(({ what }: { what: string }) => what)).toEqual(
      machine.findings.map(({ what }: { what: string }) => what),
    );
    expect(seen.findings).toContainEqual({ what: "image", state: "ok", detail: "corral/base" });
    expect(JSON.stringify(seen)).not.toMatch(/"[^"]*(?<![\w])\/\w/);
    // A project without a queue has none, and test/serve/machines.test.ts has one that does.
    expect((await service.ask("GET", "/v1/machines")).json).toEqual({ machines: [], more: false, hasQueue: false });
    expect((await service.ask("GET", "/v1/cells")).json).toEqual({ cells: [] });
    expect((await service.ask("GET", "/v1/cells", { token: reader })).status).toBe(403);
    expect((await service.ask("GET", "/v1/stored")).json.kinds).toContainEqual(
      expect.objectContaining({ name: "runs" }),
    );
    expect((await service.ask("GET", `/v1/projects/${name}/check`)).json).toMatchObject({ ok: false, workers: 12 });
    expect((await service.ask("GET", `/v1/projects/${name}/images`)).json).toMatchObject({ problems: [] });
    expect((await service.ask("GET", "/metrics")).status).toBe(200);
    const streams = (route: string) => /\/(events|files)$/.test(route) || route === "GET /openapi.json";
    // conversions.test.ts and ci.test.ts beside this file have those.
    const routes = (await describedRoutes(service)).filter((route) => !/\/v1\/conversions|\/ci\b/.test(route));
    const unseen = routes.filter((route) => !service.seen.has(route) && !streams(route));
    expect(unseen).toEqual([]);
  });

  it("is OpenAPI 3.1 with a role for every route but one", async () => {
    const { json } = await service.ask("GET", "/openapi.json");
    expect(json.openapi).toBe("3.1.0");
    const operations = Object.values(json.paths as Record<string, Record<string, Record<string, unknown>>>).flatMap(
      (methods) => Object.values(methods),
    );
    expect(operations.filter((operation) => operation["x-corral-role"] === undefined).length).toBe(1);
    expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(operations.length);
    const { schemas } = json.components;
    const pointed = [...JSON.stringify(json).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].map(
      ([, name]) => name,
    );
    expect(pointed).toContain("RunResult");
    expect(pointed.filter((name) => schemas[name ?? ""] === undefined)).toEqual([]);
    expect(JSON.stringify(json)).not.toContain("$defs");
  });
});

describe("the log", () => {
  it("has neither contents nor paths of the host", async () => {
    const log = service.log();
    expect(log).toContain('"run ended"');
    for (const secret of [project.dir, project.stateDir, "the content", "two words", service.token, "item 4"])
      expect(log).not.toContain(secret);
  });
});

async function entriesOf(archive: Buffer): Promise<Record<string, string>> {
  const entries: Record<string, string> = {};
  const extract = tar.extract();
  extract.end(archive);
  for await (const entry of extract) entries[entry.header.name] = (await buffer(entry)).toString();
  return entries;
}
