"""Rules by which each program finds its bank: one declaration per program.

Source: ops-nn common/src/op_host/bank_mgr (2026) for the C++ reader and writer; CANN 8.1.RC1
tbe/common/repository_manager, auto_tune and rl_bank for the static, cube and vector readers;
ge hccl_engine for the gradient bank; CANN documentation of `--op_bank_path`,
`--mdl_bank_path`, TUNE_BANK_PATH and ASCEND_CACHE_PATH for the closed subgraph reader.
"""

from __future__ import annotations

import os
from dataclasses import replace

from aoebank.model.resolution import Failure, Reader
from aoebank.storage.readers.places import (
    AOE_BUILT_IN_BANK,
    ASCEND_CACHE_PATH,
    ASCEND_OPP_PATH,
    DEFAULT_FOLDER,
    GRAPH_DEFAULT_FOLDER,
    HOME,
    MDL_BANK_PATH,
    OP_BANK_PATH,
    READ_ENTER,
    READ_WRITE,
    READ_WRITE_ENTER,
    SHORT_SOC,
    SOC,
    TUNE_BANK_PATH,
    Demand,
    Place,
    Rules,
)
from aoebank.storage.readers.soc_versions import OLD_SOC_VERSIONS, SOC_ALTERNATIVES

CACHE_FOLDER = "aoe_data"
CPP_DEFAULT_FOLDER = "Ascend/cann/data/aoe/custom/op"
FUSION_FOLDER = "../<arch>-linux/data/fusion_strategy"  # from $ASCEND_OPP_PATH
_UNIFIED = (f"{SOC}/unified_bank",)

_HOST = Rules(
    reader=Reader.HOST,
    related=OLD_SOC_VERSIONS,
    format="unified",
    is_writer=True,
    takes_list=True,
    obeys_quarantine=True,
    custom=(
        Place(
            source=TUNE_BANK_PATH,
            below=_UNIFIED,
            missing=Failure.STOP,
            created=False,
            named_needs=READ_WRITE_ENTER,
            file_denied=Failure.STOP,
        ),
        Place(
            source=ASCEND_CACHE_PATH,
            folder=CACHE_FOLDER,
            below=_UNIFIED,
            missing=Failure.STOP,
            named_needs=READ_WRITE_ENTER,
            root_needs=READ_WRITE_ENTER,
            file_denied=Failure.STOP,
        ),
        Place(
            source=HOME,
            folder=DEFAULT_FOLDER,
            below=_UNIFIED,
            unset=Failure.STOP,
            missing=Failure.STOP,
            named_needs=READ_ENTER,
            root_needs=READ_WRITE_ENTER,
            file_denied=Failure.STOP,
        ),
    ),
    built_in=(Place(source=AOE_BUILT_IN_BANK, below=_UNIFIED),),
)

