import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { finalOutput } from "../../src/agent/loop.ts";
import { Redactor } from "../../src/secrets/read-secret.ts";

const fits = () => null;
const asItIs = (value: unknown): unknown => value;
const FENCE = "```";

describe("an answer that is to be JSON", () => {
  it.each([
    ['{"n":1}', { n: 1 }],
    [' \n[1, "a"]\n', [1, "a"]],
    ["null", null],
    [`${FENCE}json\n{"n":1}\n${FENCE}`, { n: 1 }],
    [`${FENCE}\n{"n":1}${FENCE}\n`, { n: 1 }],
    [`  ${FENCE}JSON \n"${FENCE}"\n${FENCE}  `, FENCE],
  ])("%j is taken", async (text, value) => {
    expect(await finalOutput(text, fits, asItIs)).toEqual({ ok: true, text, value });
  });

  it.each([
    "",
    "Done.",
    'Here it is: {"n":1}',
    `${FENCE}json\n{"n":1}\n${FENCE}\nThat is all.`,
    "{n: 1}",
    "NaN",
    `${FENCE}json\n1234`,
  ])("%j is not, and the model is told why", async (text) => {
    expect(await finalOutput(text, fits, asItIs)).toMatchObject({
      ok: false,
      fault: expect.stringContaining("not valid JSON"),
    });
  });

  it("is measured by the schema, and what is not as asked is told", async () => {
    const seen: unknown[] = [];
    const mismatch = (value: unknown): string => {
      seen.push(value);
      return "/n must be integer";
    };
    expect(await finalOutput('{"n":"1"}', mismatch, asItIs)).toEqual({
      ok: false,
      text: '{"n":"1"}',
      fault: "it does not match the schema: /n must be integer",
    });
    expect(seen).toEqual([{ n: "1" }]);
  });

  it("holds no key that its escapes spelled, neither where it is measured nor in its text", async () => {
    const redactor = new Redactor(["sk-1"]);
    const clean = { "[secret]": ["[secret]"] };
    const seen: unknown[] = [];
    const mismatch = (value: unknown): null => {
      seen.push(value);
      return null;
    };
    const text = '{"\\u0073k-1": ["\\u0073\\u006b\\u002d1"]}';
    expect(await finalOutput(text, mismatch, (value) => redactor.value(value))).toEqual({
      ok: true,
      text: JSON.stringify(clean),
      value: clean,
    });
    expect(seen).toEqual([clean]);
    const other = ' {"\\u0073k": 1} ';
    expect(await finalOutput(other, fits, (value) => redactor.value(value))).toMatchObject({ ok: true, text: other });
  });

  it("is judged at once, also where it is made to be looked at for ever", async () => {
    const text = `${FENCE}json\n${" ".repeat(2_000_000)}x`;
    const begunAt = performance.now();
    expect((await finalOutput(text, fits, asItIs)).ok).toBe(false);
    expect(performance.now() - begunAt).toBeLessThan(10_000);
  });

  it("is the value that was meant, whatever it is, with fences and without", async () => {
    await fc.assert(
      fc.asyncProperty(fc.jsonValue(), fc.boolean(), async (value, isFenced) => {
        const json = JSON.stringify(value);
        const text = isFenced ? `${FENCE}json\n${json}\n${FENCE}` : json;
        expect(await finalOutput(text, fits, asItIs)).toEqual({ ok: true, text, value: JSON.parse(json) });
      }),
    );
  });
});
