"""What `set_option` says counts for every call that does not say otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import untuned  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import OptionError  # noqa: E402
from aoe.torch.modules.optimization import optimize_call  # noqa: E402
from aoe.torch.options import make_options  # noqa: E402
from aoe.tuner.mode import CacheMode, TuneSettings  # noqa: E402
from aoe.tuner.progress import SilentProgress  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_set() -> Iterator[None]:
    yield
    aoe.torch.set_option({})


class Seeing(UntunedEngine):
    """Keeps what it is asked for."""

    def __call__(self, settings: TuneSettings, env: Mapping[str, str], progress: Any) -> Path:
        self.settings, self.env = settings, env
        return super().__call__(settings, env, progress)


def _asked(**options: Any) -> Seeing:
    engine, net = Seeing(), torch.nn.Linear(4, 3)
    settings = make_options(options)
    given = (torch.randn(2, 4),)
    optimize_call(net, given, {}, settings, progress=SilentProgress(), engine=engine)
    return engine


def test_without_options_a_call_tunes() -> None:
    settings = _asked().settings
    assert (settings.lookup_only, settings.cache_mode) == (False, CacheMode.ENABLE)
    assert settings.cache_dir is None


def test_with_a_mode_calls_look_up_only(tmp_path: Path) -> None:
    aoe.torch.set_option(
        {"ACL_OP_COMPILER_CACHE_MODE": "force", "ACL_OP_COMPILER_CACHE_DIR": str(tmp_path)}
    )
    settings = _asked().settings
    assert (settings.lookup_only, settings.cache_mode) == (True, CacheMode.FORCE)
    assert settings.cache_dir == tmp_path


def test_a_mode_says_that_tuning_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
    assert "tune nothing; optimize(..., lookup_only=False) tunes" in capsys.readouterr().err
    aoe.torch.set_option({})
    assert "from here on optimize and the torch.compile backend tune" in capsys.readouterr().err
    aoe.torch.set_option({})
    assert capsys.readouterr().err == ""


def test_a_dump_is_no_cache_of_kernels(tmp_path: Path) -> None:
    with aoe.torch.set_aoe(tmp_path / "dump"), torch.no_grad():
        torch.nn.Linear(4, 3).eval()(torch.randn(2, 4))
    with pytest.warns(UserWarning, match="a dump of set_aoe.*aoe --model_path="):
        aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_DIR": tmp_path / "dump"})


def test_a_call_says_otherwise(tmp_path: Path) -> None:
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "disable"})
    settings = _asked(lookup_only=False, cache_mode="enable", cache_dir=tmp_path).settings
    assert (settings.lookup_only, settings.cache_mode) == (False, CacheMode.ENABLE)
    assert settings.cache_dir == tmp_path


@pytest.mark.slow
def test_a_directory_of_results_is_a_bank_too(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_DIR": tmp_path})
    assert _asked().env["TUNE_BANK_PATH"] == str(tmp_path / "bank")
    (tmp_path / "other").mkdir()
    assert _asked(bank=tmp_path / "other").env["TUNE_BANK_PATH"] == str(tmp_path / "other")


def test_an_empty_mapping_takes_everything_back() -> None:
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
    aoe.torch.set_option({})
    assert not make_options({}).tune


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ACL_OP_COMPILER_CACHE_MODE": "on"}, "no mode of the cache"),
        (
            {"ACL_OP_COMPILER_CACHE_MODE": "enable", "ACL_AICORE_NUM": 33},
            "got 33, expected 1 to 32",
        ),
        ({"ACL_PRECISION_MODE": "fast"}, "expected allow_fp32_to_fp16 or must_keep_origin_dtype"),
        ([("ACL_OP_COMPILER_CACHE_MODE", "enable")], r"no mapping of options \(got list\)"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(options: Any, words: str) -> None:
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})
    with pytest.raises(OptionError, match=words):
        aoe.torch.set_option(options)
    assert make_options({}).tune["op_compiler_cache_mode"] is CacheMode.FORCE


def test_options_without_effect_say_so_and_change_nothing() -> None:
    """`torch_npu` 2.14 has nine options, of which two have a meaning on a CPU."""
    aoe.torch.set_option(option={"ACL_OP_COMPILER_CACHE_MODE": "force"})
    given = {
        "ACL_PRECISION_MODE": "allow_fp32_to_fp16",
        "ACL_OP_SELECT_IMPL_MODE": "high_precision",
        "ACL_AICORE_NUM": 24,
        "ACL_OPTYPELIST_FOR_IMPLMODE": "Pooling,SoftmaxV2",
        "ACL_OP_DEBUG_LEVEL": 0,
        "ACL_DEBUG_DIR": "/tmp/debug",
        "ACL_OP_DEBUG_OPTION": "oom",
    }
    for name, value in given.items():
        with pytest.warns(UserWarning, match=f"{name} has no effect: ") as told:
            aoe.torch.set_option({name: value})
        assert told[0].filename == __file__
        assert make_options({}).tune["op_compiler_cache_mode"] is CacheMode.FORCE
    with pytest.warns(UserWarning, match="has no effect"):
        aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "disable", **given})
    assert make_options({}).tune["op_compiler_cache_mode"] is CacheMode.DISABLE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ACL_OP_COMPILER_CACHE_MODES", "; did you mean ACL_OP_COMPILER_CACHE_MODE\\?$"),
        ("MM_BMM_ND_ENABLE", "is none of the nine options of torch_npu, and has no effect$"),
    ],
)
def test_unknown_options_pass_with_a_warning(name: str, words: str) -> None:
    with pytest.warns(UserWarning, match=f"{name} .*{words}"):
        aoe.torch.set_option({name: "enable"})
    assert not make_options({}).tune


def test_wrong_mode_of_a_call_is_refused() -> None:
    with pytest.raises(OptionError, match="no mode of the cache"):
        make_options({"cache_mode": "never"})


def test_backend_looks_up_only() -> None:
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
    engine, net = Seeing(), torch.nn.Linear(4, 3)
    compiled = torch.compile(net, backend=partial(untuned, engine=engine))
    with torch.no_grad():
        compiled(torch.randn(2, 4))
    assert engine.settings.lookup_only
