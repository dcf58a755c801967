"""What a person does who follows a hint of `validate` to the letter."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from aoebank import Finding
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.splice import splice_raw
from aoebank.merging.decisions import Three
from aoebank.merging.merge_bytes import merge_bytes
from aoebank.merging.versions import MergeContext
from aoebank.storage.bank import load_file
from support import golden_harness
from support import sample_bank_files as samples
from support.runtime_kb_lines import name_for, whole_record
from support.smallest_trees import HEALTHY, WORKLOADS, A, unified

Follow = Callable[[Path, Finding], None]


def follow(root: Path, finding: Finding) -> None:
    """Do what the hint of a finding says; a hint nobody can follow is an error."""
    text = f"{finding.code} {finding.hint}"
    (act,) = (act for pattern, act in HINTS.items() if re.search(pattern, text))
    act(root, finding)


def _edit(finding: Finding, edit: Callable[[str], str]) -> None:
    path = finding.location.path
    path.write_text(edit(path.read_text()))


def _remove_line(_: Path, finding: Finding) -> None:
    def edit(text: str) -> str:
        lines = text.split("\n")
        del lines[finding.location.line - 1]
        return "\n".join(lines)

    _edit(finding, edit)


def _split_file(_: Path, finding: Finding) -> None:
    path = finding.location.path
    lines, at = path.read_text().split("\n"), finding.location.line - 1
    path.write_text("\n".join([*lines[:at], ""]))
    path.with_name(f"other_{path.name}").write_text("\n".join(lines[at:]))


def _remove_bad_lines(_: Path, finding: Finding) -> None:
    _edit(finding, lambda text: "\n".join(row for row in text.split("\n") if '"op"' in row))


def _record(finding: Finding) -> tuple[ParsedFile, int]:
    """Return the record a finding is in."""
    parsed = load_file(finding.location.path)
    place = finding.location.start
    inside = (n for n in range(len(parsed)) if parsed.starts[n] <= place < parsed.ends[n])
    return parsed, next(inside)


def _remove_record(_: Path, finding: Finding) -> None:
    parsed, number = _record(finding)
    data = splice_raw(parsed, replaced={}, removed=frozenset([number]), added=[])
    finding.location.path.write_bytes(data)


def _rewrite_json(finding: Finding, edit: Callable[[Any], None] = lambda _: None) -> None:
    """Change the value a finding is in, members that come twice then coming once."""

    def rewritten(text: str) -> str:
        value = json.loads(text)
        edit(value)
        return json.dumps(value)

    if finding.location.path.name.endswith("_runtime_kb.json"):
        number = finding.location.line - 1
        lines = finding.location.path.read_text().split("\n")
        lines[number] = rewritten(lines[number])
        finding.location.path.write_text("\n".join(lines))
    else:
        _edit(finding, rewritten)


def _keep_last(_: Path, finding: Finding) -> None:
    _rewrite_json(finding)


def _to_utf8(_: Path, finding: Finding) -> None:
    path = finding.location.path
    path.write_bytes(path.read_bytes().decode("latin-1").encode())


def _restore(_: Path, finding: Finding) -> None:
    """The file as git has it, or as the tuner writes it: without a finding."""
    _edit(finding, lambda _: HEALTHY[finding.location.path.name])


def _remove_file(_: Path, finding: Finding) -> None:
    finding.location.path.unlink()


def _merge_again(_: Path, finding: Finding) -> None:
    text = finding.location.path.read_text()
    parts = re.fullmatch(r"<{7} .*\n([^=]*)={7}\n([^>]*)>{7} .*\n", text)
    if parts is None:
        return  # an earlier finding of this file was followed
    versions = Three(base=None, ours=parts[1].encode(), theirs=parts[2].encode())
    merged = merge_bytes(versions, finding.location.path, MergeContext(is_two_way=True)).data
    assert merged is not None
    finding.location.path.write_bytes(merged)


def _run_fix(_: Path, finding: Finding) -> None:
    command = finding.hint.partition(";")[0]
    words = command.replace("FILE", str(finding.location.path)).split()
    assert words[0] == "aoebank"
    golden_harness.run("aoebank", words[1:])


def _run_quarantine(root: Path, finding: Finding) -> None:
    found = re.search(r"aoebank (quarantine rm \w+)", finding.hint)
    assert found is not None
    call = [*found[1].split(), str(root)]  # "the one you are in"
    outcome = golden_harness.run("aoebank", call)
    assert outcome.exit_code == 0, outcome


def _tune_again(_: Path, finding: Finding) -> None:
    """A record the tuner wrote takes the place of the one found."""
    path = finding.location.path
    if path.name in HEALTHY:
        path.write_text(HEALTHY[path.name])
    else:
        of_format = {load_file(sample).format.name: sample for sample in samples.ALL}
        path.write_bytes(of_format[load_file(path).format.name].read_bytes())


def _add_fields(_: Path, finding: Finding) -> None:
    names = re.findall(r"(\w+) = ([^,;]+)", finding.hint.partition("; ")[0])

    def edit(record: dict[str, Any]) -> None:
        knowledge = record["knowledge"]
        known = {**whole_record(record["op"])["knowledge"], **knowledge}
        for name, formula in names:
            knowledge[name] = eval(formula, {"ceil": ceil}, known)
        if not names:
            knowledge.update(known)

    _rewrite_json(finding, edit)


def _field(finding: Finding, edit: Callable[[dict[str, Any], str], None]) -> None:
    *outer, name = finding.location.pointer.strip("/").split("/")

    def changed(value: Any) -> None:
        for token in outer:
            value = value[int(token) if isinstance(value, list) else token]
        edit(value, name)

    _rewrite_json(finding, changed)


def _remove_field(_: Path, finding: Finding) -> None:
    _field(finding, lambda values, name: values.__delitem__(name))


def _rename_field(_: Path, finding: Finding) -> None:
    meant = finding.expected or ""
    _field(finding, lambda values, name: values.update({meant: values.pop(name)}))


def _write_value(_: Path, finding: Finding) -> None:
    found = re.search(r"write (\S+),", finding.hint)
    assert found is not None
    value = json.loads(found[1])
    _field(finding, lambda values, name: values.update({name: value}))


def _first_line(_: Path, finding: Finding) -> None:
    _edit(finding, lambda text: f"{finding.expected}\n{text}")


def _move_record(_: Path, finding: Finding) -> None:
    path = finding.location.path
    path.rename(path.with_name(name_for(json.loads(path.read_text())["op"])))


def _use_key(_: Path, finding: Finding) -> None:
    got = (finding.got or "").strip('"')
    _edit(finding, lambda text: text.replace(got, finding.expected or ""))


def _own_key(_: Path, finding: Finding) -> None:
    _, number, _ = finding.location.pointer.strip("/").split("/")
    _rewrite_json(
        finding, lambda bank: bank.update({finding.got: [bank[finding.key].pop(int(number))]})
    )


def _sort_candidates(_: Path, finding: Finding) -> None:
    _rewrite_json(
        finding, lambda bank: bank[finding.key].sort(key=lambda answer: answer["cost_time"])
    )


def _rename_file(_: Path, finding: Finding) -> None:
    finding.location.path.rename(finding.location.path.with_name(A))


def _move_file(root: Path, finding: Finding) -> None:
    path = finding.location.path
    place = root / path.name.split("_")[0] / "unified_bank" / path.name
    place.parent.mkdir(parents=True)
    path.rename(place)


def _bring_back(_: Path, finding: Finding) -> None:
    path = finding.location.path.with_name(finding.expected or "")
    path.write_text(unified())


def _make_binary_cache(_: Path, finding: Finding) -> None:
    """CANN's tools stand in the sample that has a twin they could have made."""
    path = finding.location.path.with_suffix(".bin")
    shutil.copyfile(samples.CUBE.with_suffix(".bin"), path)


