import { PassThrough, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { expect, it } from "vitest";
import { reviewed } from "../../src/cli/consent/review.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import type { ForeseenChangeset, RuledPart } from "../../src/operations/foreseen-changes.ts";

const [ENTER, DOWN] = ["\r", "\u001b[B"];

function partOf(at: number, lines: number): RuledPart {
  const path = `/out/${at}`;
  const added = Array.from({ length: lines }, (_, line) => `+line ${line}`);
  const facts = { path, kind: "create", type: "file", added: lines, removed: 0, bytes: 1 };
  return { ...facts, indexes: [at], lines: added, hostExecuted: null, ruled: null } as unknown as RuledPart;
}

/** Shows two files, the first of which is long, to a person who presses these keys; what was done, in order. */
async function pressed(...keys: readonly string[]) {
  let drawn = "";
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => stdin });
  const write = (chunk: unknown, _: unknown, done: () => void): void => {
    drawn += chunk;
    done();
  };
  const stderr = Object.assign(new Writable({ write }), { isTTY: true, columns: 80, rows: 24 });
  void (async () => {
    for (const key of keys) {
      await sleep(20);
      stdin.write(key);
    }
  })();
  const parts = [partOf(1, 100), partOf(2, 1)];
  const total = { files: 2, added: 101, removed: 0, bytes: 2 };
  const seen = { id: "1", unfit: [], parts, total, notShown: 0, commits: [], lookAlike: [] };
  const did: unknown[] = [];
  const end = await reviewed(seen as unknown as ForeseenChangeset, { stdin, stderr, env: {} } as unknown as Terminal, {
    title: "Changeset 1",
    further: 3,
    signal: new AbortController().signal,
    apply: async (indexes) => void did.push(...indexes),
    discard: async () => void did.push("discarded"),
  });
  return { end, did, text: stripVTControlCharacters(drawn) };
}

it.each<[readonly string[], string, unknown[]]>([
  [["s", "y"], "next", [2]],
  [["w", "y", "y"], "next", [1, 2]],
  [["s", "d", "y"], "next", ["discarded"]],
  [["d", "n", "q"], "stop", []],
  [["a", "n", "q"], "stop", []],
  [["a", "y"], "next", [1, 2]],
  [["r", "y"], "rest", [1, 2]],
  // A file of which a part was not shown cannot be applied by its key.
  [["y", "q"], "stop", []],
  [[DOWN, ENTER, DOWN, ENTER, "s"], "next", [1]],
])("a person who reviews changes presses %j", async (keys, end, did) => {
  const found = await pressed(...keys);
  expect([found.end, found.did]).toEqual([end, did]);
  expect(found.text).toContain("d  Discard what is left of this changeset");
});
