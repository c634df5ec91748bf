import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { mapItems } from "../../src/operations/run-fleet.ts";
import { type ProjectSpec, sh } from "../run/project-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { onRunc } from "../tiers/on-runc.ts";
import { openFleetProject } from "./fleet-fixture.ts";

const WRITES = { sandbox: { zones: [{ name: "text", mode: "rw", approval: "pre_approved" }] } };
const COPIES = 'read -r x < /attachments/in; cat > /tmp/input; echo "$x" > /text/*/out; cat /text/*/out /tmp/input';

function spec(script: string, count = 0, worker: Record<string, unknown> = {}): ProjectSpec {
  const files = Array.from({ length: count }, (_, index) => [`inbox/${index}`, `document ${index}\n`]);
  return {
    // The one folder that an item sees in /text is its own: the shell finds it by a pattern.
    workers: { w: { command: sh(script.replaceAll("/text/*/", '"$(echo /text/*)"/')), ...WRITES, ...worker } },
    zones: { text: "rw", inbox: "ro" },
    files: Object.fromEntries(files),
  };
}

function items(dir: string, count: number) {
  return Array.from({ length: count }, (_, index) => ({
    input: { n: index },
    attachments: [{ path: join(dir, "inbox", String(index)), name: "in" }],
    allowRead: [`/text/${index}`],
    allowWrite: [`/text/${index}`],
  }));
}

/** Where only the store is another one, what its rows decide is tried again, with one kind of cells. */
const IN_POSTGRES = process.env.CORRAL_TEST_STORE === "postgres" && !AT_LENGTH;
const KINDS = ["fresh", "scrubbed"] as const;

