"""Damage and malice: what may be done to a file, to a name, and to a command line. All of it
follows from a seed."""

import copy
import hashlib
import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = (
    *(
        "",
        ".",
        "..",
        "../../outside/x",
        "OUTSIDE/x",
        "a/b",
        "-x",
        "--help",
        "con",
        "a b",
        "a\nb",
        "it's",
        "`x`",
        "$(x)",
    ),
    *(
        "$x^{$",
        "[/red]",
        "[bold]",
        "=1+1",
        "<script>",
        "%s{}",
        "\\input{x}",
        "é" * 300,
        "\x00",
        "\x1b[31m",
        "\ud800",
        "_x",
    ),
    *(
        "payload:Agent",
        "x.payload:Agent",
        ".:x",
        "payload:x-v0",
        "os:system",
        "dm_control/x-v0",
        "Ant-v5",
        "ALE/Pong-v5",
    ),
)
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        2**31,
        2**63,
        2**64,
        10**30,
        -(10**30),
        10**4000,
        0.5,
        -0.0,
        1e-300,
        1e300,
    ),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        [],
        {},
        [[]],
        [None],
        {"a": {}},
        [1, "x"],
        "x",
        "1",
        "1e5",
        "2026-01-01",
    ),
    *NAMES,
)


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All that a document has, from the whole to the single numbers."""
    yield path
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


def change_value(content: Any, chance: random.Random, outside: Path) -> Any:
    """With one value, somewhere, of another kind, or gone, or there twice."""
    content = copy.deepcopy(content)
    # Shallow places first: the deep ones are many and alike.
    all_places = sorted(places(content), key=len)
    path = all_places[int(len(all_places) * chance.random() ** 2)]
    value = chance.choice(VALUES)
    value = (
        value.replace("OUTSIDE", str(outside)) if isinstance(value, str) else copy.deepcopy(value)
    )
    if not path:
        return value
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    match chance.randrange(6):
        case 0:
            del holder[path[-1]]
        case 1 if isinstance(holder, dict):
            holder[value if isinstance(value, str) else str(value)[:50]] = holder.pop(path[-1])
        case 1:
            holder.append(holder[path[-1]])
        case _:
            holder[path[-1]] = value
    return content


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    lines, place = data.split(b"\n"), chance.randrange(max(1, len(data)))
    line = chance.randrange(len(lines))
    match chance.randrange(9):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        case 2:
            return data[:place] + b"\xff\xfe\x80" + data[place:]
        case 3:
            return b""
        case 4:
            return b"[" * 100_000
        case 5:
            return b"\n".join(lines[:line] + lines[line + 1 :])
        case 6:
            return b"\n".join([*lines[:line], lines[line], *lines[line:]])
        case 7:
            return b"\n".join([*lines[:line], b"garbled", *lines[line + 1 :]])
        case _:
            return data.replace(b"\n", b"\r\n", 1) + b"\x00"


def replace_file(path: Path, chance: random.Random, outside: Path) -> str:
    """By something that is no file."""
    kind = chance.choice(("directory", "pipe", "dangling link", "link outside", "nothing"))
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "link outside":
        path.symlink_to(outside / "notes.md")
    return kind


def mutate(path: Path, form: str, chance: random.Random, outside: Path) -> str:
    """Change a file by chance; says how."""
    way = chance.random()
    if way < 0.1:
        return replace_file(path, chance, outside)
    data = path.read_bytes()
    if way < 0.35:
        path.write_bytes(damage_bytes(data, chance))
        how = "bytes"
    else:
        path.write_bytes(VALUE_CHANGES[form](data, chance, outside))
        how = "values"
    if chance.random() < 0.7:
        _sign(path)
        how += ", signed"
    return how


def is_damage(before: bytes, path: Path, form: str, how: str) -> bool:
    """What can be told for certain: in JSON, values of another kind. Other values may be what was
    trained, and a run that is gone is a missing one, as the page of a report tells; a log that is
    gone is not. Whoever signs a run anew makes another run."""
    if "signed" in how and (path.name == "run.json" or path.parent.parent.name == "archive"):
        return False
    if form not in ("json", "jsonl") or not path.is_file():
        return form == "jsonl" or (form == "json" and os.path.lexists(path))
    try:
        split = bytes.splitlines if form == "jsonl" else lambda data: [data]
        old, new = (
            [json.loads(part) for part in split(data)] for data in (before, path.read_bytes())
        )
    except (ValueError, RecursionError):
        return True
    return len(old) != len(new) or any(map(_other_kind, old, new))


def _other_kind(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return any(_other_kind(old[key], new[key]) for key in old.keys() & new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return any(map(_other_kind, old, new))
    kinds = [float if type(value) is int else type(value) for value in (old, new)]
    return kinds[0] is not kinds[1] and None not in (old, new)


def _change_json(data: bytes, chance: random.Random, outside: Path) -> bytes:
    return json.dumps(change_value(json.loads(data), chance, outside), indent=1).encode()


def _change_jsonl(data: bytes, chance: random.Random, outside: Path) -> bytes:
    lines = data.splitlines()
    place = chance.randrange(len(lines))
    lines[place] = json.dumps(change_value(json.loads(lines[place]), chance, outside)).encode()
    return b"\n".join(lines) + b"\n"


def _change_toml(data: bytes, chance: random.Random, outside: Path) -> bytes:
    text = data.decode()
    found = list(re.finditer(r"= *(.+)$", text, re.M))
    target = chance.choice(found)
    values = (
        "[]",
        "{}",
        "''",
        '"x"',
        "1979-05-27",
        "07:32:00",
        "[1979-05-27]",
        "inf",
        "nan",
        "-1",
        "0",
        "true",
        "[[]]",
    )
    values += (
        "99999999999999999999999",
        "1e400",
        "[1, 'x']",
        "{a = {b = 1}}",
        "[1, 2",
        "'a' 'b'",
        "1_000_000",
        '"0:"',
    )
    names = tuple(json.dumps(n.replace("OUTSIDE", str(outside))) for n in NAMES)
    changed = text[: target.start(1)] + chance.choice(values + names) + text[target.end(1) :]
    return changed.encode("utf-8", "surrogateescape")


def _change_safetensors(data: bytes, chance: random.Random, outside: Path) -> bytes:
    """The header, in which an agent is described, the type of a tensor, or its numbers."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    label = header.get("__metadata__", {}).get("pac4sac agent")
    way = chance.random()
    if way < 0.2:
        header = change_value(header, chance, outside)
    elif way < 0.35:
        _change_dtype(header, chance)
    elif way < 0.5:
        body = _change_numbers(header, body, chance)
    elif label is None:
        header = change_value(header, chance, outside)
    else:
        about = change_value(json.loads(label), chance, outside)
        header["__metadata__"]["pac4sac agent"] = json.dumps(about, sort_keys=True)
    new = json.dumps(header).encode()
    new += b" " * (-len(new) % 8)
    return len(new).to_bytes(8, "little") + new + body


