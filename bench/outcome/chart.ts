import { numberText } from "./number-text.ts";

export interface Bar {
  readonly name: string;
  readonly value: number;
  readonly kind: "ours" | "other" | "weaker";
}

/** Bars with one scale, which begins at 0. */
export interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly moreIsBetter: boolean;
  readonly bars: readonly Bar[];
}

const WIDTH = 860;
const EDGE = 20;
const BARS_FROM = 240;
/** Room for the number behind the longest bar. */
const LONGEST = WIDTH - BARS_FROM - EDGE - 70;
const [TITLE, LINE, GAP, CAPTION] = [30, 22, 18, 17];

/** So many fit below the panels, in every usual font of a system. */
const CAPTION_CHARACTERS = 120;

/** Dark where the reader's system is dark. It has its own ground: a page may be light on a dark system. */
const STYLE = `
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.small { font-size: 11.5px; fill: #59636e; }
.ground { fill: #ffffff; stroke: #d1d9e0; }
.ours { fill: #1f6feb; }
.other { fill: #8c959f; }
.weaker { fill: #c8ced5; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .small { fill: #9198a1; }
  .ground { fill: #0d1117; stroke: #3d444d; }
  .ours { fill: #58a6ff; }
  .other { fill: #6e7681; }
  .weaker { fill: #3d444d; }
}
`;

/** One SVG: the panels below each other, and the lines of the caption below them. */
export function chartOf(panels: readonly Panel[], caption: readonly string[]): string {
  let y = EDGE;
  const parts: string[] = [];
  for (const panel of panels) {
    parts.push(drawn(panel, y));
    y += TITLE + panel.bars.length * LINE + GAP;
  }
  for (const line of caption.flatMap(wrapped)) {
    y += CAPTION;
    parts.push(text(line, { x: EDGE, y, class: "small" }));
  }
  const height = y + EDGE;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img">
<title>The cost of Corral, compared with other ways of running the same work</title>
<style>${STYLE}</style>
<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>
${parts.join("\n")}
</svg>
`;
}

function drawn({ title, unit, moreIsBetter, bars }: Panel, top: number): string {
  const most = Math.max(0, ...bars.map(({ value }) => value));
  const scale = most === 0 ? 0 : LONGEST / most;
  const better = `${unit}, ${moreIsBetter ? "more" : "less"} is better`;
  return [
    text(title, { x: EDGE, y: top + 14, class: "title" }),
    text(better, { x: WIDTH - EDGE, y: top + 14, class: "small", "text-anchor": "end" }),
    ...bars.map((bar, index) => drawnBar(bar, top + TITLE + index * LINE, scale)),
  ].join("\n");
}

function drawnBar({ name, value, kind }: Bar, y: number, scale: number): string {
  const width = Number(Math.max(1, value * scale).toFixed(1));
  return [
    text(name, { x: BARS_FROM - 10, y: y + 12, "text-anchor": "end" }),
    `<rect class="${kind}" x="${BARS_FROM}" y="${y}" width="${width}" height="${LINE - 7}" rx="2"/>`,
    text(numberText(value), { x: BARS_FROM + width + 7, y: y + 12 }),
  ].join("");
}

/** Lines that fit, broken between words: SVG breaks no lines. A single long word is not broken. */
function wrapped(line: string): string[] {
  const lines = [""];
  for (const word of line.split(" ")) {
    const last = lines.at(-1) ?? "";
    if (last !== "" && last.length + 1 + word.length > CAPTION_CHARACTERS) lines.push(word);
    else lines[lines.length - 1] = last === "" ? word : `${last} ${word}`;
  }
  return lines;
}

function text(content: string, attributes: Readonly<Record<string, string | number>>): string {
  const written = Object.entries(attributes).map(([name, value]) => ` ${name}="${value}"`);
  return `<text${written.join("")}>${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
