import fc from "fast-check";

/** What no face may show as it is, written apart from the code that it tests. Line breaks and tabs are a face's own matter. */
export const RAW = new RegExp(
  [
    String.raw`[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\u3164\u115f\u1160\uffa0]`,
    String.raw`[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\u{e0000}-\u{e0fff}]`,
    String.raw`(?<![\p{L}\p{N}\p{M}])\p{M}`,
    String.raw`\p{M}{5}`,
  ].join("|"),
  "u",
);

const ODD = [
  ..."\u202e\u2066\u200b\u200d\u00ad\u3164\u115f\u034f\u17b4\ufe0f\u2800\u00a0\u3000\u2028\u0301\u0338\u05d0\u0628\u0663\u06f3\\\"'/. {}\n\t\r\u001b",
];
const LONG = [
  "\u{e0041}",
  "\u{e0101}",
  "\ud800",
  "\ue000",
  "\u{1d159}",
  "\\u{200b}",
  "e\u0301\u0302\u0303\u0304\u0305",
  "config.yaml",
  "с",
  "a",
  "1",
  "שלום",
  "تقرير",
];

/** Texts of what hides, reorders and looks alike, between ordinary letters. */
export const hostileText = (max = 12): fc.Arbitrary<string> =>
  fc
    .array(
      fc.oneof(
        fc.constantFrom(...ODD, ...LONG),
        fc.string({ unit: "binary", maxLength: 2 }),
        fc.string({ unit: "grapheme", maxLength: 3 }),
      ),
      { maxLength: max },
    )
    .map((parts) => parts.join(""));
