"""The pages of advice: whole, by themselves, and safe whatever a model calls its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.engine.profiles import make_operator_profile, make_profile, make_tried
from support.pages import ReadPage

from aoe.advice.causes import Cause, FoundCause, LowPerformer
from aoe.advice.folder import AdvisedModel, FolderAdvice
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict
from aoe.errors import RunError
from aoe.report.pages import render_advice, render_folder_advice

_HOSTILE = '"><script>alert(1)</script>'


def _advice(name: str = "conv", **members: Any) -> ModelAdvice:
    conv = make_operator_profile(name)
    relu = make_operator_profile("relu", op_type="Relu", median_us=30.0, reads=(name,))
    low = LowPerformer(
        operator=conv,
        room_us=60.0,
        causes=(FoundCause(cause=Cause.SMALL_CHANNELS, detail="3 channels"),),
    )
    facts: dict[str, Any] = {
        "profile": make_profile(conv, relu, model=name),
        "low": (low,),
        "tried": (
            make_tried("slow", 0.98, TrialVerdict.NO_GAIN),
            make_tried("wide", 1.2, TrialVerdict.GAIN, needs_retraining=True),
            make_tried("wrong", None, TrialVerdict.FAILED, reason="another shape"),
        ),
        "not_tried": ("later",),
        **members,
    }
    return ModelAdvice(**facts)


def _folder(*models: AdvisedModel) -> str:
    return render_folder_advice(FolderAdvice(folder=Path("nets"), models=models))


def _both(advice: ModelAdvice) -> list[str]:
    models = [AdvisedModel(path=Path(f"{name}.onnx"), advice=advice) for name in ("a", "b")]
    return [render_advice(advice), _folder(*models)]


@pytest.mark.parametrize("number", [0, 1])
def test_page_is_whole_and_its_links_lead_somewhere(number: int) -> None:
    page = ReadPage(_both(_advice())[number])
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.tags.count("h1") == 1


def test_page_has_causes_actions_and_what_is_worth_tuning() -> None:
    page = " ".join(ReadPage(render_advice(_advice())).texts)
    for words in (
        "small-channels: 3 channels",
        "gain, needs retraining",
        "this becomes that (another shape)",
        "Not tried (--most): later.",
        "Roofline",
        "Graph by lost time",
        "Worth tuning",
    ):
        assert words in page


def test_pages_load_nothing_and_forbid_it() -> None:
    for text in _both(_advice()):
        ReadPage(text).assert_loads_nothing()


def test_names_of_a_model_stay_text() -> None:
    for text in _both(_advice(_HOSTILE)):
        assert ReadPage(text).tags.count("script") == 1


def test_page_of_a_directory_has_a_part_for_each_model_and_says_what_failed() -> None:
    text = _folder(
        AdvisedModel(path=Path("a.onnx"), advice=_advice()),
        AdvisedModel(path=Path("b.onnx"), error=RunError("b.onnx", "does not run")),
    )
    page = ReadPage(text)
    assert "model-0" in page.ids
    assert "model-1" not in page.ids
    assert any("b.onnx: does not run" in words for words in page.texts)


def test_advice_of_nothing_is_a_page() -> None:
    empty = _advice(profile=make_profile(), low=(), not_tried=(), tried=())
    for text in [*_both(empty), _folder()]:
        assert ReadPage(text).open == []


def test_interval_is_drawn_beside_one_and_stays_inside() -> None:
    page = render_advice(_advice(tried=(make_tried("wide", 9.0, TrialVerdict.GAIN),)))
    drawn = page.partition('<svg class="interval good"')[2].partition("</svg>")[0]
    assert 'cx="154.0"' in drawn
    assert 'x1="80.0" x2="80.0"' in drawn