# Built-in banks of packages that ship apart from the rest go first, and are not merged.
_CPP_BUILT_IN = tuple(
    Place(source=ASCEND_OPP_PATH, folder=folder, below=_UNIFIED, file_denied=Failure.DROP_ALL)
    for folder in (
        "ops_nn/built-in/data/op",
        "ops_transformer/built-in/data/op",
        "built-in/data/op",
    )
)
_CPP_NAMED = Place(
    source=TUNE_BANK_PATH,
    below=_UNIFIED,
    missing=Failure.SILENT,
    created=False,
    file_needs=READ_WRITE,
    file_denied=Failure.DROP_ALL,
)
_CPP = Rules(
    reader=Reader.CANN_CPP,
    format="runtime_kb",
    one_built_in_file=True,
    keeps_good_lines=True,
    custom=(
        _CPP_NAMED,
        replace(_CPP_NAMED, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        Place(
            source=HOME,
            folder=CPP_DEFAULT_FOLDER,
            below=_UNIFIED,
            file_needs=READ_WRITE,
            file_denied=Failure.SILENT,
        ),
    ),
    built_in=_CPP_BUILT_IN,
)
_CPP_WRITTEN = Place(
    source=TUNE_BANK_PATH,
    below=_UNIFIED,
    missing=Failure.STOP,
    created=False,
    files_needs=READ_WRITE_ENTER,
    file_needs=READ_WRITE,
    file_denied=Failure.STOP,
    cann_code="EC0011",
)
_CPP_WRITER = Rules(
    reader=Reader.CANN_CPP_WRITER,
    format="runtime_kb",
    is_writer=True,
    is_reader=False,
    one_built_in_file=True,
    keeps_good_lines=True,
    demands=(Demand(source=HOME, missing=Failure.STOP),),  # looked at whatever decides
    custom=(
        _CPP_WRITTEN,
        replace(_CPP_WRITTEN, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        replace(
            _CPP_WRITTEN,
            source=HOME,
            folder=CPP_DEFAULT_FOLDER,
            created=True,
            unset=Failure.STOP,
            missing=None,
        ),  # missing: the demand
    ),
    built_in=_CPP_BUILT_IN,
)

_PYTHON_NAMED = Place(
    source=TUNE_BANK_PATH,
    below=_UNIFIED,
    missing=Failure.STOP,
    created=False,
    root_needs=READ_WRITE_ENTER,
    file_needs=READ_WRITE,
    cann_code="EC0006",
)
_UNIFIED_BANK = Rules(
    reader=Reader.UNIFIED,
    format="unified",
    is_writer=True,
    related=SOC_ALTERNATIVES,
    demands=(Demand(source=ASCEND_OPP_PATH, unset=Failure.STOP, cann_code="EC0008"),),
    custom=(
        _PYTHON_NAMED,
        replace(_PYTHON_NAMED, source=OP_BANK_PATH),
        replace(_PYTHON_NAMED, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        Place(
            source=HOME,
            folder=DEFAULT_FOLDER,
            below=_UNIFIED,
            unset=Failure.STOP,
            file_needs=READ_WRITE,
            cann_code="EC0008",
        ),
    ),
    built_in=(
        Place(source=ASCEND_OPP_PATH, folder="built-in/data/op", below=_UNIFIED),
        Place(source=ASCEND_OPP_PATH, folder="data/built_in/op", below=_UNIFIED),
    ),
)
_CUBE_FOLDER = (f"{SOC}/cube",)
_CUBE_NAMED = replace(
    _PYTHON_NAMED, below=_CUBE_FOLDER, missing=Failure.WARN, denied=Failure.WARN, cann_code=""
)
_CUBE = Rules(
    reader=Reader.CUBE,
    format="cube",
    is_writer=True,
    custom=(
        _CUBE_NAMED,
        replace(_CUBE_NAMED, source=OP_BANK_PATH),
        replace(_CUBE_NAMED, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        Place(source=HOME, folder=DEFAULT_FOLDER, below=_CUBE_FOLDER, unset=Failure.UNKNOWN),
    ),
    built_in=(Place(source=ASCEND_OPP_PATH, folder="built-in/data/tiling", below=(SHORT_SOC,)),),
)
_VECTOR_FOLDERS = (f"{SOC}/vector", f"{SHORT_SOC}/custom", f"{SHORT_SOC}/rl")
_VECTOR_NAMED = replace(_PYTHON_NAMED, below=_VECTOR_FOLDERS, cann_code="")
_VECTOR = Rules(
    reader=Reader.VECTOR,
    format="vector",
    is_writer=True,
    related=SOC_ALTERNATIVES,
    fastest_wins=True,
    custom=(
        _VECTOR_NAMED,
        replace(_VECTOR_NAMED, source=OP_BANK_PATH),
        replace(_VECTOR_NAMED, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        Place(source=HOME, folder=DEFAULT_FOLDER, below=_VECTOR_FOLDERS, unset=Failure.UNKNOWN),
    ),
    built_in=(Place(source=ASCEND_OPP_PATH, folder="built-in/data/rl", below=(SHORT_SOC,)),),
)

_GRAPH_DEFAULT = Place(
    source=HOME, folder=GRAPH_DEFAULT_FOLDER, below=(SOC,), unset=Failure.UNKNOWN, any_name=True
)
_GRAPH_NAMED = Place(
    source=TUNE_BANK_PATH,
    missing=Failure.UNKNOWN,
    root_needs=READ_WRITE_ENTER,
    denied=Failure.UNKNOWN,
    created=False,
    any_name=True,
)
_GRAPH_BUILT_IN = (Place(source=ASCEND_OPP_PATH, folder=f"{FUSION_FOLDER}/built-in"),)
_GRAPH = Rules(
    reader=Reader.GRAPH,
    format="graph",
    is_operator=False,
    custom=(replace(_GRAPH_NAMED, source=MDL_BANK_PATH), _GRAPH_NAMED, _GRAPH_DEFAULT),
    built_in=_GRAPH_BUILT_IN,
)
_GRAPH_WRITTEN = replace(_GRAPH_NAMED, missing=Failure.STOP, denied=Failure.STOP)
_GRAPH_WRITER = Rules(
    reader=Reader.GRAPH_WRITER,
    format="graph",
    is_operator=False,
    is_writer=True,
    is_reader=False,
    custom=(
        _GRAPH_WRITTEN,
        replace(_GRAPH_WRITTEN, source=ASCEND_CACHE_PATH, folder=CACHE_FOLDER, created=True),
        _GRAPH_DEFAULT,
    ),
    built_in=_GRAPH_BUILT_IN,
)

_GRADIENT_DEFAULT = Place(
    source=HOME, folder=GRAPH_DEFAULT_FOLDER, below=(SOC,), unset=Failure.UNKNOWN
)
_GRADIENT = Rules(
    reader=Reader.GRADIENT,
    format="gradient",
    is_operator=False,
    custom=(
        Place(
            source=TUNE_BANK_PATH,
            missing=Failure.NEXT,
            falls_through=True,
            created=False,
            file_needs=os.R_OK,
            file_denied=Failure.NEXT,
        ),
        replace(_GRADIENT_DEFAULT, file_denied=Failure.NEXT),
    ),
    # what the code says; the installer spells the folder built-in, so nothing is found
    built_in=(Place(source=ASCEND_OPP_PATH, folder=f"{FUSION_FOLDER}/build_in"),),
)
_GRADIENT_WRITER = Rules(
    reader=Reader.GRADIENT_WRITER,
    format="gradient",
    is_operator=False,
    is_writer=True,
    is_reader=False,
    custom=(
        Place(source=TUNE_BANK_PATH, missing=Failure.STOP, created=False, file_needs=READ_WRITE),
        replace(_GRADIENT_DEFAULT, file_needs=READ_WRITE),
    ),
)

RULES: dict[Reader, Rules] = {
    rules.reader: rules
    for rules in (
        _HOST,
        _CPP,
        _CPP_WRITER,
        _UNIFIED_BANK,
        _CUBE,
        _VECTOR,
        _GRAPH,
        _GRAPH_WRITER,
        _GRADIENT,
        _GRADIENT_WRITER,
    )
}
