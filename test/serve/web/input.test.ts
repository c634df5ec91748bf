import { expect, it } from "vitest";
import { inputOf } from "../../../src/serve/web/pages/workers/workers.tsx";

it.each([
  ["", undefined],
  [" \n", undefined],
  ['{"a": 1}', { a: 1 }],
  [" [1, 2] ", [1, 2]],
  ["12", 12],
  ["null", null],
  ['"text"', "text"],
  ["two words\n", "two words\n"],
  ["12 monkeys", "12 monkeys"],
])("an input that is typed as %j is %j", (text, value) => {
  expect(inputOf(text)).toEqual({ ok: true, value });
});

it.each(['{"a": 1', "[1, 2", '"text', "{a: 1}"])("an input that begins as JSON and is none is not sent: %s", (text) => {
  expect(inputOf(text)).toMatchObject({ ok: false, fault: expect.stringContaining("begins as JSON") });
});
