"""Configuration of Sphinx: `make docs` builds the site in docs/_build/html."""

import inspect
import os
import sys
from pathlib import Path

import heedful

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

(HERE / "_notebooks").mkdir(exist_ok=True)

project = "heedful"
author = copyright = "The heedful authors"
version = release = heedful.__version__
extensions = [
    "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathml", "notebook_downloads",
    "settings_list", "image_descriptions",
]  # fmt: skip
exclude_patterns = ["_build", "_notebooks"]
smartquotes = False  # they would turn --option into a dash
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

# Pages with code cells run when they are built. A page whose cells have not changed is taken from the cache.
nb_execution_mode = "off" if os.environ.get("HEEDFUL_DOCS_EXECUTE") == "0" else "cache"
nb_execution_cache_path = str(HERE / "_build" / "jupyter_cache")
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars and notes of libraries

autodoc_default_options = {
    "members": True,
    "exclude-members": "build, build_from_config, compute_mask, compute_output_shape, compute_output_spec, "
    "from_config, get_config",
}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "heedful"
html_static_path = ["_static"]
html_css_files = ["heedful.css"]
html_math_renderer = "mathml"
html_extra_path = ["llms.txt", "_notebooks"]  # the second is written by notebook_downloads
html_copy_source = False
html_show_sphinx = False


def setup(app):
    """Show the arguments of Keras layers, models, losses and metrics: Keras hides them by its own `__new__`."""
    app.connect("autodoc-process-signature", _own_signature)


def _own_signature(app, what, name, item, options, signature, annotation):
    if what != "class" or signature != "(*args, **kwargs)":
        return None
    parameters = list(inspect.signature(item.__init__).parameters.values())[1:]
    return str(inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters])), annotation
