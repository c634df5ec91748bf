import assert from "node:assert/strict";
import { test } from "node:test";
import { paginate } from "./pages.js";

test("full pages", () => {
  assert.deepEqual(paginate([1, 2, 3, 4], 2), [
    [1, 2],
    [3, 4],
  ]);
});

test("a last page that is not full", () => {
  assert.deepEqual(paginate([1, 2, 3], 2), [[1, 2], [3]]);
});
