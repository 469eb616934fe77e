"""Pages and CSVs: filled in from the results, written, and checked against them."""

import re
from pathlib import Path

import pytest

from experiments.recipes import ensemble_cell
from experiments.reporting.document import DocumentError, check, main, render
from experiments.reporting.names import RIVALS, in_words
from experiments.reporting.prose import PAGES, TemplateError, fill
from experiments.reporting.summaries import Measured, read_measured
from experiments.reporting.tables.markdown import Table
from experiments.runner.results import CellResults, read_results, write_results
from tests.experiments.reporting.synthetic import column, over_networks, read_column, rows_of, write_cell

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def few_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("few")
    write_cell(results, "in_distribution", "cifar10", "vgg16", 0, sets=["clean"])
    write_cell(results, "mc_dropout", "cifar10", "wide_resnet_28_10", 0, dropout=0.2, sets=["clean"])
    return results


@pytest.fixture(scope="module")
def measured(results: Path) -> tuple[Measured, ...]:
    return read_measured(results)


def filled(measured: tuple[Measured, ...], text: str) -> str:
    return fill(text, measured, {"cost": Table("cost", "", ("method", "seconds"), (("LATES, no views", "1.2"),), "")})


# Fields


def test_a_mean_is_over_seeds_then_architectures(results: Path, measured: tuple[Measured, ...]) -> None:
    def of(network: str, seed: int) -> float:
        return column(results, f"in_distribution-cifar10-{network}-s{seed}", "sms", "nll")["clean"]

    expected = over_networks(of)
    assert filled(measured, "NLL {{mean nll clean cifar10 sms}}.") == f"NLL {expected:.3f}."
    assert filled(measured, "{{cell cost | LATES, no views | seconds}}") == "1.2"


def test_gains_shares_and_wins_agree_with_the_files(results: Path, measured: tuple[Measured, ...]) -> None:
    name = "in_distribution-cifar100-vgg19-s0"
    ours, theirs = (column(results, name, method, "ece")["clean"] for method in ("lates_shift_1", "temperature"))
    place = "ece clean cifar100/vgg19 lates_shift_1 temperature"
    (row,) = rows_of(filled(measured, "{{gains cifar100/vgg19 ece:clean lates_shift_1 temperature}}"))
    assert row["gain"] == f"{theirs - ours:+.4f}".replace("-", "−")
    assert filled(measured, f"{{{{percent {place}}}}}") == f"{100 * (theirs - ours) / theirs:.0f} %".replace("-", "−")
    assert filled(measured, f"{{{{wins {place}}}}}") == ("1 of 1" if ours < theirs else "0 of 1")


def test_worse_counts_the_test_sets_of_all_networks(results: Path, measured: tuple[Measured, ...]) -> None:
    name = "in_distribution-cifar100-vgg19-s0"
    ours, theirs = (column(results, name, method, "nll") for method in ("lates_shift_1", "temperature"))
    corrupted = [each for each in theirs if each != "clean"]
    worse = sum(ours[each] > theirs[each] for each in corrupted)
    field = "{{worse nll corrupted cifar100/vgg19 lates_shift_1 temperature}}"
    assert filled(measured, field) == f"{worse} of {len(corrupted)}"
    fog = [ours[name] - theirs[name] for name in corrupted if name.startswith("fog-") and ours[name] > theirs[name]]
    found = filled(measured, "{{where nll fog cifar100/vgg19 lates_shift_1 temperature}}")
    assert found.startswith("fog at severit")
    assert f"{min(fog):.3f} to {max(fog):.3f})" in found


def test_ahead_counts_networks_on_which_no_rival_is_as_good(results: Path, measured: tuple[Measured, ...]) -> None:
    name, place = "in_distribution-cifar100-vgg19-s0", "nll clean cifar100/vgg19"
    (cell,) = (each for each in measured if each.cell.name == name)
    scores = {method: column(results, name, method, "nll")["clean"] for method in cell.methods}
    ours = scores["lates_shift_1"]
    least = min(scores[method] for method in RIVALS.keys() & scores.keys())
    assert filled(measured, f"{{{{ahead {place} lates_shift_1}}}}") == ("1 of 1" if ours < least else "0 of 1")


