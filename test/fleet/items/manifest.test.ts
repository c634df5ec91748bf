import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ManifestFormat, readItems } from "../../../src/fleet/items/read-items.ts";
import { projectFolder } from "../../declarations/project-folder.ts";
import { collected, streamed } from "./collected.ts";

async function fieldsIn(text: string | Buffer, format: ManifestFormat) {
  const { items, fault } = await collected(streamed(text, format));
  expect(fault).toBeNull();
  return items.map(({ fields }) => fields);
}

async function faultIn(text: string | Buffer, format: ManifestFormat) {
  return (await collected(streamed(text, format))).fault;
}

describe("a manifest without items", () => {
  it.each([
    ["", "jsonl"],
    ["\n \n", "jsonl"],
    ["a,b\n", "csv"],
    ["\n", "paths"],
  ] as const)("is refused, unless that is allowed: %j", async (text, format) => {
    expect(await collected(streamed(text, format))).toMatchObject({
      fault: expect.stringMatching(/^in has no items\..*--allow-empty/),
    });
    expect(await collected(streamed(text, format), "/", true)).toEqual({ items: [], leftOut: [], fault: null });
  });
});

describe("a manifest of JSON lines", () => {
  it("gives an item for each line, numbered, with its place", async () => {
    const { items } = await collected(streamed('{"n":1}\n\n  \r\n{"n":2}\r\n{"n":[3,{"x":null}]}', "jsonl"));
    expect(items).toMatchObject([
      { index: 0, place: "in:1", fields: { n: 1 } },
      { index: 1, place: "in:4", fields: { n: 2 } },
      { index: 2, place: "in:5", fields: { n: [3, { x: null }] } },
    ]);
  });

  it("may begin with a byte order mark, and take a text for a path", async () => {
    expect(await fieldsIn('\uFEFF"a/b.tar.gz"', "jsonl")).toEqual([
      { path: "a/b.tar.gz", name: "b.tar.gz", stem: "b.tar", ext: ".gz", relative: "a/b.tar.gz", dir: "a" },
    ]);
  });

  it("derives from a path only what a line does not say itself", async () => {
    expect(await fieldsIn('{"path":"./x/.a","stem":"s","dir":"d"}', "jsonl")).toEqual([
      { path: "./x/.a", name: ".a", stem: "s", ext: "", relative: "x/.a", dir: "d" },
    ]);
    expect(await fieldsIn('{"path":"/abs/a.md"}\n{"path":7}', "jsonl")).toMatchObject([{ dir: "abs" }, { path: 7 }]);
  });

  it.each([
    ['{"a":1}\n{"a" 1}\n', /^in:2:6: this is not JSON/],
    ['{"a":1}\n{"a": oops}', /^in:2:7: this is not JSON/],
    ['\n{"a":1', /^in:2:7: this is not JSON/],
    ["[1]", /^in:1:1: must be an object of fields/],
    ["null", /^in:1:1: must be an object of fields/],
    ["[".repeat(2000), /^in:1:2001: this is not JSON: it is nested more than/],
  ])("ends at a line that is broken, and says where: %#", async (text, fault) => {
    expect(await faultIn(text, "jsonl")).toMatch(fault);
  });

  it("has given the lines before the one that is broken", async () => {
    const { items, fault } = await collected(streamed('{"a":1}\n{"a":2}\nno\n{"a":3}', "jsonl", 1000));
    expect(items.map(({ fields }) => fields.a)).toEqual([1, 2]);
    expect(fault).toMatch(/^in:3:2: /);
  });

  it("refuses a line without end after a mebibyte of it", async () => {
    let pulled = 0;
    async function* endless() {
      for (;;) {
        pulled += 1;
        yield Buffer.alloc(65_536, "x");
      }
    }
    const source = { kind: "stream", stream: endless(), name: "in", format: "jsonl" } as const;
    expect((await collected(source)).fault).toBe(
      "in:1:1: the line is longer than 1048576 bytes; pass large data as a file",
    );
    expect(pulled).toBeLessThan(20);
  });

  it("refuses bytes that are no text, at their place", async () => {
    const text = Buffer.concat([Buffer.from('"ä"\n"ü'), Buffer.from([0xff]), Buffer.from('"\n')]);
    expect(await faultIn(text, "jsonl")).toBe("in:2:3: this is not UTF-8");
    expect(await faultIn(text, "paths")).toBe("in:2:3: this is not UTF-8");
    expect(await faultIn(Buffer.concat([Buffer.from("a\n"), text]), "csv")).toBe("in:3:3: this is not UTF-8");
  });

  it("keeps what would be a prototype elsewhere as a field like any other", async () => {
    const [fields] = await fieldsIn('{"__proto__":{"x":1},"constructor":"c","path":"a"}', "jsonl");
    expect(Object.keys(fields ?? {})).toEqual(expect.arrayContaining(["__proto__", "constructor", "path", "name"]));
    expect(Object.getPrototypeOf(fields)).toBe(Object.prototype);
  });

  it("comes back as it was written, wherever the pieces fall", async () => {
    const line = fc.dictionary(
      fc.string({ unit: "binary" }).filter((key) => key !== "path"),
      fc.jsonValue(),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(line, { maxLength: 8 }), fc.integer({ min: 1, max: 40 }), async (lines, size) => {
        const text = lines.map((fields) => JSON.stringify(fields)).join("\n");
        const { items, fault } = await collected(streamed(text, "jsonl", size), "/", true);
        expect(fault).toBeNull();
        expect(items.map(({ fields }) => JSON.stringify(fields))).toEqual(
          lines.map((fields) => JSON.stringify(fields)),
        );
      }),
      { numRuns: 200 },
    );
  });
});

