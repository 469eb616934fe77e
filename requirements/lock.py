"""Lists, under every `name==version` in the files of this folder, the SHA-256 digests of its wheels: `make lock`.

To change a version, change it in its file; to add a package, add its line. `pip check`, at the end of every set-up, says what
is still missing. Digests come from the package index and from the pages that the file names with --find-links. A file whose
pages cannot all be read stays as it is.
"""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urldefrag
from urllib.request import urlopen

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
PYTHONS = "cp311", "cp312", "cp313", "cp314"
MACHINES = "x86_64", "aarch64", "arm64", "universal2"


class Links(HTMLParser):
    """The files that a page of an index links to: name -> digest."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address, fragment = urldefrag(dict(attrs).get("href") or "")
        if tag == "a" and fragment.startswith("sha256="):
            self.digests[unquote(address.rpartition("/")[2])] = fragment.removeprefix("sha256=")


def read_page(address: str) -> dict[str, str]:
    links = Links()
    with urlopen(address, timeout=60) as answer:
        links.feed(answer.read().decode())
    return links.digests


def fits(tag: Tag) -> bool:
    """CPython on Linux with glibc, or on macOS: where the Makefile runs."""
    python = tag.interpreter.startswith("py3") or tag.interpreter in PYTHONS or tag.abi == "abi3"
    system = tag.platform.startswith(("manylinux", "macosx")) and tag.platform.endswith(MACHINES)
    return python and not tag.abi.endswith("t") and (system or tag.platform == "any")


def is_wheel_of(file: str, version: Version) -> bool:
    try:
        _, found, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return False
    return found == version and any(map(fits, tags))


def lock(pin: str, more_pages: list[str]) -> str:
    name, version = re.split("==| ;", pin)[:2]
    pages = [f"{INDEX.rstrip('/')}/{canonicalize_name(name)}/", *more_pages]
    files = {file: digest for page in pages for file, digest in read_page(page).items()}
    digests = sorted({digest for file, digest in files.items() if is_wheel_of(file, Version(version))})
    if not digests:
        raise SystemExit(f"{pin} has no wheel: {pages[0]} lists none for this version.")
    return " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in digests)])


def main() -> None:
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        lines = path.read_text("utf-8").splitlines()
        head = "".join(line + "\n" for line in lines if line.startswith(("#", "--find-links ")))
        pages = [line.split()[1] for line in lines if line.startswith("--find-links ")]
        pins = sorted({line.rstrip("\\ ") for line in lines if re.match(r"[\w.-]+==", line)}, key=str.lower)
        try:
            path.write_text(head + "".join(lock(pin, pages) + "\n" for pin in pins), "utf-8")
        except URLError as fault:
            print(f"{path.name} stays as it is: {fault.reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
