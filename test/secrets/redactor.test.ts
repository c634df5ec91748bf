import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MaskedBytes, Masking, REDACTED, Redactor } from "../../src/secrets/read-secret.ts";

const KEY = 'sk-"canary"/+key=';

describe("a redactor", () => {
  it("takes a secret out of a text in every form in which programs pass one on", () => {
    const redactor = new Redactor([KEY]);
    for (const form of [KEY, encodeURIComponent(KEY), Buffer.from(KEY).toString("base64")])
      expect(redactor.text(`before ${form} after`)).toBe(`before ${REDACTED} after`);
    expect(redactor.text(JSON.stringify({ key: KEY }))).toBe(JSON.stringify({ key: REDACTED }));
  });

  it("takes it out where it is encoded together with other text, and leaves bytes that are no text", () => {
    const redactor = new Redactor([KEY]);
    for (const before of ["", "u:", "us:", "user:"])
      expect(
        Buffer.from(redactor.text(Buffer.from(before + KEY).toString("base64")), "base64").toString(),
      ).not.toContain("canary");
    const bytes = Buffer.from([0, 255, 128, 10]);
    const stream = new MaskedBytes(() => redactor);
    const pieces = [...Buffer.concat([bytes, Buffer.from(KEY), bytes])].map((byte) => stream.add(Buffer.from([byte])));
    expect(Buffer.concat([...pieces, stream.end()])).toEqual(Buffer.concat([bytes, Buffer.from(REDACTED), bytes]));
  });

  it("takes it out of a value, wherever it stands in it", () => {
    const redactor = new Redactor([KEY]);
    expect(redactor.value({ a: [KEY, 1, null], [KEY]: { b: `x${KEY}` } })).toEqual({
      a: [REDACTED, 1, null],
      [REDACTED]: { b: `x${REDACTED}` },
    });
  });

  it("leaves everything as it is where there is no secret", () => {
    const redactor = new Redactor([""]);
    expect(redactor.text("as it is")).toBe("as it is");
    const pieces = redactor.pieces();
    expect(pieces.add("as ") + pieces.add("it is") + pieces.end()).toBe("as it is");
  });

  it("gives the same in pieces as in one, however a text is cut, and never a secret", () => {
    const secrets = ["abc", "abab", "bcab"];
    const text = fc
      .array(fc.constantFrom("a", "b", "c", "abc", "abab", " "), { maxLength: 30 })
      .map((all) => all.join(""));
    fc.assert(
      fc.property(fc.array(text, { maxLength: 12 }), (cut) => {
        const pieces = new Redactor(secrets).pieces();
        const told = cut.map((piece) => pieces.add(piece)).join("") + pieces.end();
        for (const secret of secrets) expect(told).not.toContain(secret);
        if (cut.join("").includes("abc") || cut.join("").includes("abab")) expect(told).toContain(REDACTED);
        else if (!cut.join("").includes("bcab")) expect(told).toBe(cut.join(""));
      }),
    );
  });

  it("holds back only what may still become a secret", () => {
    const pieces = new Redactor(["secret"]).pieces();
    expect(pieces.add("a sec")).toBe("a ");
    expect(pieces.add("ond ")).toBe("second ");
    expect(pieces.add("sec")).toBe("");
    expect(pieces.add("ret!")).toBe(`${REDACTED}!`);
    expect(pieces.end()).toBe("");
  });
});

describe("what is hidden in a tree of runs", () => {
  it("is what its cells have, until it has ended", () => {
    const masking = new Masking();
    masking.hold("root", new Map([["a", "value-one"]]));
    masking.hold("root", new Map([["b", "value-two"]]));
    // A secret that was read twice.
    masking.hold("root", new Map([["a", "value-new"]]));
    const all = "value-one value-two value-new";
    expect(masking.text("root", all)).toBe("[secret] [secret] [secret]");
    expect(masking.text("other", all)).toBe(all);
    expect(masking.search("root")?.().add(Buffer.from("value-new"))).toBe("a");
    expect(masking.search("other")).toBeNull();
    masking.release("root");
    expect(masking.value("root", [all])).toEqual([all]);
  });

  it("is found in a content that comes in pieces, in all its encodings", () => {
    const masking = new Masking();
    masking.hold("root", new Map([["a", KEY]]));
    for (const form of [KEY, Buffer.from(`user:${KEY}`).toString("base64"), encodeURIComponent(KEY)]) {
      const search = masking.search("root")?.();
      const found = [...`before ${form} after`].map((letter) => search?.add(Buffer.from(letter)));
      expect(found.filter((name) => name === "a")).not.toEqual([]);
    }
    expect(masking.search("root")?.().add(Buffer.from("nothing"))).toBeNull();
  });
});