describe("a manifest of CSV", () => {
  it("names its columns in the first line; quoted values hold commas, quotes and line breaks", async () => {
    const text = '\uFEFFpath,lang\r\n"a,""1"".pdf",de\r\n\r\n"x\r\ny",en\nlast,\n';
    const { items } = await collected(streamed(text, "csv"));
    expect(items.map(({ fields, place }) => [place, fields.path, fields.lang])).toEqual([
      ["in:2", 'a,"1".pdf', "de"],
      ["in:4", "x\r\ny", "en"],
      ["in:6", "last", ""],
    ]);
  });

  it.each([
    ["a,b\n1,2\n3\n", "in:3:1: has 1 value, but the first line names 2 columns"],
    ["a,b\n1,2,3\n", "in:2:1: has 3 values, but the first line names 2 columns"],
    ["a,a\n1,2\n", "in:1:1: names the column `a` twice"],
    ["a,\n1,2\n", "in:1:1: column 2 has no name; the first line names the columns"],
    ['a,b\n1,2\n"3,4\n5,6\n', "in:3:1: a quote in this record is never closed"],
    ['a,b\n1,"2"x\n', 'in:2:1: text follows a closing quote; write a quote inside quotes as `""`'],
    [
      'a,b\n1,2"x\n',
      'in:2:1: a value without quotes contains a quote; put the value in quotes and write the quote as `""`',
    ],
  ])("ends where it is broken, and says where: %#", async (text, fault) => {
    expect(await faultIn(text, "csv")).toBe(fault);
  });

  it("refuses a quote that swallows the rest of a large file", async () => {
    const text = `a,b\n1,"2\n${"3,4\n".repeat(400_000)}`;
    const { fault } = await collected(streamed(text, "csv", 65_536));
    expect(fault).toMatch(/^in:\d+:1: the record is longer than 1048576 bytes; check that every quote is closed$/);
  });

  it("takes a column of any name for a field", async () => {
    const [fields] = await fieldsIn("__proto__,constructor\nx,y\n", "csv");
    expect(Object.entries(fields ?? {})).toEqual([
      ["__proto__", "x"],
      ["constructor", "y"],
    ]);
  });

  it("comes back as it was written, wherever the pieces fall", async () => {
    const value = fc.string({ unit: "grapheme" }).map((text) => text.replaceAll("\r", ""));
    const rows = fc.array(fc.tuple(value, value), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(rows, fc.integer({ min: 1, max: 40 }), async (values, size) => {
        const quoted = values.map((row) => row.map((each) => `"${each.replaceAll('"', '""')}"`).join(","));
        const { items } = await collected(streamed(["a,b", ...quoted].join("\n"), "csv", size));
        expect(items.map(({ fields }) => [fields.a, fields.b])).toEqual(values);
      }),
      { numRuns: 200 },
    );
  });
});

describe("a list of paths", () => {
  it("is one path a line, with every blank that is in it", async () => {
    const fields = await fieldsIn("./a.pdf\n\n b c \n/abs/d\n", "paths");
    expect(fields.map(({ path, relative }) => [path, relative])).toEqual([
      ["./a.pdf", "a.pdf"],
      [" b c ", " b c "],
      ["/abs/d", "abs/d"],
    ]);
  });
});

