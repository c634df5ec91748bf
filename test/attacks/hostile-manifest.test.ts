import { posix } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ItemRefusal, withPathFields } from "../../src/fleet/items/item-fields.ts";
import { itemFiller } from "../../src/fleet/items/item-template.ts";
import type { ItemRequest, ItemTemplate } from "../../src/fleet/model/item.ts";

/** Fills, or answers with what was refused. */
function attempt(template: Partial<ItemTemplate>, fields: Record<string, unknown>, within?: readonly string[]) {
  const item = { index: 0, place: "m.jsonl:1", fields: withPathFields(fields, "/m"), record: fields };
  try {
    const context = { manifestDir: "/m", templateDir: "/t", ...(within === undefined ? {} : { within }) };
    return itemFiller({ attach: [], key: "k", ...template }, context)(item);
  } catch (error) {
    if (error instanceof ItemRefusal) return error.problems.join("\n");
    throw error;
  }
}

describe("a hostile manifest that wants another folder to write to", () => {
  it.each([
    ["/text/{stem}", { stem: "../../x" }, /contains a `\/`/],
    ["/text/{stem}", { stem: "a/b" }, /contains a `\/`/],
    ["/text/{stem}", { stem: ".." }, /the name `\.\.`/],
    ["/text/{stem}", { stem: "." }, /the name `\.`/],
    ["/text/{stem}", { stem: "" }, /would be the directory itself/],
    ["/text/{stem}/out", { stem: "" }, /would be the directory itself/],
    ["/text/.{a}", { a: "." }, /the name `\.\.`/],
    ["/text/{a}{b}", { a: ".", b: "." }, /the name `\.\.`/],
    ["/text/{a}", { a: "/etc" }, /is absolute/],
    ["/text/{a}", { a: "x\u0000y" }, /control character/],
    ["/text/{a}", { a: "x\ny" }, /control character/],
    ["/text/{a}", { a: "-rf" }, /starts with `-`/],
    ["/text/{a}", { a: -1 }, /starts with `-`/],
    ["/text/{a}", { a: "\ud800" }, /not valid Unicode/],
    ["/text/{a}", { a: "ä".repeat(128) }, /longer than 255 bytes/],
    ["/text/{a}", { a: "x\\..\\y" }, /backslashes are not allowed/],
    ["/text/{a}", { a: ["x"] }, /is a list/],
    ["/text/{a}", { a: null }, /is nothing/],
    ["/text/{dir}", { dir: "" }, /would be the directory itself/],
    ["/text/{dir}/", { dir: "" }, /would be the directory itself/],
    ["/text/{dir}/.//.", { dir: "" }, /would be the directory itself/],
    ["/text/{dir}/{dir}", { dir: "" }, /would be the directory itself/],
    ["/text/{dir}", { dir: "./." }, /would be the directory itself/],
    ["/text/{dir}/{stem}", { dir: "..", stem: "x" }, /the name `\.\.`/],
    ["/text/{dir}/{stem}", { dir: "a/../../b", stem: "x" }, /the name `\.\.`/],
    ["/text/{relative}", { path: "../../etc/passwd" }, /the name `\.\.`/],
    ["/text/{path}", { path: "/etc/passwd" }, /is absolute/],
    ["/text/{meta.path}", { meta: { path: "a/b" } }, /contains a `\/`/],
    ["{out}", { out: "/" }, /would be the directory itself/],
    ["{out}", { out: "/text/../other" }, /the name `\.\.`/],
    ["{out}", { out: "~" }, /cannot start a path/],
    ["{out}", { out: "secrets:x" }, /cannot start a path/],
    ["{a}/x", { a: "~" }, /cannot start a path/],
    ["text{a}", { a: ":x" }, /cannot start a path/],
    ["{dir}/{a}", { dir: "", a: "secrets:x" }, /cannot start a path/],
  ])("is refused: %s of %j", (allowWrite, fields, problem) => {
    expect(attempt({ allowWrite: [allowWrite] }, fields)).toMatch(problem);
  });

  it("gets nothing but what is below the folder that the template spells out, whatever it says", async () => {
    const templates = [
      "/text/{a}",
      "/text/{a}/{b}",
      "/text/x{a}y",
      "/text/{dir}/{a}",
      "/text/{dir}/./",
      "/text/./{dir}/{dir}//",
      "/text/{relative}",
      "/text/{path}.d/{b}",
    ];
    const value = fc.oneof(hostile, fc.string({ unit: "binary" }), fc.jsonValue());
    // In parts, because one turn of the loop is watched: what Corral does for a thousand items is not one of its steps.
    for (let part = 0; part < 50; part += 1) {
      fc.assert(
        fc.property(
          fc.constantFrom(...templates),
          fc.record({ a: value, b: value, dir: value, path: value }),
          (one, fields) => {
            const request = attempt({ allowRead: [one], allowWrite: [one] }, fields);
            if (typeof request === "string") return;
            for (const path of [...(request.allowRead ?? []), ...(request.allowWrite ?? [])]) {
              expect(path.startsWith("/text/") && path.length > "/text/".length).toBe(true);
              expect(posix.normalize(path)).toBe(path);
              expect(path).not.toMatch(/\p{Cc}|\/-/u);
            }
          },
        ),
        { numRuns: 100 },
      );
      await nextTurn();
    }
  });
});

