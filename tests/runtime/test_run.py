"""Progress: the user's callback, bars on a terminal, silence elsewhere."""

import pytest

from lates.runtime.run import shown


def test_progress_is_silent_when_asked_and_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    def callback(stage: str, done: int, total: int | None) -> None: ...

    for asked, expected in {False: None, True: None, None: None, callback: callback}.items():
        with shown(asked) as report:
            assert report is expected
    assert capsys.readouterr() == ("", "")


def test_progress_draws_bars_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with shown(True) as report:
        assert report is not None
        report("reading train", 1, 4)
        report("reading train", 4, 4)
        report("reading holdout", 1, None)
    drawn = capsys.readouterr()
    assert drawn.out == ""
    assert "reading train" in drawn.err
    assert "4/4" in drawn.err
