import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { sh } from "../run/project-fixture.ts";
import { openFleetProject } from "./fleet-fixture.ts";

const FILES = { "words/f": "words\n", "text/other/f": "other\n", "text/keep": "" };
/** Its input is where it writes. It reads what all items read, and fails if it can write anywhere else. */
const SCRIPT = `read -r json; own=$(echo "$json" | tr -d '"')
cat /words/f /text/other/f
for place in /text /text/other /words; do ! touch "$place/planted" 2>/dev/null || exit 9; done
echo mine > "$own/out" && [ ! -e "$own/fail" ] && case $own in *fails*) exit 1;; *empty*) rm "$own/out";; esac`;

function project(zone: Record<string, unknown>) {
  const zones = [
    { name: "text", mode: "rw", approval: "pre_approved", ...zone },
    { name: "words", mode: "ro" },
  ];
  const command = { w: { command: sh(SCRIPT), sandbox: { zones } } };
  return openFleetProject({ workers: command, zones: { text: "rw", words: "ro" }, files: FILES });
}

const writing = (...places: string[]) => places.map((place) => ({ key: place, input: place, allowWrite: [place] }));

describe.each([{}, { stage: true }, { approval: "ask" }])(
  "an item that says only what it writes (zone: %j)",
  (zone) => {
    it("reads what its worker reads, writes nowhere else, and gets the folders that are missing", async () => {
      await using f = await project(zone);
      const text = join(f.project.dir, "text");
      const places = ["/text/a", "/text/2026/b", "/text/2026/c", "/text/other", "/text/fails", "/text/empty"];
      const { results } = await f.map(
        { concurrency: 2 },
        writing(...places.filter((place) => place !== "/text/other")),
      );
      const asks = "approval" in zone;
      const ended = [...results.values()].map(({ key, status, error, output }) => [
        key,
        status,
        asks ? "" : error,
        output,
      ]);
      expect(ended.toSorted()).toEqual(
        [
          ["/text/2026/b", asks ? "pending" : "succeeded"],
          ["/text/2026/c", asks ? "pending" : "succeeded"],
          ["/text/a", asks ? "pending" : "succeeded"],
          ["/text/empty", "succeeded"],
          ["/text/fails", "failed"],
        ].map(([key, status]) => [
          key,
          status,
          asks ? "" : status === "failed" ? expect.anything() : null,
          "words\nother\n",
        ]),
      );
      const isStaged = Object.keys(zone).length > 0;
      if (asks) expect(readdirSync(text).toSorted()).toEqual(["keep", "other"]);
      else {
        for (const place of ["a", "2026/b", "2026/c"])
          expect(readFileSync(join(text, place, "out"), "utf8"), place).toBe("mine\n");
        // Nothing of an item that failed or wrote nothing reaches a staged directory.
        expect(["fails", "empty"].map((name) => existsSync(join(text, name)))).toEqual([!isStaged, !isStaged]);
      }
      expect((await f.project.traces()).filter((trace) => !trace.startsWith("socket"))).toEqual([]);
    });
  },
);

describe("an item of a shared cell that says only what it writes", () => {
  it("reads what no item writes, and its own folder; what others write must be left out", async () => {
    await using f = await openFleetProject({
      workers: {
        w: {
          command: sh("cat /words/f; echo /text/*; echo mine > /text/a/out"),
          sandbox: { zones: [{ name: "text", mode: "rw", approval: "pre_approved" }, { name: "words" }] },
        },
      },
      zones: { text: "rw", words: "ro" },
      files: FILES,
    });
    const { results } = await f.map({ reuse: "scrubbed" }, [
      ...writing("/text/a"),
      { key: "all", allowRead: ["/words", "/text"], allowWrite: ["/text/b"] },
    ]);
    expect(results.get("/text/a")).toMatchObject({ status: "succeeded", output: "words\n/text/a\n" });
    expect(results.get("all")).toMatchObject({
      status: "refused",
      error: { code: "NOT_FIT_FOR_REUSE", message: expect.stringContaining("the other items write there") },
    });
  });
});