describe("a hostile manifest that wants another file to be attached", () => {
  it.each([
    ["{path}", "/etc/shadow"],
    ["{path}", "/m-evil/a"],
    ["{path}", "/m"],
    ["{path}", "../secret"],
    ["{path}", "a/../../secret"],
    ["{path}", "/m/../etc/shadow"],
    ["data/{path}", "../../etc/shadow"],
    ["data/{path}", "/etc/shadow"],
    ["{path}=in.pdf", "/etc/shadow"],
  ])("is refused: %s of %s", (attach, path) => {
    expect(attempt({ attach: [attach] }, { path })).toMatch(/^attach /);
  });

  it("is told where files may be, and a person may allow more", () => {
    expect(attempt({ attach: ["{path}"] }, { path: "/data/a.pdf" }, ["/inbox"])).toBe(
      'attach {path}: "/data/a.pdf" is outside the allowed directories: /m, /inbox',
    );
    const { attachments } = attempt({ attach: ["{path}"] }, { path: "/data/a.pdf" }, ["/data"]) as ItemRequest;
    expect(attachments).toEqual([{ path: "/data/a.pdf", name: "a.pdf" }]);
  });

  it.each([["../x"], ["a/b"], [".."], [""], ["-x"], ["a\nb"], ["\u009b2J"], ["\ud800"], ["x".repeat(256)]])(
    "does not choose its place in the cell either: %j",
    (name) => {
      expect(attempt({ attach: ["{path}={called}"] }, { path: "a", called: name })).toMatch(
        /is not a valid attachment name/,
      );
    },
  );

  it("gets files of its own folder and of those that were allowed, whatever it says", async () => {
    const value = fc.oneof(hostile, fc.string({ unit: "binary" }));
    const templates = ["{path}", "{a}", "{path}={a}", "{dir}/{a}", "sub/{path}", "/in/{a}", "./{a}/{path}={b}"];
    // In parts, as above.
    for (let part = 0; part < 50; part += 1) {
      fc.assert(
        fc.property(
          fc.constantFrom(...templates),
          fc.record({ a: value, b: value, dir: value, path: value }),
          (one, fields) => {
            const request = attempt({ attach: [one] }, fields, ["/data"]);
            if (typeof request === "string") return;
            for (const { path, name } of request.attachments) {
              expect(path).toMatch(
                one.startsWith("/in/") ? /^\/in\/./s : one.startsWith("{") ? /^\/(m|data)\/./s : /^\/t\/./s,
              );
              expect(posix.normalize(path)).toBe(path);
              expect(name).toMatch(/^[^/\p{Cc}-][^/\p{Cc}]*$/u);
            }
          },
        ),
        { numRuns: 100 },
      );
      await nextTurn();
    }
  });
});

describe("a hostile manifest that wants to be read by a person", () => {
  it("is quoted, cut and escaped in messages", () => {
    const told = attempt({ allowWrite: ["/text/{a}"] }, { a: `/\u001b[2J\u202e\u009b${"x".repeat(10_000)}` }) as string;
    expect(told).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(told.length).toBeLessThan(400);
  });
});

const hostile = fc
  .array(fc.constantFrom("..", ".", "/", "a", "-", "~", ":", "text", "data", "m", "\\", "\u0000", "\n", "%2e", "in"), {
    maxLength: 8,
  })
  .map((pieces) => pieces.join(""));
