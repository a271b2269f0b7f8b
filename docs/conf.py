"""How the site is built: `make docs`. Nothing is fetched from the network."""

import os
from pathlib import Path

import redistrib
from redistrib.cli import parser

os.environ["COLUMNS"] = "110"

os.environ.setdefault("JAX_PLATFORMS", "cpu")

project = "redistrib"
author = "the authors of redistrib"
release = version = redistrib.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "sphinx_book_theme"
html_title = "redistrib"
html_theme_options = {"show_navbar_depth": 1, "show_toc_level": 2}
html_show_sourcelink = False
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]

# Notebooks run at every build; one that raises is an error of the build.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

# Pages link to each other, and to files of the repository; headings are anchors.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
suppress_warnings = ["myst.header"]  # a page may begin below its title's level

# The help of every command, for reference/command-line.rst.
commands = next(action for action in parser()._actions if action.choices)
helps = [parser().format_help(), *(command.format_help() for command in commands.choices.values())]
Path(__file__).with_name("reference").joinpath("commands.txt").write_text("\n\n".join(helps))
