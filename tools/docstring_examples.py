"""Show the section `Example:` of docstrings as code, which Griffe does for `Examples:` only."""

import re
from typing import Any

from griffe import Extension


class ShownExamples(Extension):
    """Rename the section while the site reads the source."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.M)
