import { numberText } from "./number-text.ts";
import { type BenchReport, type Group, moreIsBetter, type Row } from "./report.ts";

const WIDTH = 900;
const NAMES = 300;
const NUMBERS = 130;
const BARS = WIDTH - NAMES - NUMBERS;
const LINE = 24;
const TITLE = 44;
const BOTTOM = 44;

/**
 * One SVG: the groups below each other, with a bar for each p50 and a thin line to the p99. Each group has its own scale,
 * which begins at 0.
 */
export function chartOf({ groups, machine, startedAt }: BenchReport): string {
  let y = 16;
  const parts: string[] = [];
  for (const group of groups) {
    parts.push(drawn(group, y));
    y += TITLE + group.rows.length * LINE;
  }
  const caption = `p50 as a bar, p99 as a line · ${machine.cores} cores, Docker Engine ${machine.engine}, load ${machine.loadBefore.toFixed(1)} to ${machine.loadAfter.toFixed(1)} · ${startedAt.slice(0, 10)}`;
  const height = y + BOTTOM;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>The cost of Corral, compared with other ways of running the same work</title>
<rect width="100%" height="100%" fill="#fff"/>
${parts.join("\n")}
<text x="16" y="${height - 16}" fill="#666" font-size="11">${escaped(caption)}</text>
</svg>
`;
}

function drawn({ title, unit, rows }: Group, top: number): string {
  const most = Math.max(0, ...rows.flatMap(({ p50, p99 }) => [p50, p99]).filter(Number.isFinite));
  const scale = most === 0 ? 0 : BARS / most;
  const better = moreIsBetter(unit) ? "more is better" : "less is better";
  const head = `<text x="16" y="${top + 20}" font-weight="600" fill="#111">${escaped(title)}</text><text x="${WIDTH - 16}" y="${top + 20}" text-anchor="end" fill="#666" font-size="11">${unit}, ${better}</text>`;
  return [head, ...rows.map((row, index) => drawnRow(row, top + TITLE - 12 + index * LINE, scale))].join("\n");
}

function drawnRow({ name, p50, p99, ratio }: Row, y: number, scale: number): string {
  const [to, far] = [p50, p99].map((value) => NAMES + (Number.isFinite(value) ? value * scale : 0));
  const middle = y + LINE / 2;
  const colour = name.startsWith("Corral") ? "#2563eb" : "#9ca3af";
  const bar = `<rect x="${NAMES}" y="${y + 4}" width="${round(Math.max(1, (to ?? NAMES) - NAMES))}" height="${LINE - 8}" rx="2" fill="${colour}"/>`;
  const line = `<line x1="${round(to ?? 0)}" x2="${round(far ?? 0)}" y1="${middle}" y2="${middle}" stroke="#374151" stroke-width="1.5"/>`;
  const times = ratio === null ? "" : ` <tspan fill="#666">×${numberText(ratio)}</tspan>`;
  const label = `<text x="${NAMES - 10}" y="${middle + 4}" text-anchor="end" fill="#111">${escaped(name)}</text>`;
  const value = `<text x="${WIDTH - 16}" y="${middle + 4}" text-anchor="end" fill="#111">${numberText(p50)}${times}</text>`;
  return bar + line + label + value;
}

function round(value: number): string {
  return String(Number(value.toFixed(1)));
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
