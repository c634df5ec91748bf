/** What the page shows, as the fragment of its address has it: `#/runs/ID?status=failed`. */
export interface PageAddress {
  /** Without empty parts; none: the overview. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

const MAX_CHARS = 4096;

export function parsePageAddress(hash: string): PageAddress {
  const [path = "", query = ""] = hash
    .slice(0, MAX_CHARS)
    .replace(/^#/, "")
    .split(/\?(.*)/s);
  const parts = path.split("/").filter((part) => part !== "");
  return { parts: parts.map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The fragment for a part of the page. Fields of the query without a text are left out. */
export function hrefTo(parts: readonly string[], query: Readonly<Record<string, string | undefined>> = {}): string {
  const fields = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const asked = new URLSearchParams(fields as [string, string][]).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${asked === "" ? "" : `?${asked}`}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
