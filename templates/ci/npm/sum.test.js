import assert from "node:assert/strict";
import { test } from "node:test";

test("six times seven", () => assert.equal(6 * 7, 42));
test("nothing is nothing", () => assert.equal([].length, 0));
