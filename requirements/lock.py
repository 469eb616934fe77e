"""Lists, under every `name==version` in demo.txt, dev.txt and torch.txt, the SHA-256 digests of its wheels: `make lock`.

To change a version, change it in its file; to add a package, add its line. `pip check`, at the end of every set-up, says what
is still missing. pip resolves the pins once for each Python and system, from its own index. The digests of torch-cpu.txt are
changed by hand: the package index does not have those wheels.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

FILES = "demo.txt", "dev.txt", "torch.txt"
PYTHONS = "3.11", "3.12", "3.13", "3.14"
GLIBC = (28, 27, 17, 12, 5)
SYSTEMS = (
    [*(f"manylinux_2_{minor}_x86_64" for minor in GLIBC), "manylinux2014_x86_64", "manylinux1_x86_64"],
    [*(f"manylinux_2_{minor}_aarch64" for minor in GLIBC), "manylinux2014_aarch64"],
    [*(f"macosx_{major}_0_{kind}" for major in (15, 14, 13, 12, 11) for kind in ("arm64", "universal2"))],
)


def digests_on(pins: list[str], python: str, systems: list[str]) -> dict[str, str]:
    """name -> the digest of the wheel that pip would install there; packages without one are halved out."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "pins.txt"
        plain.write_text("\n".join(pins), "utf-8")
        where = ["--python-version", python, *(word for system in systems for word in ("--platform", system))]
        options = ["--dry-run", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", folder, "--report", "-"]
        call = [sys.executable, "-m", "pip", "install", *options, *where, "-r", str(plain)]
        # An empty folder in place of the user's: CPU builds of torch there would pass for the index's.
        answer = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "PIP_FIND_LINKS": folder})
    if answer.returncode != 0:
        middle = len(pins) // 2
        halves = [pins[:middle], pins[middle:]] if middle else []
        return {name: digest for half in halves for name, digest in digests_on(half, python, systems).items()}
    report = json.loads(answer.stdout)
    archives = {entry["metadata"]["name"]: entry["download_info"]["archive_info"] for entry in report["install"]}
    return {_normal(name): archive["hashes"]["sha256"] for name, archive in archives.items()}


def lock(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    pins = sorted({line.rstrip("\\ ") for line in lines if re.match(r"[\w.-]+==", line)}, key=str.lower)
    found: dict[str, set[str]] = defaultdict(set)
    for python in PYTHONS:
        for systems in SYSTEMS:
            for name, digest in digests_on(pins, python, systems).items():
                found[name].add(digest)
    text = [line for line in lines if line.startswith("#")]
    for pin in pins:
        hashes = sorted(found[_normal(pin.split("==")[0])])
        if not hashes:
            raise SystemExit(f"{pin} in {path.name} has no wheel for any of Python {', '.join(PYTHONS)}.")
        text.append(" \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in hashes)]))
    path.write_text("\n".join(text) + "\n", "utf-8")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    for file in FILES:
        lock(Path(__file__).with_name(file))
