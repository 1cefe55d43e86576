"""Each page with code cells can be downloaded as a Jupyter notebook."""

import re
from pathlib import Path

import jupytext
from nbformat.v4 import new_code_cell

# Colab and other hosted notebooks do not have heedful, and it is in no package index yet.
INSTALL = """import importlib.util

if importlib.util.find_spec("heedful") is None:
    raise ModuleNotFoundError("Install heedful first: %pip install PATH, of a checkout or a wheel.")"""
# A link to another page of the site, which does not lie beside a notebook that was downloaded; its text remains.
LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)\s]+\)")


def setup(app):
    """Convert the pages, and link the notebooks on them."""
    app.connect("builder-inited", _convert)
    app.connect("source-read", _link)
    return {"parallel_read_safe": True}


def _convert(app):
    folder = Path(app.srcdir) / "_notebooks"
    for page in sorted(Path(app.srcdir).glob("learn/*.md")):
        if _has_cells(page.read_text(encoding="utf-8")):
            notebook = folder / "notebooks" / f"{page.stem}.ipynb"
            notebook.parent.mkdir(parents=True, exist_ok=True)
            content = jupytext.read(page)
            for cell in content.cells:
                if cell.cell_type == "markdown":
                    cell.source = LINK_TO_PAGE.sub(r"\1", cell.source)
            content.cells.insert(1, new_code_cell(INSTALL))  # after the title
            jupytext.write(content, notebook)


def _link(app, name, content):
    text = content[0]
    if name.startswith("learn/") and _has_cells(text):
        place = text.index("\n\n", text.index("\n# "))
        target = f"../notebooks/{Path(name).name}.ipynb"
        link = f'<p class="download"><a href="{target}" download>Download this page as a notebook</a></p>'
        content[0] = f"{text[:place]}\n\n{link}{text[place:]}"


def _has_cells(text):
    return "```{code-cell}" in text
