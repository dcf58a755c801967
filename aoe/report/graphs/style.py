"""What the page of graphs has besides the style of all pages."""

GRAPH_STYLE = """
main { max-width: 1180px; }
.heads, .sides { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
.heads { position: sticky; top: 0; font-weight: 600; padding: 8px 20px; z-index: 1; }
.pair { padding: 10px 16px; margin: 0 0 8px; border-left: 4px solid var(--line); }
.pair.form { border-left-color: var(--a); } .pair.kernel { border-left-color: var(--good); }
.pair p { font-size: 13px; }
.sides > div { min-width: 0; overflow-x: auto; }
.sides svg { min-width: 0; width: auto; max-width: 100%; margin: 0; }
details.same { margin: 0 0 8px; padding: 4px 20px; font-size: 13px; color: var(--soft); }
svg rect { fill: var(--page); stroke: var(--line); }
svg .gone rect { stroke: var(--tail); fill: var(--tail-fill); }
svg .new rect { stroke: var(--a); }
svg .kernel rect { stroke: var(--good); stroke-width: 2; }
svg .op { fill: var(--ink); font-weight: 600; } svg .of { fill: var(--soft); }
svg .edge { stroke: var(--soft); stroke-width: 1.3; fill: none; opacity: 0.75; }
.pair.host svg rect { stroke: var(--line); fill: none; }
@media (max-width: 760px) { .sides, .heads { grid-template-columns: 1fr; } }
"""