def _make_alike(root: Path, finding: Finding) -> None:
    name = re.search(r"as in (\S+)$", finding.expected or "")
    assert name is not None
    shutil.copyfile(root / name[1], finding.location.path)


def _unlink(_: Path, finding: Finding) -> None:
    finding.location.path.unlink()


def _remove_member(_: Path, finding: Finding) -> None:
    _rewrite_json(finding, lambda bank: bank.pop(json.loads(finding.got or "")))


def _move_into_attrs(_: Path, finding: Finding) -> None:
    kernel, metadata, name = finding.location.pointer.strip("/").split("/")

    def edit(bank: dict[str, Any]) -> None:
        members = bank[kernel][metadata]
        members.setdefault("attrs", {})[name] = members.pop(name)

    _rewrite_json(finding, edit)


def _bring_workloads(_: Path, finding: Finding) -> None:
    for name, text in WORKLOADS.items():
        finding.location.path.with_name(name).write_text(text)


def _write_constant(_: Path, finding: Finding) -> None:
    constant = json.loads(finding.expected or "")
    _field(finding, lambda values, name: values.update({name: constant}))


def _add_device(_: Path, finding: Finding) -> None:
    def edit(text: str) -> str:
        header, *lines = text.splitlines()
        return "\n".join([f"cu_num,{header}", *(f"80,{line}" for line in lines)])

    _edit(finding, edit)


def _respell_target(_: Path, finding: Finding) -> None:
    path, spelled = finding.location.path, (finding.got or "").split(" in ")[0]
    path.rename(path.with_name(path.name.replace(spelled, finding.expected or "")))