describe.each(IN_POSTGRES ? KINDS.slice(0, 1) : KINDS)("a fleet with %s cells", (reuse) => {
  it("runs every item once, each on its own file and into its own folder, and leaves nothing", async () => {
    await using f = await openFleetProject(spec(COPIES, 12));
    const { summary, results } = await f.map({ reuse }, items(f.project.dir, 12));
    expect([...results.values()].flatMap(({ error }) => error ?? [])).toEqual([]);
    expect(summary).toMatchObject({ state: "done", items: 12, done: 12, byStatus: { succeeded: 12 }, byReason: {} });
    for (let index = 0; index < 12; index += 1) {
      const output = `document ${index}\n{"n":${index}}\n`;
      expect(results.get(String(index))).toMatchObject({ status: "succeeded", exitCode: 0, attempt: 1, output });
      expect(await readFile(join(f.project.dir, "text", String(index), "out"), "utf8")).toBe(`document ${index}\n`);
    }
    expect((await f.project.traces()).filter((trace) => !trace.startsWith("socket"))).toEqual([]);
  });

  it("tells apart how items end, and goes on with the others", async () => {
    const script = `case $(cat) in *1*) exit 3;; *2*) kill -SEGV $$;; *3*) sleep 30;; *4*) yes | head -c 3000000;; *5*) exit 0;; esac`;
    await using f = await openFleetProject(spec(script, 0, { limits: { timeout: "4s", output: "1m" } }));
    const { results } = await f.map(
      { reuse },
      [1, 2, 3, 4, 5].map((n) => ({ input: n, allowWrite: [`/text/${n}`] })),
    );
    const statuses = [...results.values()].sort((a, b) => a.index - b.index).map(({ status }) => status);
    expect([...results.values()].filter(({ status }) => status === "refused")).toEqual([]);
    expect(statuses).toEqual(["failed", "signaled", "timed_out", "output_limit", "succeeded"]);
    expect(results.get("0")).toMatchObject({ exitCode: 3, error: { code: "FAILED" } });
  });

  it.skipIf(IN_POSTGRES)(
    "lets no item see, slow down or lose another, whatever it does",
    async () => {
      const hostile = [
        "echo mine > /tmp/planted; echo mine > /dev/shm/planted; echo mine > $HOME/planted; mkdir -p /tmp/a/b; ln -s / /tmp/l",
        "(setsid sleep 300 &) ; (while :; do echo planted > /tmp/again 2>/dev/null; done &) ; exit 0",
        "echo x > /proc/1/fd/1; kill -9 1 2>/dev/null; kill -STOP 1 2>/dev/null; echo 'ended 0 0 0'; exit 9",
        ":(){ :|:& };: ; sleep 1",
        "python3 -c 'x=bytearray(1<<30)' || tail /dev/zero > /dev/null",
        "sleep 300",
        "yes > /dev/stderr",
        "cd /text/*; ln -s /etc/passwd stolen; ln /attachments/in hard; mkfifo fifo; exit 0",
        "echo forged > /.corral/io/out; rm -rf /.corral/io/*; echo forged > /attachments/in; exit 0",
      ];
      const look =
        "echo $(find /tmp /dev/shm -mindepth 1 | wc -l) $(ls -d /proc/[0-9]* | wc -l) $(ls /text) $(ls /attachments) $(cat /attachments/in)";
      const script = `read -r do; if [ "$do" = '"look"' ]; then ${look}; else eval "$(printf '%s' "$do" | sed 's/^"//; s/"$//; s/\\\\\\\\"/"/g')"; fi`;
      await using f = await openFleetProject(
        spec(script, 30, { limits: { timeout: "3s", memory: "64m", pids: 40, output: "200k" } }),
      );
      const asked = items(f.project.dir, 30).map((item, index) => ({
        ...item,
        input: index % 3 === 1 ? (hostile[(index - 1) / 3] ?? "look") : "look",
      }));
      const { results } = await f.map({ reuse, concurrency: 2 }, asked);
      const honest = [...results.values()].filter(({ index }) => asked[index]?.input === "look");
      expect(honest.length).toBeGreaterThan(20);
      const seen = honest.map(({ index, status, output }) => [index, status, String(output).trim()]);
      // Nothing in memory, no process but its own few, its own folder and its own file.
      for (const [index, status, output] of seen) {
        expect(status).toBe("succeeded");
        expect(output).toMatch(new RegExp(`^0 [1-9] ${index} in document ${index}$`));
      }
      expect(results.get("7")).toMatchObject({ status: "failed", exitCode: 9 });
      // What one cell serves to many is judged before any of it leaves the cell's own folder.
      if (reuse === "scrubbed") expect(results.get("22")).toMatchObject({ status: "refused" });
      expect(await readFile(join(f.project.dir, "inbox", "25"), "utf8")).toBe("document 25\n");
      expect((await f.project.traces()).filter((trace) => !trace.startsWith("socket"))).toEqual([]);
    },
    300_000,
  );

  it("goes on where it was drained, and runs nothing twice", async () => {
    await using f = await openFleetProject(spec("cat", 0));
    const opened = await f.open(
      { reuse, concurrency: 2 },
      Array.from({ length: 12 }, (_, n) => ({ input: n, allowWrite: [`/text/${n}`] })),
    );
    if (!opened.ok) throw new Error(JSON.stringify(opened));
    const first: string[] = [];
    const taking = (async () => {
      for await (const { key } of opened.fleet.results) {
        first.push(key);
        if (first.length === 3) opened.fleet.drain("the test says so");
      }
    })();
    const paused = await opened.fleet.run();
    await taking;
    await opened[Symbol.asyncDispose]();
    expect(paused).toMatchObject({ state: "paused", why: "the test says so" });
    expect(first.length).toBeLessThan(12);
    const { summary, results } = await f.resume(opened.fleet.id);
    expect(summary).toMatchObject({ state: "done", items: 12, done: 12 });
    expect([...first, ...results.keys()].toSorted((a, b) => Number(a) - Number(b))).toEqual(
      Array.from({ length: 12 }, (_, n) => String(n)),
    );
  });

  it.skipIf(IN_POSTGRES)("begins nothing more once it is drained, though cells stand ready", async () => {
    await using f = await openFleetProject(spec("sleep 2"));
    const opened = await f.open(
      { reuse, concurrency: 1 },
      Array.from({ length: 4 }, (_, n) => ({ allowWrite: [`/text/${n}`] })),
    );
    if (!opened.ok) throw new Error(JSON.stringify(opened));
    await using fleet = opened;
    const ended = fleet.fleet.run();
    void Array.fromAsync(fleet.fleet.results);
    await vi.waitFor(() => expect(f.running()).toBe(1), { timeout: 60_000, interval: 10 });
    // The next one's cell is started meanwhile.
    await new Promise((later) => setTimeout(later, 500));
    fleet.fleet.drain("the test says so");
    expect(await ended).toMatchObject({ state: "paused", done: 1, byStatus: { succeeded: 1 } });
    expect(f.events.filter(({ type }) => type === "started")).toHaveLength(1);
    expect((await f.journal.find(fleet.fleet.id))?.counts).toMatchObject({ queued: 3, running: 0, done: 1 });
  });
});

