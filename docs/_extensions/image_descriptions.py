"""Pictures that cells draw: a description for screen readers, and a link to the picture in full size."""

from docutils import nodes


def setup(app):
    """Describe the pictures of each page once it has been read."""
    app.connect("doctree-read", _describe)
    return {"parallel_read_safe": True}


def _describe(app, document):
    """Describe each picture of a cell by the section it is in, and by the paragraph before it."""
    title = paragraph = ""
    for node in document.findall():
        if isinstance(node, nodes.title):
            title, paragraph = node.astext(), ""
        elif isinstance(node, nodes.paragraph):
            paragraph = " ".join(node.astext().split())
        elif isinstance(node, nodes.image) and _of_cell(node):
            node["alt"] = f"Picture of the section “{title}”. {paragraph}".strip()
            node["width"] = "100%"  # Sphinx links an image to its file if it has a width; heedful.css takes it back


def _of_cell(image):
    """Return whether a cell drew an image."""
    parent = image.parent
    while parent is not None and "cell_output" not in parent.get("classes", []):
        parent = parent.parent
    return parent is not None
