"""Room ``core/html``: pieces of pages, which notebooks show by themselves and the tuning report is made with.

Takes: texts, numbers and tables. Gives: HTML that needs no other file and no script, every text in it escaped.
May import: nothing.
Never: knows what it shows; draws a chart.
"""