describe("a fleet", () => {
  it("does not begin where two items would write into each other's folders", async () => {
    await using f = await openFleetProject(spec("true"));
    const opened = await f.open({}, [
      { allowWrite: ["/text/a"] },
      { allowWrite: ["/text/a/b"] },
      { allowWrite: ["/text/c"] },
    ]);
    expect(opened).toMatchObject({ ok: false, problem: { code: "collisions", collisions: { count: 1 } } });
    expect(f.project.events).toEqual([]);
  });

  it("runs again only what has not succeeded on the same worker, input and files", async () => {
    await using f = await openFleetProject(spec("cat > /dev/null; cat /attachments/in; [ ! -e /attachments/bad ]", 3));
    const all = items(f.project.dir, 3);
    const first = await f.map({ cache: true }, all);
    expect(first.summary.byStatus).toEqual({ succeeded: 3 });
    await writeFile(join(f.project.dir, "inbox", "1"), "changed\n");
    const second = await f.map({ cache: true }, [...all.slice(0, 2), { ...all[2], input: "other" }]);
    expect(second.summary.byStatus).toEqual({ cached: 1, succeeded: 2 });
    expect(second.results.get("0")).toMatchObject({ status: "cached", run: null, output: "document 0\n" });
  });

  it("tries an item again as often as it may, and ends after too many failures", async () => {
    await using f = await openFleetProject(spec("exit 1"));
    const retried = await f.map({ retries: 2, concurrency: 1 }, [{}]);
    expect(retried.results.get("0")).toMatchObject({ status: "failed", attempt: 3 });
    const stopped = await f.map(
      { maxFailures: 1, concurrency: 1 },
      Array.from({ length: 20 }, () => ({})),
    );
    expect(stopped.summary).toMatchObject({ state: "paused", why: "more than 1 items failed" });
    expect(stopped.results.size).toBeLessThan(20);
  });

  it.each(IN_POSTGRES ? KINDS.slice(0, 1) : KINDS)(
    "tells why an item failed: what its worker said last, which file is not there (%s)",
    async (reuse) => {
      await using f = await openFleetProject(spec("seq 100 >&2; echo; printf 'no such page\\n\\n' >&2; exit 4", 1));
      const [item] = items(f.project.dir, 1);
      const absent = join(f.project.dir, "inbox", "absent.pdf");
      const { results } = await f.map({ reuse }, [
        item ?? {},
        { attachments: [{ path: absent, name: "in" }], allowWrite: ["/text/b"] },
      ]);
      expect(results.get("0")?.error).toEqual({
        code: "FAILED",
        message: expect.stringMatching(/^99 \/ 100 \/ no such page \(Worker .* exit code 4\.\)$/),
      });
      expect(results.get("1")).toMatchObject({
        status: "refused",
        error: { message: expect.stringContaining(absent) },
      });
    },
  );

  it("refuses an item of which no request could be made, and no other", async () => {
    await using f = await openFleetProject(spec("true"));
    const { results } = await f.map({}, [{ refusal: "the field stem leads out" }, {}]);
    expect(results.get("0")).toMatchObject({ status: "refused", error: { code: "ITEM_REFUSED" } });
    expect(results.get("1")).toMatchObject({ status: "succeeded" });
  });

  it.skipIf(IN_POSTGRES)(
    "has scrubbed cells only where the policy allows them, and the worker calls nobody",
    async () => {
      await using strict = await openFleetProject({ ...spec("true"), policy: "untrusted" });
      expect(await strict.open({ reuse: "scrubbed" }, [{}])).toMatchObject({
        ok: false,
        reason: expect.stringContaining("policy untrusted"),
      });
      await using calling = await openFleetProject({
        ...spec("true"),
        workers: { w: { command: sh("true"), ...WRITES, calls: ["other"] }, other: { command: sh("true") } },
      });
      expect(await calling.open({ reuse: "scrubbed" }, [{}])).toMatchObject({
        ok: false,
        reason: expect.stringContaining("calls"),
      });
    },
  );

  it.skipIf(IN_POSTGRES)("refuses what a shared cell cannot show to one item alone", async () => {
    await using f = await openFleetProject(spec("true"));
    // The second one writes nothing: their outputs would overlap.
    const { results } = await f.map({ reuse: "scrubbed" }, [{ allowWrite: ["/text"] }, { allowRead: [] }]);
    expect(results.get("0")).toMatchObject({ status: "refused", error: { code: "NOT_FIT_FOR_REUSE" } });
    expect(results.get("1")).toMatchObject({ status: "succeeded" });
    const own = await f.map({ reuse: "scrubbed" }, [{ allowWrite: ["/text/b"] }]);
    expect(own.results.get("0")).toMatchObject({ status: "succeeded" });
  });

  it("is for programs an iterable of items in, and of results out", async () => {
    await using f = await openFleetProject(spec("cat"));
    async function* numbers() {
      for (let n = 0; n < 5; n += 1) yield { n };
    }
    const template = { attach: [], input: "{n}", key: "number {n}" };
    const results = await Array.fromAsync(mapItems(f.project.corral, { worker: "w", items: numbers(), template }));
    expect(results.map(({ key, output }) => `${key}: ${output}`.trim()).toSorted()).toEqual(
      [0, 1, 2, 3, 4].map((n) => `number ${n}: ${n}`),
    );
    const refused = mapItems(f.project.corral, { worker: "none", items: [], template });
    await expect(refused.next()).rejects.toMatchObject({ code: "FLEET_REFUSED" });
  });
});

describe.skipIf(IN_POSTGRES || !onRunc())("with the driver auto", () => {
  const auto = { engineEnv: { ...process.env, CORRAL_DRIVER: "auto" } };
  const tree: ProjectSpec = {
    workers: { w: { command: sh("corral-call below"), calls: ["below"] }, below: { command: ["true"] } },
  };

  async function drivers(ran: (f: Awaited<ReturnType<typeof openFleetProject>>) => Promise<unknown>, of: ProjectSpec) {
    await using f = await openFleetProject(of, auto);
    await ran(f);
    return f.project.events.flatMap((event) => (event.type === "started" ? `${event.worker}: ${event.driver}` : []));
  }

  it("runc makes the fresh cell of an item, and those of what it calls", async () => {
    expect(await drivers((f) => f.map({}, [{}]), tree)).toEqual(["w: runc", "below: runc"]);
  });

  it("the Engine makes those of a run, and scrubbed ones", async () => {
    expect(await drivers((f) => f.project.run("w"), tree)).toEqual(["w: engine", "below: engine"]);
    expect(await drivers((f) => f.map({ reuse: "scrubbed" }, [{}]), { workers: { w: { command: ["true"] } } })).toEqual(
      ["w: engine"],
    );
  });
});
