"""The directive `settings`: all settings of a section, with types, defaults and meanings, from the code."""

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from heedful.config import settings


class Settings(SphinxDirective):
    """List the settings of the section that is its argument; without one, those outside of sections."""

    optional_arguments = 1

    def run(self):
        """Return a definition list."""
        prefix = f"{self.arguments[0]}." if self.arguments else ""
        listing = nodes.definition_list()
        for name, (kind, default, text) in settings.meanings().items():
            if name.startswith(prefix) and "." not in name.removeprefix(prefix):
                term = nodes.term("", "", nodes.literal(text=name), nodes.Text(f"  {kind}, by default {default!r}"))
                term["ids"].append(name.replace(".", "-"))
                words = name.rpartition(".")[2].replace("_", " ")  # what a reader searches for
                index = addnodes.index(entries=[("single", words, term["ids"][0], "", None)])
                meaning = nodes.definition("", index, *self.parse_text_to_nodes(text or "See the section above."))
                listing += nodes.definition_list_item("", term, meaning)
        return [listing]


def setup(app):
    """Register the directive."""
    app.add_directive("settings", Settings)
    return {"parallel_read_safe": True}
