"""The page's style: one column of text, aligned numbers, two colours beside greys, light and dark, printable."""

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1f23;--soft:#626a73;--line:#d9dde2;--faint:#f3f5f7;--mark:#a9b3be;
--good:#0b6e5f;--bad:#a63d2f}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#dfe3e7;--soft:#98a1ab;--line:#31373e;--faint:#1c2024;
--mark:#56606b;--good:#4cc2ac;--bad:#e0836f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:24px 16px 64px;background:var(--bg);color:var(--fg);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;-webkit-text-size-adjust:100%}
h1{font-size:1.55rem;line-height:1.25;margin:0 0 4px;font-weight:650;text-wrap:balance}
h2{font-size:1.15rem;line-height:1.3;margin:44px 0 8px;padding-top:14px;border-top:1px solid var(--line);
font-weight:620}
h3{font-size:1rem;line-height:1.35;margin:32px 0 6px;font-weight:620;overflow-wrap:anywhere}
p{margin:6px 0;max-width:75ch;overflow-wrap:anywhere}
.soft,figcaption,summary{color:var(--soft)}
a{color:inherit;text-decoration-color:var(--mark);text-underline-offset:2px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{font-size:.9em;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:12px 20px;margin:18px 0}
dt{font-size:.8rem;color:var(--soft)}
dd{margin:0;font-variant-numeric:tabular-nums;font-weight:560;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:10px 0}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:3px 12px 3px 0;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft);vertical-align:bottom}
td:last-child,th:last-child{padding-right:0}
.n{text-align:right}
.name{white-space:normal;min-width:13ch;overflow-wrap:anywhere}
.wide{width:28%;min-width:80px}
.bar{display:block;height:9px;background:var(--good);opacity:.75}
.bar.bad{background:var(--bad)}
.changed td{font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:12px 24px;margin:10px 0}
figure{margin:0;break-inside:avoid}
figcaption{font-size:.82rem;margin-top:2px}
svg{display:block;width:100%;height:auto}
.large svg{max-width:760px}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft);
font-variant-numeric:tabular-nums}
svg .note{fill:var(--fg)}
.grid,.tick,.axis{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--mark)}
.dots{fill:var(--mark)}
.best,.roof,.rule,.zero,.rise{fill:none;stroke-width:1.8;stroke-linejoin:round}
.best{stroke:var(--good)}
.roof{stroke:var(--fg);stroke-width:1.3}
.rule,.zero{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
.rise{stroke:var(--mark);stroke-width:1}
.disc{fill:var(--good);fill-opacity:.8}
.ring{fill:var(--bg);stroke:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:4px 24px}
.pair>div{min-width:0}
pre{margin:4px 0 10px;padding:10px 12px;background:var(--faint);font-size:.74rem;line-height:1.4;overflow:auto;
max-height:36rem;tab-size:4}
summary{cursor:pointer;padding:4px 0;font-size:.9rem}
.good{color:var(--good)}.bad{color:var(--bad)}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#ccc;--faint:#fff;--mark:#999;--good:#0b6e5f;--bad:#a63d2f}
body{max-width:none;padding:0;font-size:10.5pt}pre{max-height:none;white-space:pre-wrap;overflow:visible;padding:0}
.scroll{overflow:visible}h2,h3{break-after:avoid}tr{break-inside:avoid}.bar{print-color-adjust:exact;
-webkit-print-color-adjust:exact}details::details-content{content-visibility:visible;display:block}}
"""
