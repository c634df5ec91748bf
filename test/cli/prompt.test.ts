import { PassThrough, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { describe, expect, it } from "vitest";
import type { Question } from "../../src/approval/approver.ts";
import { promptAt } from "../../src/cli/consent/person.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

const [ENTER, DOWN, UP, CTRL_C] = ["\r", "\u001b[B", "\u001b[A", "\u0003"];
const never = new AbortController().signal;
const question: Question = {
  ...{ run: "r", root: "r", worker: "w", operations: ["write"], paths: ["/out/a"] },
  ...{ runs: 1, waiting: [{ run: "r", root: "r" }] },
};

/** A terminal that presses `keys`, one after another, each once the question stands there anew. */
function terminal(keys: readonly string[]) {
  let drawn = "";
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => stdin });
  const stderr = Object.assign(
    new Writable({
      write(chunk, _, done) {
        drawn += chunk;
        done();
      },
    }),
    { isTTY: true, columns: 80, rows: 24 },
  );
  void (async () => {
    for (const key of keys) {
      await sleep(20);
      stdin.write(key);
    }
  })();
  const paused: string[] = [];
  const screen = { pause: () => paused.push("pause"), resume: () => paused.push("resume") };
  const ask = promptAt({ stdin, stderr, env: {} } as unknown as Terminal, screen);
  return { ask, paused, text: () => stripVTControlCharacters(drawn) };
}

describe("the prompt", () => {
  it.each([
    [[ENTER], "no"],
    [[DOWN, ENTER], "once"],
    [[DOWN, DOWN, ENTER], "tree"],
    [[DOWN, DOWN, DOWN, ENTER], "session"],
    [[CTRL_C], "interrupt"],
  ] as const)("takes %j as %s", async (keys, answer) => {
    const { ask, paused } = terminal(keys);
    expect(await ask(question, never)).toBe(answer);
    expect(paused).toEqual(["pause", "resume"]);
  });

  it("shows the rest of a long diff when it is asked to, and asks again", async () => {
    const diff = Array.from({ length: 100 }, (_, index) => `+line ${index}`).join("\n");
    const { ask, text } = terminal([UP, ENTER, DOWN, ENTER]);
    expect(await ask({ ...question, diff }, never)).toBe("once");
    expect(text()).toContain("┊ +line 0\n");
    expect(text()).toContain("┊ +line 99\n");
    expect(text().split("Allow it?").at(0)).not.toContain("+line 60");
  });

  it("lets the user grant a directory around the one that was asked for, in the words of that", async () => {
    const grant: Question = {
      ...question,
      operations: ["grant_read"],
      paths: ["/srv/a/b"],
      directory: "/srv/a/b",
      wider: ["/srv/a"],
    };
    const { ask, text } = terminal([UP, ENTER, DOWN, ENTER, DOWN, DOWN, ENTER]);
    expect(await ask(grant, never)).toMatchObject({ outcome: "approved", scope: "tree", directory: "/srv/a" });
    expect(text()).toContain("asks to read the directory /srv/a. Allow it?");
    const no = terminal([UP, ENTER, ENTER, ENTER]);
    expect(await no.ask(grant, never)).toBe("no");
  });

  it("is withdrawn when nobody waits for the answer any more", async () => {
    const { ask, paused } = terminal([]);
    const waiting = new AbortController();
    const answer = ask(question, waiting.signal);
    waiting.abort(new Error("gone"));
    await expect(answer).rejects.toThrow("gone");
    expect(paused).toEqual(["pause", "resume"]);
  });
});
