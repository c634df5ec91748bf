/** The page's style. It loads nothing, and follows the reader's light or dark mode. */
export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --line: #dfe3e8; --ink: #1c2129; --soft: #5c6673; --accent: #3a6ea5;
  --succeeded: #17855f; --cached: #4f93c9; --pending: #b5467f; --failed: #c8372d; --limited: #c27400; --refused: #8557c2; --stopped: #737a85;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --card: #171c23; --line: #2b333d; --ink: #e4e8ee; --soft: #98a3b1; --accent: #6fa3dc;
    --succeeded: #36a37b; --cached: #6cb2e6; --pending: #e57fb2; --failed: #ee6a5f; --limited: #e59f35; --refused: #b08aec; --stopped: #8b95a3;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { margin: 0; font-size: 26px; line-height: 1.25; font-weight: 650; overflow-wrap: anywhere; }
h2 { margin: 0 0 2px; font-size: 17px; font-weight: 650; }
code { font: 0.92em ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere; }
.state { display: inline-block; vertical-align: 4px; margin-left: 10px; padding: 1px 10px; border: 1px solid var(--line); border-radius: 99px; background: var(--card); color: var(--soft); font-size: 13px; font-weight: 500; }
.about, .note { margin: 4px 0 0; color: var(--soft); overflow-wrap: anywhere; }
.note { margin-bottom: 14px; font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin: 24px 0 20px; }
.tile { display: flex; flex-direction: column; justify-content: space-between; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.whole { display: flex; height: 14px; border-radius: 7px; overflow: hidden; background: var(--line); }
.whole span { min-width: 3px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 10px 0 0; padding: 0; font-size: 14px; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 7px; border-radius: 3px; background: var(--line); }
.legend b { font-weight: 600; font-variant-numeric: tabular-nums; }
section { margin-top: 20px; padding: 18px 20px; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .start { text-anchor: start; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .stack { shape-rendering: crispEdges; }
svg .bar { fill: var(--accent); }
svg line.quantile { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
svg text.quantile { fill: var(--ink); font-weight: 600; stroke: var(--card); stroke-width: 4px; paint-order: stroke; }
svg .succeeded { fill: var(--succeeded); } svg .cached { fill: var(--cached); } svg .pending { fill: var(--pending); } svg .failed { fill: var(--failed); }
svg .limited { fill: var(--limited); } svg .refused { fill: var(--refused); } svg .stopped { fill: var(--stopped); }
.whole .pending, i.pending { background: var(--pending); }
.whole .succeeded, i.succeeded { background: var(--succeeded); } .whole .cached, i.cached { background: var(--cached); }
.whole .failed, i.failed { background: var(--failed); } .whole .limited, i.limited { background: var(--limited); }
.whole .refused, i.refused { background: var(--refused); } .whole .stopped, i.stopped { background: var(--stopped); }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; }
th { color: var(--soft); font-weight: 500; text-align: left; white-space: nowrap; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.key { min-width: 160px; max-width: 320px; overflow-wrap: anywhere; }
td.message { min-width: 220px; overflow-wrap: anywhere; }
td.status { white-space: nowrap; }
td.status i { display: inline-block; width: 9px; height: 9px; margin-right: 7px; border-radius: 3px; }
footer { margin-top: 20px; color: var(--soft); font-size: 13px; }
@media print { section { break-inside: avoid-page; } body { background: none; } }
`;
