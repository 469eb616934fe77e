"""What set-up installs, what the package ships, and what the tests do where there is no browser."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lates
from lates.report.page import chart_library

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def pins(*names: str) -> dict[str, str]:
    """Package -> version in the given files of requirements/."""
    text = "".join((ROOT / "requirements" / f"{name}.txt").read_text("utf-8") for name in names)
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.MULTILINE)}


def requirements_of(*extras: str) -> list[Requirement]:
    """Of the package with the given extras; an extra may name others, as in lates[report]."""
    listed = [Requirement(text) for extra in extras for text in EXTRAS[extra]]
    named = [other for requirement in listed if requirement.name == "lates" for other in requirement.extras]
    others = [requirement for requirement in listed if requirement.name != "lates"]
    return (
        [Requirement(text) for text in PROJECT["project"]["dependencies"]] + others + (requirements_of(*named) if named else [])
    )


@pytest.mark.parametrize("torch", ["torch", "torch-cpu"])
@pytest.mark.parametrize(("extra", "files"), [("report", ["demo"]), ("dev", ["demo", "dev"])])
def test_requirements_satisfy_the_extra(extra: str, files: list[str], torch: str) -> None:
    locked = pins(torch, *files)
    unmet = [
        str(needed)
        for needed in requirements_of(extra)
        if locked.get(canonicalize_name(needed.name), "0") not in needed.specifier
    ]
    assert not unmet, f'add or change their lines in requirements/{files[-1]}.txt, then "make lock"'


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.stem)
def test_set_up_installs_only_wheels_of_known_digests(file: Path) -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE).strip())
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.+]+(?: ; .+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installs = [line for line in makefile.splitlines() if f"requirements/{file.name}" in line and " -r " in line]
    assert all("$(LOCKED)" in line for line in installs)
    assert re.search(r"^LOCKED := .* --no-deps --require-hashes --only-binary :all:$", makefile, re.MULTILINE)


def test_the_build_backend_is_the_locked_one() -> None:
    (backend,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert str(backend.specifier) == f"=={pins('demo')[backend.name]}"


def test_workflow_pins_its_actions_and_only_reads() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in re.findall(r"uses: (\S+)", text))
    assert re.search(r"^permissions:\n  contents: read$", text, re.MULTILINE)


def test_what_ships_brings_its_licences_and_the_security_policy() -> None:
    listed = [*PROJECT["project"]["license-files"], "SECURITY.md"]
    assert [path for path in listed if not (ROOT / path).is_file()] == []
    notices = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("NOTICE")}
    assert notices <= {*listed}
    assert "/SECURITY.md" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def test_citation_names_this_version() -> None:
    assert f"\nversion: {lates.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_reports_carry_the_licences_of_their_chart_library() -> None:
    notice = chart_library().partition("*/")[0]
    for owner in ("University of Washington Interactive Data Lab", "Mike Bostock", "Joachim Wester"):
        assert owner in notice
    assert "IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE LIABLE" in notice


@pytest.mark.parametrize(
    ("demand", "code", "line"),
    [
        ("", 0, "2 browser tests skipped: /nowhere/chromium does not start"),
        ("1", 1, "no browser, which $LATES_REQUIRE_BROWSER demands: /nowhere/chromium does not start"),
    ],
)
def test_missing_browser_skips_or_fails_where_demanded(tmp_path: Path, demand: str, code: int, line: str) -> None:
    (tmp_path / "test_page.py").write_text("def test_first(browser): ...\n\n\ndef test_second(browser): ...\n", "utf-8")
    environment = {
        **os.environ,
        "CHROMIUM": "/nowhere/chromium",
        "LATES_REQUIRE_BROWSER": demand,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "test_page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert line in done.stdout
    assert done.stdout.count("browser tests skipped") == (not demand)
