"""How pages look, light and dark, and the script that sorts their tables."""

from __future__ import annotations

STYLE = """
:root {
  --page: #f6f7f9; --card: #fff; --ink: #1c2128; --soft: #626c7a; --line: #e2e6eb;
  --bad: #c0262d; --bad-page: #fdeeee; --good: #14743c; --good-page: #e9f7ee;
  --note: #7a3fb0; --note-page: #f4eefb; --stripe: #fafbfc; --link: #245fb5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151a; --card: #1a1e25; --ink: #e3e7ec; --soft: #949eac; --line: #2c323b;
    --bad: #ff7b7b; --bad-page: #3a1e21; --good: #5fd38d; --good-page: #16301f;
    --note: #c79bf2; --note-page: #2b2138; --stripe: #1e232b; --link: #7fb0f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1280px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 15px; margin: 0 0 12px; }
.count {
  margin-left: 8px; padding: 1px 8px; border-radius: 9px; background: var(--page);
  color: var(--soft); font-size: 12px; font-weight: 500;
}
header p { margin: 2px 0; color: var(--soft); }
header .sides { margin: 4px 0 12px; color: var(--ink); overflow-wrap: anywhere; }
.arrow { color: var(--soft); }
code { font: 12px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px; margin-top: 20px;
}
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 12px;
  background: none; border: 0; padding: 0;
}
.tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; display: flex; flex-direction: column;
}
.tile b { font-size: 24px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 12px; }
.tile.bad { background: var(--bad-page); } .tile.bad b { color: var(--bad); }
.tile.good { background: var(--good-page); } .tile.good b { color: var(--good); }
.tile.note { background: var(--note-page); } .tile.note b { color: var(--note); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 6px 10px; text-align: left; vertical-align: top; }
th {
  color: var(--soft); font-size: 12px; font-weight: 600; white-space: nowrap;
  border-bottom: 1px solid var(--line); cursor: pointer; user-select: none;
}
th:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[data-order]::after { content: " \\25B2"; font-size: 9px; }
th[data-order="down"]::after { content: " \\25BC"; }
td { border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:nth-child(even) { background: var(--stripe); }
.right { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bad, b.bad { color: var(--bad); font-weight: 600; }
td.good, b.good { color: var(--good); font-weight: 600; }
td.none, .more, footer { color: var(--soft); }
.about { overflow-wrap: anywhere; min-width: 220px; }
small { display: block; color: var(--soft); font-size: 12px; overflow-wrap: anywhere; }
.kind {
  display: inline-block; padding: 0 8px; border-radius: 9px; font-size: 12px;
  background: var(--page); color: var(--soft); white-space: nowrap;
}
.kind.slower, .kind.broken, .kind.removed { background: var(--bad-page); color: var(--bad); }
.kind.faster, .kind.added { background: var(--good-page); color: var(--good); }
.kind.strategy { background: var(--note-page); color: var(--note); }
details { border-top: 1px solid var(--line); padding: 8px 0; }
details:first-of-type { border-top: 0; }
summary { cursor: pointer; }
summary small { margin-left: 18px; }
details table { margin: 8px 0 4px; }
.old { color: var(--bad); background: var(--bad-page); overflow-wrap: anywhere; }
.new { color: var(--good); background: var(--good-page); overflow-wrap: anywhere; }
.problems { border-color: var(--bad); } .problems ul { margin: 0; padding-left: 18px; }
footer { margin-top: 20px; font-size: 12px; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""

SCRIPT = """
function value(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent;
  const number = Number(text);
  return text === "" ? -Infinity : Number.isNaN(number) ? text.toLowerCase() : number;
}
function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}
for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const isFirst = !("order" in head.dataset);  // numbers start with the largest
    const isDown = isFirst ? head.classList.contains("right") : head.dataset.order === "up";
    for (const other of head.parentNode.cells) delete other.dataset.order;
    head.dataset.order = isDown ? "down" : "up";
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const rows = [...body.rows].map((row, place) => [value(row, column), place, row]);
    rows.sort((a, b) => (isDown ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
    body.append(...rows.map((each) => each[2]));
  });
  head.tabIndex = 0;
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    head.click();
  });
}
for (const each of [...document.querySelectorAll("details")].slice(0, 5)) each.open = true;
"""
