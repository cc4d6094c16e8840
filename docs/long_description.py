"""The long description of a distribution: README.md with links that lead to the project's files on the web.

Owns: where a file of this version is on the web. Must never know: what a page says. A package index shows
README.md without the files beside it, so the build writes each relative link anew. The one setting is
`Source` in `[project.urls]` of pyproject.toml. Without it links stay as they are, and `.ci/release` refuses.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![\w+]+:|#|//)([^)\s]+)")


def files_of(project: dict[str, Any], kind: str = "blob") -> str:
    """Where the files of this version are, as GitHub and its likes name them. Empty without the setting.

    `kind`: "blob" for pages, "raw" for pictures.
    """
    source = project.get("urls", {}).get("Source", "").rstrip("/")
    return f"{source}/{kind}/v{project['version']}/" if source else ""


def long_description(text: str, project: dict[str, Any]) -> str:
    """A page of the top folder whose links name files of this version on the web."""
    if not files_of(project):
        return text

    def absolute(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        return f"{mark}[{words}]({files_of(project, 'raw' if mark else 'blob')}{target}"

    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in parts)


def project_of(root: Path = ROOT) -> dict[str, Any]:
    """The table `[project]` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def get_metadata_hook() -> type:
    """The hook that hatchling calls when it builds."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface

    class LongDescription(MetadataHookInterface):
        PLUGIN_NAME = "custom"

        def update(self, metadata: dict[str, Any]) -> None:
            root = Path(self.root)
            text = (root / "README.md").read_text(encoding="utf-8")
            metadata["readme"] = {
                "content-type": "text/markdown",
                "text": long_description(text, project_of(root)),
            }

    return LongDescription
