"""Installs the wheel of dist/ into a fresh environment for each extra in turn, and uses what the extra is for.

`make package-test`, or `python tools/package_test.py console push` for some. It needs the package index, or pip's cache.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FOR_THE_REPOSITORY: Final = {"bench", "dev"}  # extras that users of the package do not need


def main(chosen: list[str]) -> None:
    (wheel,) = sorted((REPOSITORY / "dist").glob("zhumq-*.whl"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = ["core", *sorted(set(project["optional-dependencies"]) - FOR_THE_REPOSITORY)]
    failed = []
    for extra in chosen or extras:
        with tempfile.TemporaryDirectory() as folder:
            if not works(wheel, extra, Path(folder)):
                failed.append(extra)
    if failed:
        sys.exit(f"these do not work: {', '.join(failed)}")


def works(wheel: Path, extra: str, folder: Path) -> bool:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    requirement = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [
        [*pip, "-c", str(REPOSITORY / "constraints.txt"), requirement],
        [python, "-m", "pip", "check"],
        [str(folder / "bin" / "zhumq"), "--version"],
        [python, str(REPOSITORY / "tools" / "package_smoke.py"), extra],
    ]
    # In the folder of the environment: nothing of the repository is on the path.
    return all(
        subprocess.run(each, cwd=folder, check=False, env={"PATH": "/usr/bin:/bin"}).returncode == 0
        for each in commands
    )


if __name__ == "__main__":
    main(sys.argv[1:])
