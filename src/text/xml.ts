/*
 * A reader for XML that an enemy may have written: one pass without backtracking, no document type with declarations of its own, no entity but the five
 * of XML and references to characters, nothing loaded. So nothing in a document makes it larger than its text.
 */

export interface XmlElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlElement[];
  /** Its own texts joined, CDATA included. */
  readonly text: string;
}

type XmlResult = { readonly ok: true; readonly root: XmlElement } | { readonly ok: false; readonly why: string };

const MAX_DEPTH = 32;
const MAX_ELEMENTS = 200_000;
const MAX_ATTRIBUTES = 50;

interface OpenElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: XmlElement[];
  readonly texts: string[];
}

/** `why`: for a person; it holds nothing of the document but its line. */
export function parseXml(source: string): XmlResult {
  let at = 0;
  try {
    const reader = new XmlReader(source, (position) => {
      at = position;
    });
    return { ok: true, root: reader.read() };
  } catch (error) {
    if (!(error instanceof XmlFault)) throw error;
    return { ok: false, why: `line ${source.slice(0, at).split("\n").length}: ${error.message}` };
  }
}

class XmlFault extends Error {}

const DECLARATION = /\uFEFF?(?:<\?xml [^<>?]{0,200}\?>)?/y;
/** Without brackets it has no declarations, and what it names is never loaded. Reporters of coverage write it. */
const PLAIN_DOCTYPE =
  /<!DOCTYPE\s+[\w:.-]{1,100}(?:\s+(?:SYSTEM|PUBLIC))?(?:\s+(?:"[^"<>[\]]{0,300}"|'[^'<>[\]]{0,300}')){0,2}\s*>/y;
const NAME = /[A-Za-z_][\w:.-]{0,200}/y;
const ATTRIBUTE = /\s+([A-Za-z_][\w:.-]{0,200})\s*=\s*(?:"([^"<]*)"|'([^'<]*)')/y;
const TAG_END = /\s*(\/?)>/y;
const TEXT = /[^<]+/y;

class XmlReader {
  readonly #source: string;
  readonly #moved: (position: number) => void;
  readonly #open: OpenElement[] = [];
  #at = 0;
  #elements = 0;
  #root: XmlElement | null = null;

  constructor(source: string, moved: (position: number) => void) {
    this.#source = source;
    this.#moved = moved;
  }

  read(): XmlElement {
    this.#take(DECLARATION);
    let hasDoctype = false;
    while (this.#at < this.#source.length) {
      const text = this.#take(TEXT)?.[0];
      if (text !== undefined) this.#addText(decoded(text));
      else if (this.#starts("<!--")) this.#upTo("<!--", "-->", "a comment");
      else if (this.#starts("<![CDATA[")) this.#addText(this.#upTo("<![CDATA[", "]]>", "a CDATA section"));
      else if (this.#starts("<!")) {
        if (hasDoctype || this.#root !== null || this.#open.length > 0 || this.#take(PLAIN_DOCTYPE) === null)
          throw new XmlFault("it has a document type with declarations, or another declaration; none is read");
        hasDoctype = true;
      } else if (this.#starts("<?")) throw new XmlFault("it has a processing instruction; none is read");
      else if (this.#starts("</")) this.#close();
      else this.#begin();
      this.#moved(this.#at);
    }
    if (this.#root === null || this.#open.length > 0) throw new XmlFault("it ends before its first element does");
    return this.#root;
  }

  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  #starts(mark: string): boolean {
    return this.#source.startsWith(mark, this.#at);
  }

  #upTo(start: string, end: string, what: string): string {
    const from = this.#at + start.length;
    const to = this.#source.indexOf(end, from);
    if (to === -1) throw new XmlFault(`${what} has no end`);
    this.#at = to + end.length;
    return this.#source.slice(from, to);
  }

  #addText(text: string): void {
    const top = this.#open.at(-1);
    if (top !== undefined) top.texts.push(text);
    else if (text.trim() !== "") throw new XmlFault("it has text outside of its element");
  }

  #begin(): void {
    this.#at += 1;
    const name = this.#take(NAME)?.[0];
    if (name === undefined) throw new XmlFault("a `<` begins no element");
    if (this.#root !== null) throw new XmlFault("it has more than one element");
    this.#elements += 1;
    if (this.#elements > MAX_ELEMENTS) throw new XmlFault(`it has more than ${MAX_ELEMENTS} elements`);
    if (this.#open.length >= MAX_DEPTH) throw new XmlFault(`its elements are nested more than ${MAX_DEPTH} deep`);
    const attributes = new Map<string, string>();
    for (let found = this.#take(ATTRIBUTE); found !== null; found = this.#take(ATTRIBUTE)) {
      const [, key = "", double, single = ""] = found;
      if (attributes.has(key)) throw new XmlFault("an attribute is there twice");
      attributes.set(key, decoded(double ?? single));
      if (attributes.size > MAX_ATTRIBUTES) throw new XmlFault(`an element has more than ${MAX_ATTRIBUTES} attributes`);
    }
    const end = this.#take(TAG_END);
    if (end === null) throw new XmlFault("a tag has no end");
    this.#open.push({ name, attributes, children: [], texts: [] });
    if (end[1] === "/") this.#end();
  }

  #close(): void {
    this.#at += 2;
    const name = this.#take(NAME)?.[0];
    if (name === undefined || name !== this.#open.at(-1)?.name || this.#take(TAG_END)?.[1] !== "")
      throw new XmlFault("an end tag does not belong to the open element");
    this.#end();
  }

  #end(): void {
    const ended = this.#open.pop();
    if (ended === undefined) throw new XmlFault("an end tag does not belong to the open element");
    const { texts, ...rest } = ended;
    const element = { ...rest, text: texts.join("") };
    const parent = this.#open.at(-1);
    if (parent === undefined) this.#root = element;
    else parent.children.push(element);
  }
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function decoded(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(\w{1,10}));|&/g, (_, decimal, hex, name) => {
    if (decimal !== undefined) return characterOf(Number.parseInt(decimal, 10));
    if (hex !== undefined) return characterOf(Number.parseInt(hex, 16));
    const known = Object.hasOwn(ENTITIES, name ?? "") ? ENTITIES[name] : undefined;
    if (known === undefined) throw new XmlFault("it has an entity that XML does not know; none is read");
    return known;
  });
}

function characterOf(code: number): string {
  return code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? "\ufffd" : String.fromCodePoint(code);
}
