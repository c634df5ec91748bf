import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openHandySession, type SessionFixture } from "./session-fixture.ts";

const MEBIBYTE = 1024 * 1024;
/** All of it goes through the Engine, which takes several times as long as a pipe does. */
const LONG_OUTPUT_MB = 64;
const SLOW_OUTPUT = 40_000_000;
/** What may pass between a limit and the end of everything, on a machine that others use as well. */
const LATE_MS = 5000;

/** Where a session keeps its long output, on the host. */
async function outputDir({ project }: SessionFixture): Promise<string> {
  const live = join(project.stateDir, "live");
  const [owner = ""] = await readdir(live);
  const [dir = ""] = (await readdir(join(live, owner))).filter((name) => name.endsWith(".out"));
  return join(live, owner, dir);
}

describe("the time limit of a command", () => {
  it("ends everything that it started, wherever it hides, and leaves the cell to the next", async () => {
    await using s = await openHandySession();
    await s.exec("sleep 4713 > /dev/null 2>&1 & echo kept > /tmp/kept");
    const hides = `trap '' TERM
      ( setsid sh -c 'trap "" TERM; ( sleep 4714; sleep 4715 ) & sleep 4716' > /dev/null 2>&1 & )
      sleep 4717`;
    const answer = await s.exec(hides, { timeoutMs: 500 });
    expect(answer.status).toBe("timed_out");
    expect(answer.durationMs).toBeGreaterThanOrEqual(500);
    expect(answer.durationMs).toBeLessThan(500 + LATE_MS);
    // What an earlier command left is none of its own. The cell stays, or is replaced and says so, where a busy machine takes too long to bury its dead.
    expect(await s.processes()).toEqual(answer.cellReplaced ? [] : ["sleep 4713"]);
    expect((await s.exec("cat /tmp/kept")).stdout).toBe(answer.cellReplaced ? "" : "kept\n");
  });

  it("leaves alone what runs beside it, and what others began and left meanwhile", async () => {
    await using s = await openHandySession();
    const beside = s.exec(
      "setsid sleep 4731 > /dev/null 2>&1 & until [ -e /tmp/go ]; do sleep 0.05; done; echo went on",
    );
    await s.exec("( sleep 4732; true ) > /dev/null 2>&1 &");
    const bound = s.exec("trap '' TERM; ( setsid sh -c 'sleep 4733; true' & ) > /dev/null 2>&1; sleep 4734; true", {
      timeoutMs: 1500,
    });
    await s.exec("sleep 4735 > /dev/null 2>&1 &");
    expect(await bound).toMatchObject({ status: "timed_out", cellReplaced: false });
    await s.exec(": > /tmp/go");
    expect(await beside).toMatchObject({ status: "succeeded", stdout: "went on\n" });
    expect((await s.processes()).filter((line) => line.startsWith("sleep")).toSorted()).toEqual([
      "sleep 4731",
      "sleep 4732",
      "sleep 4735",
    ]);
  });

  it("lets one that minds the request to end do so", async () => {
    await using s = await openHandySession();
    const command = "trap 'echo bye; exit 5' TERM; while :; do sleep 0.02; done";
    expect(await s.exec(command, { timeoutMs: 1000 })).toMatchObject({
      status: "timed_out",
      exitCode: 5,
      stdout: "bye\n",
    });
  });

  // The host chooses the limit.
  it("is the worker's own where more is asked for", async () => {
    await using s = await openHandySession({ limits: { timeout: "500ms" } });
    const answer = await s.exec("sleep 30", { timeoutMs: 60_000 });
    expect(answer.status).toBe("timed_out");
    expect(answer.durationMs).toBeLessThan(500 + LATE_MS);
    expect((await s.exec("sleep 30")).status).toBe("timed_out");
  });

  it("ends a bomb of forks, and the next command runs", async () => {
    await using s = await openHandySession();
    const answer = await s.exec("bomb() { bomb | bomb & }; bomb; sleep 4718", { timeoutMs: 700 });
    expect(answer.status).toBe("timed_out");
    expect((await s.exec("echo after")).stdout).toBe("after\n");
    expect(await s.processes()).toEqual([]);
  });
});

