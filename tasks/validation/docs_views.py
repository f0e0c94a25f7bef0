"""Great Expectations' views of its pages, with templates that are compiled once a process.

Its own make a new template environment for each kind of page of each site, and compile all that they use anew: 0.1 of the
0.7 s that the checks of a batch took, in every iteration.
"""

from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket


class _CompiledTemplates(BytecodeCache):
    """Compiled templates by name and content, in memory."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a template what it was compiled to, if it was."""
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what a template was compiled to."""
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _CompiledTemplates()


class _CompiledOnce:
    """Mixed into a view of Great Expectations."""

    env: Environment

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.env.bytecode_cache = _COMPILED
        self.env.auto_reload = False  # the package's files do not change while it runs


class PageView(_CompiledOnce, DefaultJinjaPageView):
    """Of a suite, or of a validation's results."""


class IndexPageView(_CompiledOnce, DefaultJinjaIndexPageView):
    """Of the list of all pages."""