def _name_device(_: Path, finding: Finding) -> None:
    path = finding.location.path
    path.rename(path.with_name(path.name.replace("device_name=,", "device_name=NVIDIA_H200,")))


# how hints begin, behind their code; each one is followed by one of these
HINTS: Mapping[str, Follow] = {
    r"^AB(111|112|113|204|205|208|221|404|515) (remove|restore) (the line|it)\b": _remove_line,
    r"^AB(103|107|108|204|206|219|220|313) restore the line from git, or remove it$": _remove_line,
    r"^AB221 give the rows behind it a file of their own$": _split_file,
    r"^AB(305|306|312) remove this line$": _remove_record,
    r"remove the bad lines; ": _remove_bad_lines,
    r"^AB\d+ remove the record(;|$)": _remove_record,
    r"^AB116 restore the record from git, or remove it$": _remove_record,
    r"^AB117 git lfs pull; ": _restore,
    r"^AB513 remove the record, or aoebank quarantine rm": _run_quarantine,
    r"^AB514 (mend the names, or )?aoebank quarantine rm": _run_quarantine,
    r"^AB510 remove the record, so that the one in ": _remove_record,
    r" remove (this one; readers|one: which|one of them$|the one of|the slower)": _remove_record,
    r"remove all but the last one, which readers use": _keep_last,
    r"convert the file to UTF-8, or restore it": _to_utf8,
    r"restore the file from git, or mend it in an editor": _restore,
    r"restore it, or remove it; ": _remove_file,
    r"merge the two versions again": _merge_again,
    r"^AB\d+ aoebank validate --fix --fix-class \w+ FILE; ": _run_fix,
    r"^AB\d+ tune (the workload |the model )?again": _tune_again,
    r"^AB\d+ add .*; ": _add_fields,
    r"^AB211 remove it$": _remove_field,
    r"^AB211 rename it$": _rename_field,
    r" write \S+, which the reader sees, or tune again": _write_value,
    r"make it the first line": _first_line,
    r"move the record to the file of its operator": _move_record,
    r" use the expected key\b": _use_key,
    r"store it under a key of its own": _own_key,
    r"sort the candidates by cost_time": _sort_candidates,
    r"rename it as expected; ": _rename_file,
    r"move it to the folder of its soc_version; ": _move_file,
    r"move it out of the bank": _remove_file,
    r"compare it with the bank file, then remove it": _remove_file,
    r"bring that file back, or remove this one; ": _bring_back,
    r"make them alike, if they should be; ": _make_alike,
    r"make the twin anew with CANN's tools": _make_binary_cache,
    r"remove the link; ": _unlink,
    r"^AB313 rename it to the M it was tuned for, or remove it$": _remove_member,
    r"^AB313 remove it, or name it as the look-up does$": _remove_field,
    r"^AB211 move it into attrs$": _move_into_attrs,
    r"^AB50[89] restore the workloads of the same commit beside it$": _bring_workloads,
    r"^AB316 add a class any$": lambda _, finding: _rewrite_json(
        finding, lambda bank: bank.update({"any": {}})
    ),
    r"^AB519 .*, or remove the file$": _remove_file,
    r"^AB519 .*, or remove the rows$": _remove_record,
    r"^AB520 rename the files as the reader spells the target$": _respell_target,
    r"^AB521 merge them into the name ": _remove_file,
    r"^AB315 add the column of the device ": _add_device,
    r"^AB315 add the validator of the device ": lambda _, finding: _edit(
        finding, lambda text: f"Validator,GCN_ARCH_NAME,gfx942\n{text}"
    ),
    r"^AB315 add the device_name they were measured on$": lambda _, finding: _edit(
        finding, lambda text: text.replace("{", '{"device_name": "A100", ', 1)
    ),
    r"^AB315 add the device_name .* to metadata$": lambda _, finding: _edit(
        finding, lambda text: text.replace('"device_name": ""', '"device_name": "A100"')
    ),
    r"^AB119 let the run end, or close it: ": lambda _, finding: _edit(
        finding, lambda text: text.removesuffix(",") + "}\n}"
    ),
    r"^AB224 rename compilation to compilation_time, ": lambda _, finding: _edit(
        finding, lambda text: text.replace('"compilation"', '"compilation_time"')
    ),
    r"^AB319 add a digest as kernel_source to the head": lambda _, finding: _edit(
        finding, lambda text: text.replace("{", '{"kernel_source": "0", ', 1)
    ),
    r"^AB\d+ measure the configuration again, or remove the record$": _remove_record,
    r"^AB411 write the constant of JSON: ": _write_constant,
    r"^AB518 rename it after the device ": _name_device,
    r"chmod u\+r": lambda _, finding: finding.location.path.chmod(0o600),
    r"name its directory with --built-in, or unset the variable": lambda *_: None,  # the caller
}