describe("a command that is cancelled", () => {
  it("ends with everything that it started, and the cell stays", async () => {
    await using s = await openHandySession();
    const cancelling = new AbortController();
    const onOutput = (): void => cancelling.abort();
    const command = "setsid sleep 4719 > /dev/null 2>&1 & echo begun; sleep 4720";
    const answer = await s.session.exec({ command }, cancelling.signal, onOutput);
    expect(answer).toMatchObject({ status: "cancelled", stdout: "begun\n" });
    expect(await s.processes()).toEqual([]);
    expect(await s.exec("true", {}, cancelling.signal)).toMatchObject({ status: "cancelled", exitCode: null });
    expect(await s.tool("exec", { command: "true" }, cancelling.signal)).toMatchObject({ code: "CANCELLED" });
  });
});

describe("a command that prints much", () => {
  it("is shown with its beginning and end, and stands whole in a file that can be paged through", async () => {
    await using s = await openHandySession();
    const before = await s.tool("list_files", { path: "/" });
    expect(before).toMatchObject({ text: "/docs/\n/out/" });
    const answer = await s.exec("seq 100000; echo 'a word' >&2");
    expect(answer).toMatchObject({ status: "succeeded", stderr: "a word\n", cut: true });
    const said =
      /^1\n2\n[\s\S]*\n\[… (\d+) bytes left out; the whole output is in (\S+) …\]\n[\s\S]*\n99999\n100000\n$/.exec(
        answer.stdout,
      );
    expect(said?.[2]).toBe("/.corral/output/1.stdout");
    expect(answer.stdout.length).toBeLessThan(25_000);
    expect(588_895 - Number(said?.[1])).toBe(24_000);
    const page = await s.tool("read_file", { path: said?.[2], offset: 50_000, limit: 3 });
    expect(page).toMatchObject({ ok: true, text: expect.stringMatching(/^50000\n50001\n50002\n/) });
    expect((await s.exec("sha256sum < /.corral/output/1.stdout; seq 100000 | sha256sum")).stdout).toMatch(/^(.*\n)\1$/);
    const listing = await s.tool("list_files", { path: "/", pattern: "**" });
    expect(listing.ok && listing.text).toContain("/.corral/output/1.stdout (588895 bytes)");
    for (const write of ["write_file", "append_file"]) {
      const refused = await s.tool(write, { path: "/.corral/output/1.stdout", content: "x" });
      expect(refused).toMatchObject({ ok: false, code: "PATH_NOT_WRITABLE" });
    }
  });

  it("without end is ended at its limit: what came before is whole, and this process does not grow with it", async () => {
    await using s = await openHandySession({ limits: { output: `${LONG_OUTPUT_MB}m` } });
    await s.exec("true");
    const rss: number[] = [process.memoryUsage.rss()];
    const watching = setInterval(() => rss.push(process.memoryUsage.rss()), 20);
    const answer = await s.exec("yes 0123456789abcdef | head -c 1000000000").finally(() => clearInterval(watching));
    expect(answer).toMatchObject({ status: "output_limit", cut: true, cellReplaced: false });
    expect(Math.max(...rss) - (rss[0] ?? 0)).toBeLessThan(100 * MEBIBYTE);
    const file = join(await outputDir(s), "2.stdout");
    expect((await stat(file)).size).toBe(LONG_OUTPUT_MB * MEBIBYTE);
    const text = await readFile(file, "latin1");
    expect(text.replaceAll("0123456789abcdef\n", "")).toBe(
      "0123456789abcdef\n".slice(0, (LONG_OUTPUT_MB * MEBIBYTE) % 17),
    );
    const last = await s.tool("read_file", {
      path: "/.corral/output/2.stdout",
      offset: Math.floor((LONG_OUTPUT_MB * MEBIBYTE) / 17) - 1000,
      limit: 1,
    });
    expect(last.ok && last.text).toContain("0123456789abcdef");
    expect(await s.processes()).toEqual([]);
  });

  it("waits where whoever takes the output is slow", async () => {
    await using s = await openHandySession({ limits: { output: "64m" } });
    const { promise: taken, resolve: take } = Promise.withResolvers<void>();
    let bytes = 0;
    const command = `yes 0123456789abcdef | head -c ${SLOW_OUTPUT}; echo > /out/done`;
    const ended = s.session.exec({ command }, new AbortController().signal, (_, chunk) => {
      bytes += chunk.length;
      return taken;
    });
    await expect.poll(() => bytes).toBeGreaterThan(0);
    const early = bytes;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await readdir(join(s.project.dir, "out"))).toEqual([]);
    expect(bytes).toBeLessThan(early + MEBIBYTE);
    take();
    expect((await ended).status).toBe("succeeded");
    expect(bytes).toBe(SLOW_OUTPUT);
  });
});
