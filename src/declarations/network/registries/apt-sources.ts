/** One address and one suite of apt's sources; only those of built packages. */
export interface AptSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** A file, or the key itself; null: apt's own keys. */
  readonly signedBy: string | null;
}

/** The one-line form: `deb [signed-by=FILE] URI SUITE COMPONENT…`. */
export function parseSourcesList(text: string): AptSource[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const [, options = "", rest = ""] = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?([^#]*)/.exec(line) ?? [];
    const [uri, suite, ...components] = words(rest);
    if (uri === undefined || suite === undefined) return [];
    const signedBy = /(?:^|\s)signed-by=(\S+)/i.exec(options)?.[1] ?? null;
    return [{ uri, suite, components, signedBy }];
  });
}

/** The form of `.sources` files: paragraphs of `Key: value`, whose values may continue in indented lines. */
export function parseDeb822(text: string): AptSource[] {
  const lines = text.split(/\r?\n/).filter((line) => !line.startsWith("#"));
  const paragraphs = lines.join("\n").split(/\n[ \t]*\n+/);
  return paragraphs.flatMap((paragraph) => {
    const fields = fieldsOf(paragraph);
    const of = (key: string) => words(fields.get(key) ?? "");
    if (!of("types").includes("deb") || /^(no|false|0)$/i.test(fields.get("enabled")?.trim() ?? "")) return [];
    const signedBy = fields.get("signed-by")?.trim() ?? null;
    const components = of("components");
    return of("uris").flatMap((uri) => of("suites").map((suite) => ({ uri, suite, components, signedBy })));
  });
}

function fieldsOf(paragraph: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  let key = "";
  for (const line of paragraph.split("\n")) {
    const [, name, value = ""] = /^([A-Za-z][\w-]*):(.*)$/.exec(line) ?? [];
    if (name !== undefined) {
      key = name.toLowerCase();
      fields.set(key, value);
    } else if (/^\s/.test(line)) fields.set(key, `${fields.get(key) ?? ""} ${line.trim()}`);
  }
  return fields;
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}
