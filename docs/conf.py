"""How the site is built: `make docs`. Nothing is fetched from the network."""

import inspect
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

import redistrib
from redistrib.cli import parser

os.environ["COLUMNS"] = "110"

os.environ.setdefault("JAX_PLATFORMS", "cpu")

project = "redistrib"
author = "the authors of redistrib"
release = version = redistrib.__version__
extensions = [
    *("myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    "sphinx_copybutton",
]
html_theme = "sphinx_book_theme"
html_title = "redistrib"
html_theme_options = {"show_navbar_depth": 1, "show_toc_level": 2}
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["wide.css"]
exclude_patterns = ["_build", "templates", "**/.ipynb_checkpoints"]

# Notebooks run at every build; one that raises is an error of the build.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

# Pages link to each other, and to files of the repository; headings are anchors.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

default_role = "code"
autodoc_mock_imports = ["torch"]  # the site is built without PyTorch
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
# A page may begin below its title's level; a function among the settings is not kept between builds.
suppress_warnings = ["myst.header", "config.cache"]

# The page of each public name, made from the lists of reference/*.rst; copied code has no prompts and no output.
templates_path = ["templates"]
autosummary_context = {"fields": lambda module, name: fields(getattr(import_module(module), name))}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def fields(value: type) -> str:
    """What stands among the attributes in a class's docstring, and needs no entry of its own."""
    listed = (inspect.getdoc(value) or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
    return ", ".join(
        name for line in re.findall(r"^    (\w[\w, ]*): ", listed, re.MULTILINE) for name in line.split(", ")
    )


def example_first(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Move the example of a docstring up, behind its first sentence."""
    paragraphs = [paragraph.split("\n") for paragraph in "\n".join(lines).split("\n\n")]
    examples = [paragraph for paragraph in paragraphs if paragraph[0].startswith(">>>")]
    others = [paragraph for paragraph in paragraphs if paragraph not in examples]
    if examples and what != "module":
        lines[:] = [line for paragraph in (others[0], *examples, *others[1:]) for line in (*paragraph, "")]


class LinkedNames(SphinxPostTransform):
    """Names in code type become links: `rd.reshard`, `redistrib.reshard`, `reshard()` and `TreePlan`."""

    default_priority = 5

    def run(self, **options: Any) -> None:
        domain = self.env.get_domain("py")
        known = {}
        for full, entry in domain.objects.items():
            short = full.rpartition(".")[2]
            if f"redistrib.{short}" == full or (short[:1].isupper() and entry.objtype in ("class", "exception")):
                known |= {full: full, f"{short}()": full} | ({short: full} if short[:1].isupper() else {})
                known[full.replace("redistrib.", "rd.", 1)] = full
        for node in [*self.document.findall(nodes.literal)]:
            full, above = known.get(node.astext().partition("(")[0]) or known.get(node.astext()), node.parent
            while above is not None and not isinstance(above, nodes.reference | nodes.title):
                above = above.parent
            if full is None or above is not None or domain.objects[full].docname == self.env.docname:
                continue
            here = domain.objects[full]
            link = make_refnode(self.app.builder, self.env.docname, here.docname, here.node_id, [], full)
            node.replace_self(link)
            link.append(node)


def source_of(app: Sphinx, module: str, name: str) -> str | None:
    """The module with the source of an error; its own attribute is the package, which tracebacks show."""
    parts = [part for full, part in sys.modules.items() if full.startswith("redistrib.errors.")]
    texts = {part.__name__: inspect.getsource(part) for part in parts if module == "redistrib.errors"}
    return next((part for part, text in texts.items() if f"\nclass {name}(" in text), None)


def setup(app: Sphinx) -> None:
    app.connect("viewcode-follow-imported", source_of)
    app.connect("autodoc-process-docstring", example_first, priority=400)  # before napoleon reads the sections
    app.add_post_transform(LinkedNames)


# The help of every command, for reference/command-line.rst.
commands = next(action for action in parser()._actions if action.choices)
helps = [parser().format_help(), *(command.format_help() for command in commands.choices.values())]
Path(__file__).with_name("reference").joinpath("commands.txt").write_text("\n\n".join(helps))
