import { escaped, pageStart } from "../../fleet/report/measures/gathered.ts";

const MAX_TEXT = 2000;

const STYLE = `
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
td:nth-child(2) { white-space: nowrap; }
.done { color: #18794e; } .not { color: #ad5700; } .refused { color: #c62a2f; }
@media (prefers-color-scheme: dark) { .done { color: #4cc38a; } .not { color: #f1a10d; } .refused { color: #ff6369; } }
`;

/** The begin of a self-contained page without scripts, up to the rows of its table. All texts are escaped here; those of rows are not. */
export function reportPageStart(title: string, paragraphs: readonly string[], heads: readonly string[]): string {
  const shown = escaped(title, MAX_TEXT);
  return `${pageStart(shown, STYLE)}<h1>${shown}</h1>
${paragraphs.map((text) => `<p>${escaped(text, MAX_TEXT)}</p>\n`).join("")}${tableStart(heads)}`;
}

export function tableStart(heads: readonly string[]): string {
  const cells = heads.map((head) => `<th>${escaped(head, MAX_TEXT)}</th>`).join("");
  return `<table>\n<thead><tr>${cells}</tr></thead>\n<tbody>\n`;
}

export const TABLE_END = "</tbody>\n</table>\n";
export const REPORT_PAGE_END = "</body>\n</html>\n";