def test_columns_of_a_table_stand_alone_and_rows_below_five_percent_are_counted(measured: tuple[Measured, ...]) -> None:
    rows = (("clean", "0.2", "0.097"), ("corrupted", "0.3", "1.2e-04"), ("bar", "–", "–"))
    tables = {"primary": Table("primary", "A title", ("test sets", "gain", "p, Holm"), rows, "A note.")}
    assert fill("{{significant primary}}", measured, tables) == "1 of 3 (corrupted)"
    columns = fill("{{columns primary | test sets | p, Holm}}", measured, tables)
    assert columns.splitlines()[:3] == ["| test sets | p, Holm |", "| :-- | --: |", "| clean | 0.097 |"]


def test_each_names_the_gain_of_every_architecture(measured: tuple[Measured, ...]) -> None:
    pair = "lates_shift_1 temperature"
    one = filled(measured, f"{{{{percent nll clean cifar100/vgg19 {pair}}}}}")
    assert f"{one} (VGG19)" in filled(measured, f"{{{{each nll clean cifar100 {pair}}}}}")


def test_tables_of_scores_and_gains_agree_with_the_fields_of_sentences(measured: tuple[Measured, ...]) -> None:
    places, columns = "cifar100,cifar10", "nll:clean,ece:corrupted"
    scores = rows_of(filled(measured, f"{{{{scores {places} {columns} temperature lates_shift_1 ensemble}}}}"))
    assert [row["CIFAR-100 / CIFAR-10"] for row in scores] == [
        "temperature",
        "LATES, shifted views",
        "ensemble of the seeds",
    ]
    both = "{{mean nll clean cifar100 temperature}} / {{mean nll clean cifar10 temperature}}"
    assert scores[0]["NLL, clean"] == filled(measured, both)
    assert scores[2]["NLL, clean"] == "–"
    gains = rows_of(filled(measured, f"{{{{gains {places} {columns} lates_shift_1 temperature}}}}"))
    assert [(row["data set"], row["metric"], row["test sets"]) for row in gains] == [
        (dataset, *of_column) for dataset in ("CIFAR-100", "CIFAR-10") for of_column in (("NLL", "clean"), ("ECE", "corrupted"))
    ]


def test_places_follow_the_networks_and_methods_that_were_run(tmp_path: Path) -> None:
    paths = {name: write_cell(tmp_path, "strong", "cifar10", name, 0) for name in ("resnet18", "vgg16", "small_vit")}
    single = read_results(paths["vgg16"].with_suffix(".json"))
    for cell, method in ((single.cell, "tta_mirror"), (ensemble_cell("strong", "cifar10", "vgg16"), "ensemble")):
        extra = {(method, name): metrics for (of, name), metrics in single.scores.items() if of == "sms"}
        write_results(tmp_path, CellResults(cell, {**single.scores, **extra} if cell == single.cell else extra, {}))
    measured = read_measured(tmp_path)
    assert filled(measured, "{{names strong:cifar10}}") == "ResNet18, VGG16 and small ViT"
    assert filled(measured, "{{mean nll clean strong:cifar10 tta_mirror}}") == "not run", "on every network"
    nll = {name: read_column(path, "sms", "nll")["clean"] for name, path in paths.items()}
    for method in ("tta_mirror", "ensemble"):
        place = f"strong:cifar10?{method}"
        assert filled(measured, f"{{{{names {place}}}}}") == "VGG16"
        (row,) = rows_of(filled(measured, f"{{{{scores {place} nll:clean {method}}}}}"))
        assert row["NLL, clean"] == f"{nll['vgg16']:.3f}"
    (row,) = rows_of(filled(measured, "{{scores strong:cifar10/* nll:clean sms}}"))
    assert [*row.values()][1:] == [f"{value:.3f}" for value in nll.values()]
    theirs = {name: read_column(path, "temperature", "nll")["clean"] for name, path in paths.items()}
    least = min(nll, key=lambda name: theirs[name] - nll[name])
    found = filled(measured, "{{least nll clean strong:cifar10 sms temperature}}")
    assert found == f"from {theirs[least]:.3f} to {nll[least]:.3f} ({in_words(least)})"


def test_places_may_be_parts_of_the_split_and_rates_of_dropout(results: Path, measured: tuple[Measured, ...]) -> None:
    quarter = column(results, "low_data-cifar100-resnet18-s0-t0.25", "temperature", "nll")["clean"]
    assert filled(measured, "{{mean nll clean cifar100/resnet18@0.25 temperature}}") == f"{quarter:.3f}"
    assert filled(measured, "{{most parameters cifar100 lates_shift_2}}") == "1.97 %"
    dropped = column(results, "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2", "mcd", "nll")["clean"]
    assert filled(measured, "{{mean nll clean cifar10/wide_resnet_28_10~0.2 mcd}}") == f"{dropped:.3f}"
    assert filled(measured, "{{networks both}}, {{seeds cifar10}}") == "16, 1 to 3"


