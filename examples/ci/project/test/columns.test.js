import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import stringWidth from "string-width";
import { columns } from "../src/columns.js";

test("wide characters count twice", () => {
  assert.deepEqual(
    columns([
      ["日本", "a"],
      ["abc", "b"],
    ]),
    ["日本  a", "abc   b"],
  );
});

test("the second column begins at the same place in every line", () => {
  const row = fc.tuple(fc.stringMatching(/^[a-z日本é]{0,8}$/u), fc.constant("|"));
  fc.assert(
    fc.property(fc.array(row, { minLength: 1 }), (rows) => {
      const places = columns(rows).map((line) => stringWidth(line.slice(0, line.indexOf("|"))));
      assert.equal(new Set(places).size, 1);
    }),
  );
});
