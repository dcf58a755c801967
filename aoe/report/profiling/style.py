"""How the page of a profile looks besides the style of all pages."""

from __future__ import annotations

STYLE = """
:root {
  --h0: #e6ecf3; --h1: #fbe3c0; --h2: #f9c784; --h3: #f0924c; --h4: #d9482b; --h5: #a8141c;
  --hot-ink: #fff; --least: #5b8bd0; --lost: #d9652b; --after: #14743c; --roof: #626c7a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --h0: #2b333f; --h1: #4d4230; --h2: #74522a; --h3: #a8602a; --h4: #cf5236; --h5: #f0606a;
    --hot-ink: #fff; --least: #6f9fe6; --lost: #ef8a4f; --after: #5fd38d; --roof: #949eac;
  }
}
h1, h2, header p { overflow-wrap: anywhere; }
section > p { margin: 0 0 10px; color: var(--soft); }
.bars {
  display: grid; grid-template-columns: minmax(120px, max-content) 1fr max-content;
  gap: 6px 12px; align-items: center;
}
.bars svg { width: 100%; height: 16px; display: block; }
.bars span { overflow-wrap: anywhere; }
.bars .right { white-space: normal; }
.least { fill: var(--least); } .lost { fill: var(--lost); } .unknown { fill: var(--line); }
.before { fill: var(--soft); } .after { fill: var(--after); }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--soft); font-size: 12px;
  margin: 10px 0 0; }
.key svg { width: 12px; height: 12px; vertical-align: -1px; margin-right: 5px; }
.roofline { width: 100%; min-width: 620px; height: auto; display: block; }
.roofline text, .network text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }
.roofline text { fill: var(--soft); }
.roofline .grid { stroke: var(--line); }
.roofline .roof { stroke: var(--roof); stroke-width: 1.5; fill: none; }
.roofline .side { stroke-dasharray: 5 4; }
.roofline .point { fill-opacity: .65; stroke: var(--card); stroke-width: 1; }
.roofline .point.before { fill-opacity: 0; stroke: var(--soft); stroke-width: 1.5; }
.tall { max-height: 75vh; overflow: auto; border: 1px solid var(--line); border-radius: 8px; }
.network { display: block; margin: 0 auto; }
.network .edge { stroke: var(--soft); stroke-opacity: .55; fill: none; }
.network rect { stroke: var(--line); }
.network text { fill: var(--ink); }
.h0 { fill: var(--h0); } .h1 { fill: var(--h1); } .h2 { fill: var(--h2); }
.h3 { fill: var(--h3); } .h4 { fill: var(--h4); } .h5 { fill: var(--h5); }
.network text.on-hot { fill: var(--hot-ink); }
a { color: var(--link); } svg a { cursor: pointer; }
a:focus-visible, .scroll:focus-visible, .tall:focus-visible,
summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
svg a:focus-visible rect, svg a:focus-visible circle, svg a:hover rect, svg a:hover circle {
  stroke: var(--link); stroke-width: 2.5;
}
tr:target td { background: var(--note-page); }
.skip { position: absolute; left: -9999px; }
.skip:focus { position: static; }
td.names { min-width: 180px; overflow-wrap: anywhere; }
@media (max-width: 600px) {
  main { padding: 18px 12px 40px; }
  section { padding: 12px; }
  .bars { grid-template-columns: 1fr; gap: 2px; }
  .bars .right { text-align: left; color: var(--soft); } .bars .right + span { margin-top: 10px; }
}
"""
