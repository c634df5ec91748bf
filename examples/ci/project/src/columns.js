import stringWidth from "string-width";

/** Rows of texts in columns that are as wide as they need to be on a terminal, also for wide characters. */
export function columns(rows) {
  const widths = [];
  for (const row of rows)
    for (const [at, text] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, stringWidth(text));
  return rows.map((row) =>
    row
      .map((text, at) => text + " ".repeat(widths[at] - stringWidth(text)))
      .join("  ")
      .trimEnd(),
  );
}