def test_what_was_not_run_says_so(measured: tuple[Measured, ...]) -> None:
    for field in (
        "mean nll clean strong:cifar100 sms",
        "most flops imagenet sms",
        "names strong:cifar100",
        "least nll fog strong:cifar100 sms temperature",
    ):
        assert filled(measured, f"{{{{{field}}}}}") == "not run"


@pytest.mark.parametrize(
    "field",
    [
        "table costs",
        "cell cost | LATES | seconds",
        "mean nll clean cifar10 temprature",
        "mean nnl clean cifar10 sms",
        "scores cifar10 nnl:clean sms",
        "gains cifar10 nll:dirty sms temperature",
        "mean nll dirty cifar10 sms",
        "mean nll clean cifar10/vgg16@0.3 sms",
        "mode",
    ],
)
def test_a_field_that_cannot_be_filled_is_an_error_with_what_is_known(measured: tuple[Measured, ...], field: str) -> None:
    with pytest.raises(TemplateError, match=rf"{{{{{field}}}}} cannot be filled: .*tables: cost; quantities: mean"):
        filled(measured, f"{{{{{field}}}}}")


# Files


def test_written_pages_pass_the_check_and_hold_no_field(few_results: Path, tmp_path: Path) -> None:
    files = render(few_results, tmp_path)
    assert {path.name for path in files if path.suffix == ".md"} == {page.name for page in PAGES.glob("*.md")} - {"README.md"}
    assert tmp_path / "RESULTS.md" in files
    assert not any("{{" in text for text in files.values())
    with pytest.raises(DocumentError, match=r"RESULTS\.md"):
        check(files)
    arguments = [f"--results={few_results}", f"--out={tmp_path}"]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0


def test_check_fails_if_one_number_of_a_sentence_or_table_differs(
    few_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--results={few_results}", f"--out={tmp_path}"]
    main(arguments)
    front, table = tmp_path / "RESULTS.md", few_results / "tables" / "paper_tests.csv"
    front.write_text(front.read_text().replace("on 0 networks trained", "on 2 networks trained"))
    table.write_text(table.read_text().replace("63.4", "63.5"))
    assert main([*arguments, "--check"]) == 1
    said = capsys.readouterr().out
    assert "on 2 networks trained" in said
    assert "63.5" in said
    assert "cost.csv" not in said


def test_the_numbers_of_this_repository_s_results_are_those_of_its_files() -> None:
    assert main([f"--results={ROOT / 'results'}", f"--out={ROOT}", "--check"]) == 0


def test_the_filled_part_of_the_readme_is_written_and_checked(few_results: Path, tmp_path: Path) -> None:
    arguments = [f"--results={few_results}", f"--out={tmp_path}"]
    readme = tmp_path / "README.md"
    readme.write_text("Before.\n<!-- filled from experiments/reporting/pages/README.md -->\nold\n<!-- end -->\nAfter.\n")
    assert main([*arguments, "--check"]) == 1
    assert main(arguments) == 0
    written = readme.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("<!-- end -->\nAfter.\n")
    assert "**CIFAR-100**" in written
    assert main([*arguments, "--check"]) == 0
    readme.write_text("no comments")
    assert main(arguments) == 1


def pages_of_the_repository() -> list[Path]:
    folders = {"RESULTS.md": ROOT, "README.md": ROOT}
    return [folders.get(page.name, ROOT / "results") / page.name for page in PAGES.glob("*.md")]


def test_no_row_of_numbers_is_too_wide_to_read() -> None:
    for page in pages_of_the_repository():
        too_wide = [
            line for line in page.read_text().splitlines() if line.startswith("|") and line.count(" | ") > 8 and len(line) > 120
        ]
        assert too_wide == [], page


def test_the_front_page_is_one_page_and_links_of_all_pages_lead_somewhere() -> None:
    front = ROOT / "RESULTS.md"
    assert len(front.read_text()) < 9000
    assert len(front.read_text().splitlines()) <= 110
    for page in pages_of_the_repository():
        links = re.findall(r"\]\(([^):]+)\)", page.read_text())
        assert all((page.parent / link).exists() for link in links), page


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--results={tmp_path / 'nowhere'}", f"--out={tmp_path}"]) == 1
    assert "nowhere is no folder" in capsys.readouterr().out
    assert not (tmp_path / "RESULTS.md").exists()
