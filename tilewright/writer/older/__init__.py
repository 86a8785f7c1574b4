"""Room ``writer.older``: forms that operators have in older opsets.

Takes: a site, the node that an older opset has in another form.
Gives: ``OLDER``: by operator, the forms with the opsets that have them.
May import: writer (sites, types), frontend (the standard's definitions), graph_ir, core.
Never: a form that differs in a result that the newest one defines; a guess at what only the run knows.
"""

from tilewright.writer.older.table import OLDER

__all__ = ["OLDER"]