SIZES = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4}
SIZES |= {"F16": 2, "BF16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def _change_dtype(header: dict[str, Any], chance: random.Random) -> None:
    """Another type, of the same size or with a shape of the same number of bytes."""
    entry = chance.choice([e for name, e in header.items() if name != "__metadata__"])
    before, after = SIZES[entry["dtype"]], chance.choice(sorted(SIZES))
    entry["dtype"] = after
    if entry["shape"] and chance.random() < 0.8:
        entry["shape"][-1] = entry["shape"][-1] * before // SIZES[after]


def _change_numbers(header: dict[str, Any], body: bytes, chance: random.Random) -> bytes:
    """NaN, infinity or another number in a tensor."""
    entry = chance.choice([e for name, e in header.items() if name != "__metadata__"])
    begin, end = entry["data_offsets"]
    width = SIZES[entry["dtype"]]
    if end - begin < width:
        return body
    place = begin + width * chance.randrange((end - begin) // width)
    number = chance.choice((float("nan"), float("inf"), -1e30, 0.0))
    form = {8: "<d", 4: "<f", 2: "<e"}.get(width)
    bits = struct.pack(form, number if width > 2 else 1.0) if form else b"\xff"
    return body[:place] + bits + body[place + width :]


def _sign(path: Path) -> None:
    """Make checksums fit, as whoever means harm would."""
    manifest = path.parent / "manifest.json"
    if manifest.is_file() and path != manifest:
        about = json.loads(manifest.read_bytes())
        if path.name in about["files"]:
            about["files"][path.name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            manifest.write_text(json.dumps(about))
    if path.name in ("agent.safetensors", "best.safetensors"):
        _sign_agent(path)
    if path.name == "run.json" or path.parent.parent.name == "archive":
        _sign_run(path)


def _sign_run(path: Path) -> None:
    """A run.json, or the lines of an archive."""
    from pac4sac.runs.reading import sealed

    try:
        if path.suffix == ".json":
            path.write_text(json.dumps(sealed(json.loads(path.read_bytes()))))
        else:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            path.write_text("".join(json.dumps(sealed(line)) + "\n" for line in lines))
    except Exception:  # it is beyond signing, and stays as it is
        return


def _sign_agent(path: Path) -> None:
    import safetensors.torch

    from pac4sac.training.agent_file import FORMAT, checksum

    try:
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        label = json.loads(header["__metadata__"][FORMAT])
        tensors = safetensors.torch.load(data)
        label["sha256"] = checksum(label["about"], tensors)
        header["__metadata__"][FORMAT] = json.dumps(label, sort_keys=True)
        new = json.dumps(header).encode()
        new += b" " * (-len(new) % 8)
        path.write_bytes(len(new).to_bytes(8, "little") + new + data[8 + size :])
    except Exception:  # it is beyond signing, and stays as it is
        return


VALUE_CHANGES: dict[str, Callable[[bytes, random.Random, Path], bytes]] = {
    "json": _change_json,
    "jsonl": _change_jsonl,
    "toml": _change_toml,
    "safetensors": _change_safetensors,
}

TINY = (
    "--device cpu --backend eager --workers 0 --threads 1 --steps 20 --evaluation-episodes 0 "
    "--out new"
)
LINES = (
    f"train Pendulum-v1 --algo sac --seeds 0:2 {TINY} --set width=4 depth=1 batch=4 warmup=10 "
    "--set-task horizon=10",
    f"train Pendulum-v1 --algo pac4sac {TINY} --preset default --max-minutes 1 --set width=4 "
    "depth=1 batch=4 shots=2",
    f"train --config train.toml {TINY} --evaluate-every 10 --bias-every 10 --coverage-every "
    "10 --log-every 5",
    f"train Pendulum-v1 --algo sac --from agent.safetensors {TINY} --set width=4 depth=1 "
    "batch=4 --no-stop-when-solved",
    "resume x --steps 70 --max-minutes 1",
    "evaluate x --episodes 1 --seed 0 --no-best",
    "certify x --episodes 4 --delta 0.05 --seed 0 --reward-range=-17,0 --return-range=-170,0 "
    "--out out",
    "watch x/runs/sac-seed0 --video v.gif --seed 0",
    "export x/runs/sac-seed0 --onnx a.onnx",
    "report x study archive --out out",
    "study plan tiny.toml --out new --seeds 0:2 --tasks Pendulum-v1 --memory 100 --device cpu "
    "--no-trial",
    "study status tiny.toml --out study",
    "study collect x study --into new --unfinished --keep-first",
    "study run tiny.toml --out new --seeds 5 --parallel 0 --max-minutes 1 --memory 1 --engine "
    "local",
    "compare Pendulum-v1 --algos sac,ddpg --seeds 0 --parallel 0 --steps 20 --baseline sac "
    "--preset default --out new",
    "list settings --algo sac",
    "list tasks",
    "--version",
)
WORDS = (
    *(
        "",
        "0",
        "-1",
        "1",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1.5",
        "0x10",
        "99999999999999999999",
        "9" * 5000,
        "1" * 400,
    ),
    *(
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "9223372036854775808",
        "٣",
        "²",
        "1_000",
    ),
    *(
        "x",
        "study",
        "tiny.toml",
        "agent.safetensors",
        "x/runs",
        "/dev/null",
        "pipe",
        "auto",
        "cuda",
        "cuda:99",
        "meta",
    ),
    *(
        "true",
        "0:5",
        "5:0",
        "0:99999999999",
        "0,0",
        "Pendulum-v1",
        "CartPole-v1",
        "width=4",
        "=",
        "a=",
        "=a",
        "lr=nan",
    ),
    *(
        "depth=1000000",
        "width=1000000000",
        "batch=999999999999",
        "shots=10000000000",
        "capacity=1",
        "lr=1e38",
        "tau=2",
    ),
    *(
        "updates_per_step=1000000000000",
        "horizon=0",
        "horizon=null",
        "r_limit=NaN",
        "env_kwargs=[]",
        'env_kwargs={"q":1}',
    ),
    *(
        "steps=1e3",
        "name=../x",
        "critics=9999999999",
        "target_shots=99999999",
        "Hopper-v5",
        "--",
        "--set",
        "--algo",
        "-h",
    ),
    *NAMES,
)


def change_line(words: list[str], chance: random.Random, outside: Path) -> list[str]:
    """With a word or two replaced, left out, or put in."""
    for _ in range(chance.choice((1, 1, 1, 2))):
        place, word = (
            chance.randrange(len(words)),
            chance.choice(WORDS).replace("OUTSIDE", str(outside)),
        )
        match chance.randrange(8):
            case 0:
                del words[place]
            case 1:
                words.insert(place, word)
            case 2 if "=" in words[place]:
                words[place] = words[place].split("=")[0] + "=" + word
            case _:
                values = [k for k, w in enumerate(words) if k and not w.startswith("-")] or [place]
                words[chance.choice(values)] = word
        words = words or ["train"]
    return [word.replace("\x00", "") for word in words]  # which no shell can give


SMALL = {"width": 4, "depth": 1, "batch": 4, "warmup": 10}
HOW = {"device": "cpu", "backend": "eager", "workers": 0, "threads": 1, "steps": 20}
HOW |= {"evaluation_episodes": 0, "settings": SMALL, "out": "new"}
RUN = "x/runs/sac-seed0"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("train", {"task": "Pendulum-v1", "algo": "sac", "seeds": [0], "preset": "default", **HOW}),
    ("train", {"task": "Pendulum-v1", "algo": "sac", "max_minutes": 1, "callbacks": [], **HOW}),
    ("train", {"task": "Pendulum-v1", "algo": "sac", "start_from": RUN, "log_every": 5, **HOW}),
    ("resume", {"folder": "x", "steps": 70, "max_minutes": 1, "keep_stale": False, "retries": 3}),
    ("resume", {"folder": "x", "trust": [], "callbacks": []}),
    ("load", {"path": RUN, "trust": []}),
    ("results", {"path": "x", "kind": "episodes"}),
    ("results", {"path": "x", "kind": "bias"}),
    ("evaluate", {"agent": RUN, "episodes": 1, "seed": 0, "shooting": None, "trust": []}),
    ("evaluate", {"agent": RUN, "task": "Pendulum-v1", "episodes": 1, "step_seconds": 60}),
    ("certify", {"path": RUN, "episodes": 4, "delta": 0.05, "seed": 0, "out": "out"}),
    ("certify", {"path": RUN, "episodes": 4, "reward_range": [-17, 0], "return_range": [-170, 0]}),
    ("reference", {"task": "cartpole-swingup"}),
    ("Task", {"name": "a", "env_id": "Pendulum-v1", "horizon": 10, "r_limit": 1.0, "steps": 20}),
    ("Task", {"name": "a", "env_id": "Pendulum-v1", "env_kwargs": {"g": 9.8}, "steps": 20}),
    ("compare", {"task": "Pendulum-v1", "algos": "sac", "seeds": 1, "baseline": "sac", **HOW}),
    ("compare", {"task": "Pendulum-v1", "algos": ["sac"], "parallel": 1, "watcher": None, **HOW}),
)


def change_call(seed: int, chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A function and its arguments, one or two of another kind or another value."""
    name, usual = CALLS[seed % len(CALLS)]
    given = copy.deepcopy(usual)
    for _ in range(chance.choice((1, 1, 2))):
        key = chance.choice(sorted(given))
        value = copy.deepcopy(chance.choice(VALUES))
        if isinstance(value, str):
            value = value.replace("OUTSIDE", "../outside")
        if isinstance(given[key], dict) and given[key] and chance.random() < 0.6:
            given[key][chance.choice(sorted(given[key]))] = value
        else:
            given[key] = value
    return name, {"args": [], "kwargs": given}


def copy_material(material: Path, to: Path) -> None:
    shutil.copytree(material, to, symlinks=True)
    os.mkfifo(to / "work" / "pipe")
