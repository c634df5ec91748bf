/** An element of XML as these tests need it: its texts are joined. */
export interface XmlElement {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly children: readonly XmlElement[];
  readonly text: string;
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

/** Parses a part of XML 1.0 and takes no other: elements, attributes, text, five references. @throws for anything else */
export function strictXml(xml: string): XmlElement {
  if (/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u.test(xml)) throw new Error("not a character of XML");
  const body = /^<\?xml version="1\.0" encoding="UTF-8"\?>\n(.*)$/s.exec(xml)?.[1];
  if (body === undefined) throw new Error("no declaration");
  const open: { name: string; attributes: Record<string, string>; children: XmlElement[]; text: string }[] = [
    { name: "", attributes: {}, children: [], text: "" },
  ];
  const top = () => open.at(-1) ?? fail("nothing is open");
  const piece = /<(\/?)([a-z-]+)((?: [a-z]+="[^"<]*")*)(\/?)>|([^<]+)/gy;
  let at = 0;
  for (const [whole, closes, name = "", given = "", isEmpty, text] of body.matchAll(piece)) {
    at += whole.length;
    if (text !== undefined) {
      if (text.includes("]]>")) fail("]]> in text");
      top().text += decoded(text);
    } else if (closes === "/") {
      const element = open.pop() ?? fail("nothing is open");
      if (element.name !== name) fail(`</${name}> for <${element.name}>`);
      top().children.push(element);
    } else {
      const attributes = [...given.matchAll(/ ([a-z]+)="([^"]*)"/g)].map(([, key = "", value = ""]) => [
        key,
        decoded(value),
      ]);
      if (new Set(attributes.map(([key]) => key)).size !== attributes.length) fail("an attribute twice");
      const element = { name, attributes: Object.fromEntries(attributes), children: [], text: "" };
      if (isEmpty === "/") top().children.push(element);
      else open.push(element);
    }
  }
  if (at !== body.length) fail(`no XML at ${JSON.stringify(body.slice(at, at + 40))}`);
  const [root, ...more] = top().children;
  if (open.length !== 1 || root === undefined || more.length > 0) return fail("not one element");
  return root;
}

function decoded(text: string): string {
  return text.replace(/&([^;]*);|&/g, (_, name: string) => ENTITIES[name] ?? fail(`the reference ${name}`));
}

function fail(why: string): never {
  throw new Error(why);
}
