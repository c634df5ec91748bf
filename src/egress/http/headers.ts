/** The lines of a header in their order, names as they were sent. */
export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** From Node's flat list. */
export function headerLines(raw: readonly string[]): HeaderLines {
  return Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index] ?? "", raw[2 * index + 1] ?? ""]);
}

/** A header's name as servers compare it; some take `_` for `-`. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll("_", "-");
}

export function valuesOf(lines: HeaderLines, name: string): readonly string[] {
  return lines.filter(([each]) => each.toLowerCase() === name).map(([, value]) => value);
}

/** These are about one connection and not about the message (RFC 9110 section 7.6.1). */
const HOP_BY_HOP = [
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** Without those for one connection, also those that `Connection` names. */
export function endToEnd(lines: HeaderLines): HeaderLines {
  const named = valuesOf(lines, "connection").flatMap((value) =>
    value.split(",").map((name) => plainName(name.trim())),
  );
  const dropped = new Set([...HOP_BY_HOP, ...named]);
  return lines.filter(([name]) => !dropped.has(plainName(name)));
}
