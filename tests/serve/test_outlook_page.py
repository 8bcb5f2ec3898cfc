"""Pictures of a forecast: the job in them, every contour that can be reached, and only numbers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from clicalls import call, document
from holdfast.reliability.adaptive import Adaptation
from holdfast.reliability.ettr import Conditions
from holdfast.reliability.outlook import look_ahead
from holdfast.reliability.view import LEVELS, look_around
from holdfast.serve.outlookpage import draw_bands, draw_outlook

LARGE = Conditions(nodes=2048, rate_per_1000_node_days=6.5, checkpoint_min=30, write_min=1)


def test_a_page_has_both_pictures_and_the_figures_of_the_job() -> None:
    """ETTR with restarts and through failures, by size and as contours."""
    outlook = look_ahead(LARGE, np.random.default_rng(0))
    page = draw_outlook(outlook, look_around(LARGE, 16_384, 8, Adaptation()))
    assert page.count("<svg") == 2
    assert f"{outlook.ettr.exact:.3f} with restarts" in page
    assert f"{outlook.adaptive.closed_form:.3f} through failures" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_sizes_around_a_job_only_get_worse() -> None:
    """More GPUs, shorter time to failure, less ETTR of jobs that restart."""
    view = look_around(LARGE, 16_384, 8, Adaptation())
    for line in (view.curve.mttf_hours, view.curve.exact, view.curve.best):
        assert np.all(np.diff(line) <= 1e-12)
    assert np.all(view.curve.exact <= view.curve.best + 1e-12)


def test_contours_lie_within_each_other() -> None:
    """What reaches more also reaches less."""
    bands = look_around(LARGE, 16_384, 8, Adaptation()).bands
    assert tuple(band.level for band in bands) == LEVELS
    for wide, narrow in itertools.pairwise(bands):
        count = len(narrow.rates_per_1000_node_days)
        assert count <= len(wide.rates_per_1000_node_days)
        assert np.all(wide.shortest_min[:count] < narrow.shortest_min)
        assert np.all(wide.longest_min[:count] > narrow.longest_min)


@pytest.mark.parametrize("write_min", [0.0, 1.0, 500.0])
@pytest.mark.parametrize("checkpoint_min", [0.01, 60.0, 1e5])
@pytest.mark.parametrize("gpus", [1, 100_000_000])
def test_the_strangest_jobs_can_be_drawn(gpus: int, checkpoint_min: float, write_min: float) -> None:
    """Every place in the picture is a number, and the contours that nobody reaches are left out."""
    nodes = -(-gpus // 8)
    job = Conditions(
        nodes=nodes, rate_per_1000_node_days=6.5, checkpoint_min=checkpoint_min, write_min=write_min
    )
    view = look_around(job, gpus, 8, Adaptation())
    drawn = draw_bands(view)
    assert drawn.count('class="band"') == sum(len(band.longest_min) > 0 for band in view.bands)
    assert not re.search(r"nan|inf", "".join(re.findall(r'd="([^"]*)"', drawn)))


def test_ettr_draws_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the figures, which stay the same."""
    flags = ["reliability", "ettr", "--gpus", "16384", "--rate", "6.5"]
    plain = document(flags, monkeypatch, capsys)
    path = tmp_path / "outlook.html"
    assert document([*flags, "--chart", str(path)], monkeypatch, capsys) == plain
    assert "<svg" in path.read_text()


def test_a_chart_that_is_no_page_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is played."""
    path = tmp_path / "outlook.pdf"
    assert (
        call(["reliability", "ettr", "--gpus", "8", "--rate", "6.5", "--chart", str(path)], monkeypatch) == 2
    )
    assert "expected a name that ends in .html" in capsys.readouterr().err
    assert not path.exists()
