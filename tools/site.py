"""What mkdocs calls while it builds the site: decisions in the navigation, links to files outside of docs/."""

import re
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
_LINK: Final = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#:]+)(?:#[^)]*)?\)")
_DECISIONS: Final = "decisions/README.md"


def on_config(config: Any) -> Any:
    """Add the decisions below their list, so that a new one needs no line in mkdocs.yml."""
    pages = sorted((Path(config["docs_dir"]) / "decisions").glob("[0-9]*.md"))
    listed = [_DECISIONS, *(f"decisions/{page.name}" for page in pages)]
    for section in config["nav"]:
        for entries in section.values():
            for entry in entries:
                if isinstance(entry, dict) and entry.get("Decisions") == _DECISIONS:
                    entry["Decisions"] = listed
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Name files of the repository that are not pages, instead of linking to them."""
    del files
    docs = Path(config["docs_dir"]).resolve()
    folder = (docs / page.file.src_uri).parent

    def resolve(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if docs in target.parents or not target.exists():
            return found[0]  # mkdocs checks it
        path = target.relative_to(REPOSITORY).as_posix()
        return f"`{path}`" if path in found[1] else f"{found[1]} (`{path}`)"

    return _LINK.sub(resolve, markdown)
