import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ItemRefusal, withPathFields } from "../../../src/fleet/items/item-fields.ts";
import { hashOf } from "../../../src/fleet/items/item-job.ts";
import { itemFiller } from "../../../src/fleet/items/item-template.ts";
import type { ItemRequest, ItemTemplate, ManifestItem } from "../../../src/fleet/model/item.ts";
import { sha256 } from "../../../src/platform/sha256.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

const CONTEXT = { manifestDir: "/m", templateDir: "/t" };

function itemOf(fields: Record<string, unknown>, index = 4): ManifestItem {
  return { index, place: "items.jsonl:5", fields: withPathFields(fields, "/m"), record: fields };
}

function filled(template: Partial<ItemTemplate>, fields: Record<string, unknown>, context = {}): ItemRequest {
  return itemFiller({ attach: [], ...template }, { ...CONTEXT, ...context })(itemOf(fields));
}

/** What is wrong with the item, without its place; empty where nothing is. */
function problemsOf(template: Partial<ItemTemplate>, fields: Record<string, unknown>, context = {}): readonly string[] {
  try {
    filled(template, fields, context);
    return [];
  } catch (error) {
    if (!(error instanceof ItemRefusal)) throw error;
    return error.problems;
  }
}

describe("a template", () => {
  it("makes an item's request of its fields", () => {
    const template = {
      attach: ["{path}=in.pdf", "style.css"],
      allowRead: ["/shared"],
      allowWrite: ["/text/{dir}/{stem}", "/logs/{meta.lang}-{n}.log"],
      input: '{"lang":"{meta.lang}","n":"{n}","note":"{{{n}}} of {meta.lang}","meta":"{meta}"}',
    };
    expect(filled(template, { path: "a/b/report.pdf", n: 7, meta: { lang: "de" } })).toEqual({
      index: 4,
      key: "a/b/report.pdf",
      place: "items.jsonl:5",
      input: { lang: "de", n: 7, note: "{7} of de", meta: { lang: "de" } },
      attachments: [
        { path: "/m/a/b/report.pdf", name: "in.pdf" },
        { path: "/t/style.css", name: "style.css" },
      ],
      allowRead: ["/shared"],
      allowWrite: ["/text/a/b/report", "/logs/de-7.log"],
    });
  });

  it("leaves out what was not said", () => {
    expect(itemFiller({}, CONTEXT)(itemOf({}))).toEqual({
      index: 4,
      key: "4",
      place: "items.jsonl:5",
      attachments: [],
    });
    expect(filled({}, {})).toEqual({ index: 4, key: "4", place: "items.jsonl:5", attachments: [] });
    expect(filled({ allowWrite: [], input: "null" }, {})).toMatchObject({ allowWrite: [], input: null });
  });

  it.each([
    [{ key: "k", id: "i", path: "p" }, "k"],
    [{ id: 12, path: "p" }, "12"],
    [{ path: "./p/q" }, "p/q"],
    [{ path: "/far/q" }, "/far/q"],
    [{ key: "", other: 1 }, "4"],
  ])("names an item by what it has: %j", (fields, key) => {
    expect(filled({}, fields).key).toBe(key);
    expect(filled({ key: "x-{a}" }, { ...fields, a: true }).key).toBe("x-true");
  });

  it.each([
    [{ key: { x: 1 } }, "key: the field `key` is a map; only a text, a number, true and false are allowed here"],
    [{ key: "a\ud800" }, "key: it is not valid Unicode"],
    [{ key: "k".repeat(1001) }, "key: it is longer than 1000 characters"],
  ])("refuses a key that could not stand in a report: %#", (fields, problem) => {
    expect(problemsOf({}, fields)).toEqual([problem]);
  });

  it("writes a key with control characters so that it can stand in a report, and no two become one", () => {
    const keys = ["a\u001b[2J", "a\nb", "a\\nb", "a\\\nb"].map((key) => filled({}, { key }).key);
    expect(keys).toEqual(["a\\u{1b}[2J", "a\\u{a}b", "a\\nb", "a\\\\\\u{a}b"]);
  });

  it.each(["-dash.pdf", "two\nlines.pdf", "tab\t.pdf", "\u001b[2J.pdf"])(
    "attaches a file with any name under the template's: %j",
    (path) => {
      const attach = ["{path}=in.pdf"];
      expect(filled({ attach }, { path }).attachments).toEqual([{ path: `/m/${path}`, name: "in.pdf" }]);
      expect(problemsOf({ attach: ["{path}"] }, { path })).toEqual([
        expect.stringMatching(/is not a valid attachment name; set another with PATH=NAME$/),
      ]);
      expect(problemsOf({ allowWrite: ["/text/{name}"] }, { path })).toHaveLength(1);
    },
  );

  it("leaves out the name of a folder that there is none of", () => {
    expect(filled({ allowWrite: ["/text/{dir}/{stem}"] }, { path: "top.md" }).allowWrite).toEqual(["/text/top"]);
  });

  it("names files by their attachments' own names, and refuses two of one name", () => {
    expect(filled({ attach: ["{path}", "{path}={stem}.copy"] }, { path: "a/x.pdf" }).attachments).toEqual([
      { path: "/m/a/x.pdf", name: "x.pdf" },
      { path: "/m/a/x.pdf", name: "x.copy" },
    ]);
    expect(problemsOf({ attach: ["{path}", "x.pdf"] }, { path: "a/x.pdf" })).toEqual([
      "attach: two files have the name x.pdf; rename one with PATH=NAME",
    ]);
    expect(filled({ attach: ["/data/{k}=v/{name}"] }, { k: "k", path: "p" }).attachments).toEqual([
      { path: "/data/k=v/p", name: "p" },
    ]);
  });

  it("reads virtual paths as the fleet's sandbox does, and gives each place one path", () => {
    const paths = { workingDir: "/work" as VirtualPath, mountNames: ["text"] };
    const template = { allowWrite: ["text:sub/{stem}", "out/{stem}", "/text//./{stem}/"] };
    expect(filled(template, { path: "a.md" }, { paths }).allowWrite).toEqual(["/text/sub/a", "/work/out/a", "/text/a"]);
  });

  it("tells everything that is wrong with an item at once, with its place", () => {
    const template = { attach: ["{pth}"], allowWrite: ["/text/{stem}"], input: '["{lang}", "x{meta}"]', key: "{none}" };
    const fields = { path: "a.md", stem: "..", meta: {} };
    expect(() => filled(template, fields)).toThrow(
      [
        "items.jsonl:5: attach {pth}: there is no field `pth`, did you mean `path`? The fields are: name, stem, ext, relative, dir, path, meta, index, hash",
        "items.jsonl:5: key {none}: there is no field `none`, did you mean `name`? The fields are: name, stem, ext, relative, dir, path, meta, index, hash",
        'items.jsonl:5: input: "{lang}": there is no field `lang`; the fields are: name, stem, ext, relative, dir, path, meta, index, hash',
        'items.jsonl:5: allow_write /text/{stem}: the field `stem` ("..") gives the name `..`, which leads to another directory',
      ].join("\n"),
    );
  });

  it.each([
    [{ attach: ["{path"] }, /^attach \{path: has a single `\{`/],
    [{ attach: ["path}"] }, /^attach path\}: has a single `\}`/],
    [{ attach: ["{ }"] }, /^attach \{ \}: has braces without a field's name/],
    [{ attach: [""] }, /^attach : is empty/],
    [{ allowWrite: ["/text/{dir}/../{stem}"] }, /^allow_write .*: has `\.\.` after a field/],
    [{ allowWrite: ["text:{stem}"] }, /^allow_write text:\{stem\}: cannot start a path; start it with `\/`/],
    [{ allowRead: ["~{stem}"] }, /^allow_read ~\{stem\}: cannot start a path/],
    [{ input: "{oops" }, /^input: is not JSON/],
    [{ input: '{"a": "{b"}' }, /^input: "\{b" has a single `\{`/],
    [{ input: { a: undefined } }, /^input: has a value that is not JSON/],
    [{ input: { a: 1n } }, /^input: has a value that is not JSON/],
    [{ input: [Number.NaN] }, /^input: has a value that is not JSON/],
    [{ key: "{{}" }, /^key \{\{\}: has a single `\}`/],
    [{ allowRead: Array.from({ length: 101 }, () => "/a") }, /^allow_read: 101 are given; at most 100 are allowed/],
  ])("is refused before any item where it is wrong itself: %#", (template, fault) => {
    expect(() => itemFiller({ attach: [], ...(template as Partial<ItemTemplate>) }, CONTEXT)).toThrow(fault);
  });
});

describe("the fields that every item has", () => {
  const hash = { ok: true, value: "0123456789abcdef".repeat(4) } as const;
  const fill = (template: ItemTemplate, more: Partial<ManifestItem> = {}) =>
    itemFiller(template, CONTEXT)({ ...itemOf({ path: "a.md" }, 7), hash, ...more });

  it("are its number and its hash, whole or with so many digits", () => {
    const template = {
      key: "{index:4}-{hash:12}",
      input: '["{index}", "{hash}", "n{index:1}"]',
      allowWrite: ["/o/{hash:2}"],
    };
    const filled = fill(template);
    expect(filled).toMatchObject({
      key: "0007-0123456789ab",
      input: [7, hash.value, "n7"],
      allowWrite: ["/o/01"],
    });
  });

  it("give way to the item's own", () => {
    const fields = { index: "mine", hash: "too", "index:2": "and this" };
    expect(fill({ key: "{index} {hash} {index:2}" }, { fields }).key).toBe("mine too and this");
  });

  it.each(["{index:0}", "{hash:65}", "{hash:999}"])("have from 1 to 64 digits: %s is the template's mistake", (key) => {
    expect(() => fill({ key })).toThrow("has from 1 to 64 digits");
  });

  it("are hashes of content for files, and of the record for others, in any order of its fields", async () => {
    const cwd = await mkdtemp(join(tmpdir(), "corral-hash-"));
    try {
      await writeFile(join(cwd, "a.txt"), "content\n");
      await symlink("a.txt", join(cwd, "link.txt"));
      const file = join(cwd, "a.txt");
      expect(await hashOf({ ...itemOf({ path: file }), file })).toEqual({ ok: true, value: sha256("content\n") });
      expect(await hashOf({ ...itemOf({}), file: join(cwd, "link.txt") })).toMatchObject({ ok: false });
      expect(await hashOf(itemOf({ path: file }))).toEqual({ ok: true, value: sha256(JSON.stringify({ path: file })) });
      const [ab, ba] = await Promise.all([
        hashOf(itemOf({ a: 1, b: { c: 2, d: 3 } })),
        hashOf(itemOf({ b: { d: 3, c: 2 }, a: 1 })),
      ]);
      expect(ab).toEqual(ba);
      expect(ab).toEqual({ ok: true, value: sha256('{"a":1,"b":{"c":2,"d":3}}') });
      expect(await hashOf(itemOf({ a: 1n }))).toMatchObject({ ok: false });
    } finally {
      await rm(cwd, { recursive: true });
    }
  });
});

describe("a template of input", () => {
  it("is one field with the field's own type, or a text around fields", () => {
    const value = { list: [1, { deep: null }], text: "a" };
    expect(filled({ input: "{v}" }, { v: value }).input).toEqual(value);
    expect(filled({ input: "{ }" }, { v: value }).input).toEqual({});
    expect(filled({ input: '"{v.list.1.deep}"' }, { v: value }).input).toBeNull();
    expect(filled({ input: { a: ["{v.list}", "{v.text}!", 3, true, null] } }, { v: value }).input).toEqual({
      a: [value.list, "a!", 3, true, null],
    });
  });

  it("takes only what is an item's own for a field", () => {
    for (const name of ["constructor", "__proto__", "toString", "v.length", "v.constructor", "t.length"]) {
      expect(problemsOf({ input: `["{${name}}"]` }, { v: [1], t: "text" })).toHaveLength(1);
    }
    expect(filled({ input: '["{__proto__.x}"]' }, JSON.parse('{"__proto__":{"x":1}}')).input).toEqual([1]);
  });

  it("cannot be left by any value: what comes out has the template's shape", () => {
    const template = '{"lang":"{lang}","around":["<{lang}>"],"{lang}":"{{lang}}"}';
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (lang) => {
        const { input } = filled({ input: template }, { lang });
        expect(input).toEqual({ lang, around: [`<${lang}>`], "{lang}": "{lang}" });
        expect(JSON.parse(JSON.stringify(input))).toEqual(input);
      }),
    );
  });

  it("hands any JSON through a field as it is", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(filled({ input: { of: "{v}" } }, { v: value }).input).toEqual({ of: value });
      }),
    );
  });

  it("gives a text that holds braces back where they are doubled", () => {
    fc.assert(
      fc.property(fc.jsonValue().filter(isSameAsJson), (value) => {
        const doubled = JSON.parse(JSON.stringify(value), (_, each) =>
          typeof each === "string" ? each.replaceAll(/[{}]/g, "$&$&") : each,
        );
        expect(filled({ input: JSON.stringify(doubled) }, {}).input).toEqual(value);
      }),
    );
  });

  it("is bounded, however often it names a long field", () => {
    const template = { input: Array.from({ length: 1000 }, () => "{v} {v}") };
    const tooLarge = "input: is more than 2097152 bytes of JSON; pass large data as a file";
    expect(problemsOf(template, { v: "x".repeat(1_000_000) })).toEqual([tooLarge]);
    expect(problemsOf({ input: "{v}" }, { v: "\u0001".repeat(500_000) })).toEqual([tooLarge]);
    expect(problemsOf({ input: "{v}" }, { v: "x".repeat(1_000_000) })).toEqual([]);
  });
});

/** JSON writes minus zero as zero. */
function isSameAsJson(value: unknown): boolean {
  return !JSON.stringify([value], (_, each) => (Object.is(each, -0) ? "minus zero" : each)).includes("minus zero");
}