describe("a manifest file", () => {
  it("is told by its name, found from the working directory, and read through its owner's links", async () => {
    const dir = await projectFolder({ "data/items.jsonl": '{"path":"a.pdf"}\n', "data/items.csv": "path\nb.pdf\n" });
    await symlink("data/items.jsonl", join(dir, "link.ndjson"));
    for (const [path, relative] of [
      ["data/items.jsonl", "a.pdf"],
      ["./data/items.csv", "b.pdf"],
      ["link.ndjson", "a.pdf"],
    ] as const) {
      const { items } = await collected({ kind: "manifest", path }, dir);
      expect(items.map(({ fields, place }) => [fields.relative, place.split(":")[0]])).toEqual([[relative, path]]);
    }
  });

  it("tells absolute paths in its own folder apart from all others", async () => {
    const dir = await projectFolder({});
    await writeFile(join(dir, "m.jsonl"), `${JSON.stringify(`${dir}/sub/a.pdf`)}\n"/elsewhere/a.pdf"\n`);
    const { items } = await collected({ kind: "manifest", path: "m.jsonl" }, dir);
    expect(items.map(({ fields }) => [fields.relative, fields.dir])).toEqual([
      ["sub/a.pdf", "sub"],
      [undefined, undefined],
    ]);
  });

  it.each([
    ["missing.jsonl", "missing.jsonl:1:1: does not exist"],
    ["folder.csv", "folder.csv:1:1: is a directory, not a file"],
    ["list.txt", /^list\.txt: unknown manifest format; choose jsonl, csv or paths/],
    ["/dev/null", /^\/dev\/null: unknown manifest format/],
  ])("is refused where it is none: %s", async (path, fault) => {
    const dir = await projectFolder({ "folder.csv/": "", "list.txt": "a\n" });
    expect((await collected({ kind: "manifest", path }, dir)).fault).toMatch(fault);
  });

  it("is refused where it is a device or a pipe, without waiting for it", async () => {
    const source = { kind: "manifest", path: "/dev/zero", format: "jsonl" } as const;
    expect((await collected(source)).fault).toBe("/dev/zero:1:1: is neither a folder nor a plain file");
  });

  it("is refused in the end where it changed while Corral read it", async () => {
    const dir = await projectFolder({ "m.jsonl": '{"a":1}\n{"a":2}\n' });
    const reading = { cwd: dir, signal: new AbortController().signal, leftOut: () => {} };
    const seen: unknown[] = [];
    const read = async () => {
      for await (const { fields } of readItems({ kind: "manifest", path: "m.jsonl" }, reading)) {
        seen.push(fields.a);
        await writeFile(join(dir, "m.jsonl"), '{"a":1}\n{"a":2}\n{"a":3}\n');
      }
    };
    await expect(read()).rejects.toThrow("m.jsonl:1:1: changed while Corral read it");
    expect(seen).toEqual([1, 2]);
  });
});

describe("a program's own values", () => {
  it("are items as lines of JSON are", async () => {
    const { items, fault } = await collected({ kind: "values", values: [{ n: 1 }, "a/b.md", 3] }, "/w");
    expect(items).toMatchObject([
      { index: 0, place: "item 0", fields: { n: 1 } },
      { index: 1, place: "item 1", fields: { relative: "a/b.md", dir: "a" } },
    ]);
    expect(fault).toBe("item 2: must be an object of fields, or a path as a string");
  });
});

describe("reading items", () => {
  it("pulls no more of a stream than is asked for", async () => {
    let pulled = 0;
    async function* million() {
      for (; pulled < 1_000_000; pulled += 1) yield `"${pulled}"\n`;
    }
    for (const format of ["jsonl", "csv", "paths"] as const) {
      pulled = 0;
      const source = { kind: "stream", stream: million(), name: "in", format } as const;
      const reading = { cwd: "/", signal: new AbortController().signal, leftOut: () => {} };
      let seen = 0;
      for await (const _ of readItems(source, reading)) if (++seen === 10) break;
      // What a stream of Node's holds ahead, and nothing like all of it.
      expect(pulled).toBeLessThan(20_000);
    }
  });

  it("stops when it is told to", async () => {
    const stop = new AbortController();
    const reading = { cwd: "/", signal: stop.signal, leftOut: () => {} };
    const read = async () => {
      for await (const { index } of readItems({ kind: "values", values: ["a", "b", "c"] }, reading)) {
        if (index === 1) stop.abort(new Error("enough"));
      }
    };
    await expect(read()).rejects.toThrow("enough");
  });

  it.each(["stream", "values"] as const)("does not wait for what never comes: %s", async (kind) => {
    let waits = () => {};
    const waiting = new Promise<void>((resolve) => {
      waits = resolve;
    });
    async function* silent(): AsyncGenerator<string> {
      yield "a\n";
      waits();
      await new Promise(() => {});
    }
    const stop = new AbortController();
    const reading = { cwd: "/", signal: stop.signal, leftOut: () => {} };
    const source =
      kind === "values"
        ? ({ kind, values: silent() } as const)
        : ({ kind, stream: silent(), name: "in", format: "paths" } as const);
    const seen: unknown[] = [];
    const read = (async () => {
      for await (const { fields } of readItems(source, reading)) seen.push(fields.path);
    })();
    await waiting;
    stop.abort(new Error("enough"));
    await expect(read).rejects.toThrow("enough");
    expect(seen).toHaveLength(1);
  });
});
