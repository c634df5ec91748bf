import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MAX_STREAMS_BYTES } from "../../src/history/recording.ts";
import { runOutput } from "../../src/operations/runs.ts";
import { openProject, type ProjectFixture, sh } from "../run/project-fixture.ts";

/** Answers with the date of each request, so that who answers is known to live. */
const HTTPD = "/.corral/busybox httpd -p 127.0.0.1:7001 -h /tmp;";
const ask = "printf 'GET /f HTTP/1.0\\r\\n\\r\\n' | /.corral/busybox nc -w 5 localhost 7001 2> /dev/null | tail -n 1";
const served = (worker: string, more: object = {}) => ({
  services: { s: { worker, ports: [7001], ready_within: "20s", ...more } },
});

const workers = {
  // Its server goes into the background, in a session of its own, and it ends.
  hides: { command: sh(`echo x > /tmp/f; ${HTTPD} trap '' TERM; (setsid sleep 4801 &) ; sleep 1; exit 0`) },
  "w-hides": { command: sh(`while [ "$(${ask})" = x ]; do :; done; echo closed`), ...served("hides") },
  // It takes no signal, and leaves programs that take none in sessions of their own.
  stays: {
    command: sh(
      `echo x > /tmp/f; ${HTTPD} trap '' TERM INT HUP; (setsid sh -c "trap '' TERM; sleep 4802" &); sleep 4803`,
    ),
  },
  "w-stays": { command: sh(ask), ...served("stays") },
  // It says that it is ready, with nothing at its port.
  lies: { command: sh("exec sleep 300") },
  "w-lies": { command: sh("echo ran"), ...served("lies", { ready: ["true"], ready_within: "1s" }) },
  // It prints without end, also of its own control sequences, while another request is answered.
  floods: { command: sh(`echo x > /tmp/f; ${HTTPD} exec tr '\\0' y < /dev/zero`), limits: { output: "64k" } },
  "w-floods": { command: sh(`sleep 2; ${ask}`), ...served("floods") },
  // Its ready command never ends, and prints without end.
  hangs: { command: sh(`echo x > /tmp/f; ${HTTPD} exec sleep 300`) },
  "w-hangs": {
    command: sh("echo ran"),
    ...served("hangs", { ready: sh("while :; do echo y; done"), ready_within: "1s" }),
  },
  // More connections than it has places, all of which stay open.
  "w-many": {
    command: sh(
      `for i in $(seq 300); do (sleep 3 | /.corral/busybox nc localhost 7001 > /dev/null 2>&1 &); done; sleep 2; echo alive`,
    ),
    limits: { pids: 1000 },
    ...served("stays"),
  },
};

let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({ workers, policy: "default" });
});

afterAll(() => project[Symbol.asyncDispose]());

describe("a hostile service", () => {
  it("that ends and leaves a hidden server has ended with it: nothing answers, and nothing of it is left", async () => {
    const result = await project.run("w-hides");
    expect(result).toMatchObject({ status: "succeeded", stdout: "closed\n" });
    expect(await project.traces()).toEqual([]);
  });

  it("that takes no signal does not outlive its worker", async () => {
    const result = await project.run("w-stays");
    expect(result).toMatchObject({ status: "succeeded", stdout: "x\n" });
    expect(await project.traces()).toEqual([]);
  });

  it("that says that it is ready and does not listen, or never answers whether it is, refuses the run", async () => {
    const lies = await project.run("w-lies");
    expect(lies).toMatchObject({ status: "refused", stdout: "", violations: [{ code: "SERVICE_NOT_READY" }] });
    expect(lies.error?.message).toMatch(/nothing listens on its port 7001, and it had 1s/);
    const hangs = await project.run("w-hangs");
    expect(hangs).toMatchObject({ status: "refused", violations: [{ code: "SERVICE_NOT_READY" }] });
    expect(await project.traces()).toEqual([]);
  });

  it("that prints without end costs a bounded record, and nothing of its worker's", async () => {
    const result = await project.run("w-floods");
    expect(result).toMatchObject({ status: "succeeded", stdout: "x\n", truncated: false });
    const place = { stateDir: project.stateDir, projectDir: project.dir };
    const pieces = await runOutput(place, result.run, { streams: ["stdout"], service: "s" });
    const bytes = (await Array.fromAsync(pieces)).reduce((sum, piece) => sum + piece.bytes.length, 0);
    expect(bytes).toBeGreaterThan(64 * 1024);
    expect(bytes).toBeLessThan(MAX_STREAMS_BYTES);
    const printed = project.events.filter(({ type, ...event }) => type === "output" && event.service === "s");
    // Beyond its limit it is read slowly: as fast as it can, it would print gigabytes in this time.
    const all = printed.reduce((sum, event) => sum + (event.type === "output" ? event.chunk.length : 0), 0);
    expect(all).toBeLessThan(64 * 1024 ** 2);
  });

  it("gets no more connections at once than its places, whatever its worker opens", async () => {
    const result = await project.run("w-many");
    expect(result).toMatchObject({ status: "succeeded", stdout: "alive\n" });
    expect(await project.traces()).toEqual([]);
  });
});
