"""Formulas as MathML, which browsers draw by themselves: the pages need no script and no network for them."""

import html

from docutils import nodes
from latex2mathml.converter import convert


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}


def _inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator, node):
    label = f' id="{html.escape(node["ids"][0])}"' if node["ids"] else ""
    translator.body.append(f'<div class="math"{label}>{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
