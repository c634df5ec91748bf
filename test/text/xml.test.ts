import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseXml } from "../../src/text/xml.ts";

function faultOf(source: string): string {
  const parsed = parseXml(source);
  return parsed.ok ? "read" : parsed.why;
}

const LAUGHS = `<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><l>&b;</l>`;

describe("XML of a stranger", () => {
  it("is read with its attributes, texts, references, CDATA and a document type without declarations", () => {
    const source = `\ufeff<?xml version="1.0" encoding="UTF-8"?>\n<!-- a --><!DOCTYPE a SYSTEM "http://b.example/c.dtd">
<a x='1' y="&lt;&#65;&#x42;&amp;"><b/>t<![CDATA[<&]]></a>\n`;
    const parsed = parseXml(source);
    expect(parsed).toMatchObject({ ok: true, root: { name: "a", text: "t<&", children: [{ name: "b", text: "" }] } });
    expect(parsed.ok && [...parsed.root.attributes]).toEqual([
      ["x", "1"],
      ["y", "<AB&"],
    ]);
  });

  it.each([
    ["entities that expand", LAUGHS, "document type with declarations"],
    ["a file of the host", `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>`, "document type"],
    ["parameter entities", `<!DOCTYPE a [<!ENTITY % x SYSTEM "http://e.example/">%x;]><a/>`, "document type"],
    ["an unknown entity", "<a>&x;</a>", "entity"],
    ["an entity in an attribute", `<a b="&x;"/>`, "entity"],
    ["a name of every object", "<a>&toString;</a>", "entity"],
    ["a document type in the middle", "<a><!DOCTYPE b></a>", "document type"],
    ["two document types", "<!DOCTYPE a><!DOCTYPE a><a/>", "document type"],
    ["a processing instruction", "<a><?php x?></a>", "processing instruction"],
    ["a stylesheet", `<?xml-stylesheet href="x"?><a/>`, "processing instruction"],
    ["depth without end", "<a>".repeat(100_000), "nested"],
    ["elements without end", `<a>${"<b/>".repeat(200_001)}</a>`, "elements"],
    ["attributes without end", `<a${Array.from({ length: 60 }, (_, n) => ` a${n}="1"`).join("")}/>`, "attributes"],
    ["an attribute twice", `<a b="1" b="2"/>`, "twice"],
    ["an end that is missing", "<a><b></b>", "ends before"],
    ["a wrong end", "<a><b></a></b>", "line 1: an end tag"],
    ["two roots", "<a/><b/>", "more than one"],
    ["text beside the root", "<a/>x", "outside"],
    ["a comment without an end", "<a><!-- ", "comment"],
    ["nothing", "", "ends before"],
    ["another encoding", "\ufffd\ufffd<\0a\0>\0", "outside"],
  ])("is refused for %s", (_, source, why) => {
    expect(faultOf(source)).toContain(why);
  });

  it("is an element or a fault for any text", () => {
    const pieces = fc.constantFrom(
      "<",
      ">",
      "a",
      "/",
      "<!--",
      "]]>",
      "<![CDATA[",
      "&",
      ";",
      "#",
      " ",
      '"',
      "=",
      "<!DOCTYPE",
      "[",
      "</a>",
      "<a>",
    );
    fc.assert(fc.property(fc.array(pieces), (some) => typeof parseXml(some.join("")).ok === "boolean"));
  });
});
