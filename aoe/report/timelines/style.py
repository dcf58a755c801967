"""Style sheet of the timeline page: light and dark by what the reader's system prefers."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5c6877; --line: #dfe4ea;
  --backward: #b9c4d2; --backward-ink: #2b3a4d; --a: #1f56bd; --b: #3d7fdf; --send-ink: #ffffff;
  --tail: #d9480f; --tail-fill: #d9480f1f; --good: #1a7f4b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e6ebf2; --soft: #95a2b3; --line: #2c3644;
    --backward: #3b4858; --backward-ink: #dbe4ef; --a: #3d7bf0; --b: #2458b3; --send-ink: #ffffff;
    --tail: #ff8a4c; --tail-fill: #ff8a4c26; --good: #4cc38a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 2px; overflow-wrap: anywhere; }
p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 22px 0; }
.card, section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
.card { flex: 1 1 190px; padding: 12px 14px; }
.card .label { color: var(--soft); font-size: 13px; }
.card .value { font-size: 20px; font-weight: 600; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.card .value.good { color: var(--good); }
.card .value small { font-size: 14px; font-weight: 400; color: var(--soft); }
.card .note { color: var(--soft); font-size: 13px; }
section { padding: 18px 20px; margin: 0 0 16px; }
.scroll { overflow-x: auto; }
svg {
  display: block; width: 100%; min-width: 680px; height: auto; margin-top: 12px;
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
svg text { fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .backward { fill: var(--backward); }
svg .on-backward { fill: var(--backward-ink); }
svg .a { fill: var(--a); } svg .b { fill: var(--b); }
svg .on-send { fill: var(--send-ink); font-weight: 600; }
svg .tail { fill: var(--tail-fill); }
svg .tail-line { stroke: var(--tail); stroke-width: 1.5; fill: none; }
svg .tail-text { fill: var(--tail); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 10px;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.name { white-space: normal; overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--soft); }
footer { color: var(--soft); font-size: 13px; margin-top: 20px; overflow-wrap: anywhere; }
"""
