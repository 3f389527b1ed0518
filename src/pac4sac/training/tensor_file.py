"""Files of tensors in the safetensors format: agents and checkpoints.

The header is checked against the size of the file before any tensor is read. Tensors are written in
pieces and read as views of the file, so both need little additional memory.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.base import files
from pac4sac.base.files import open_regular, parse_json

Array = NDArray[Any]
DTYPES: dict[str, np.dtype[Any]] = {
    **{
        "F64": np.dtype("<f8"),
        "F32": np.dtype("<f4"),
        "F16": np.dtype("<f2"),
        "BOOL": np.dtype("?"),
    },
    **{"I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "U64": np.dtype("<u8")},
    "U8": np.dtype("u1"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LARGEST_HEADER = 2**24  # bytes
PIECE = 2**23  # bytes copied at a time


class TensorFile(NamedTuple):
    """Hold the tensors of a file, as views of it, and its metadata."""

    arrays: dict[str, Array]
    texts: dict[str, str]


class Entry(NamedTuple):
    """Hold the position of a tensor in a file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def write(path: Path, tensors: Mapping[str, Tensor | Array]) -> tuple[str, int]:
    """Write and sync a file of tensors; return its SHA-256 and its size."""
    order = sorted(tensors, key=lambda name: (-_dtype(tensors[name]).itemsize, name))
    head = _header({name: tensors[name] for name in order})
    checksum, size = hashlib.sha256(head), len(head)
    with files.durable_file(path) as file:
        file.write(head)
        for name in order:
            for piece in _pieces(tensors[name]):
                file.write(piece)
                checksum.update(piece)
                size += piece.nbytes
    return checksum.hexdigest(), size


def _header(tensors: Mapping[str, Tensor | Array]) -> bytes:
    """Return the beginning of a file: the length of its header, and the header."""
    entries, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + math.prod(tensor.shape) * _dtype(tensor).itemsize
        entries[name] = {
            "dtype": NAMES[_dtype(tensor)],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _dtype(tensor: Tensor | Array) -> np.dtype[Any]:
    if isinstance(tensor, Tensor):
        return np.dtype(str(tensor.dtype).removeprefix("torch."))
    return tensor.dtype


def _pieces(tensor: Tensor | Array) -> Iterator[memoryview]:
    """Yield the content of a tensor in parts, each copied to the host on demand."""
    size = math.prod(tensor.shape) * _dtype(tensor).itemsize
    if not size:
        return
    if size <= PIECE or not tensor.ndim:
        host = tensor.cpu().numpy() if isinstance(tensor, Tensor) else tensor
        yield np.ascontiguousarray(host).reshape(-1).view(np.uint8).data
        return
    rows = max(1, PIECE * len(tensor) // size)
    for first in range(0, len(tensor), rows):
        part = tensor[first : first + rows]
        yield from _pieces(part[0] if rows == 1 else part)


def read(path: Path) -> TensorFile:
    """Return the content of a file as views; only the header is read.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is not valid; the message has the reason.
    """
    entries, texts, start = _read_header(path)
    data = np.memmap(path, np.uint8, "c") if entries else np.empty(0, np.uint8)
    arrays = {}
    for name, dtype, shape, begin, end in entries:
        array = data[start + begin : start + end]
        if array.ctypes.data % dtype.itemsize:  # not aligned
            array = array.copy()
        arrays[name] = array.view(np.ndarray).view(dtype).reshape(shape)
    return TensorFile(arrays, texts)


def as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _read_header(path: Path) -> tuple[list[Entry], dict[str, str], int]:
    """Return the position of each tensor, the metadata, and the offset of the data."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise ValueError("it has no header")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    texts = header.pop("__metadata__", None) or {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("its header has metadata that are not strings")
    entries = [_entry(name, about) for name, about in header.items()]
    start = 8 + length
    _check_places(entries, size - start)
    return entries, texts, start


def _check_places(entries: Sequence[Entry], size: int) -> None:
    """Refuse tensors that do not follow each other and fill the data of a file.

    Raises:
        ValueError: If tensors overlap, leave gaps, or end before or after the data.
    """
    end = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise ValueError("its tensors overlap or leave gaps")
        end = entry.end
    if end != size:
        raise ValueError("its data are too short or too long for its tensors")


def _entry(name: str, about: Any) -> Entry:
    """Return an entry of a header, after a check of its size.

    Raises:
        ValueError: If the entry is damaged or has an unsupported type.
    """
    try:
        dtype, shape, (begin, end) = about["dtype"], about["shape"], about["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"its header does not describe {name}") from None
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has the type {dtype}, but only {', '.join(DTYPES)} are supported")
    if not all(type(number) is int and 0 <= number < 2**60 for number in numbers):
        raise ValueError(f"{name} has an invalid shape")
    if end - begin != math.prod(shape) * DTYPES[dtype].itemsize or len(shape) > 16:
        raise ValueError(f"the shape of {name} does not match its size in bytes")
    return Entry(name, DTYPES[dtype], tuple(shape), begin, end)
