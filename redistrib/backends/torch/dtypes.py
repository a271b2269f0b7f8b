"""Element types of PyTorch, by the names that plans record, and tensors as flat words for copies and messages."""

from __future__ import annotations

import torch

from redistrib.errors import DtypeError

# PyTorch's element types that NumPy or ml_dtypes have too, by their common names; others have no plan.
NAMES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_OF_NAME: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NAMES if hasattr(torch, name)}
_OF_NAME["complex32"] = torch.complex32
_NAME_OF = {dtype: name for name, dtype in _OF_NAME.items()}

# Types that gloo and NCCL both send, and those in whose place others of so many bytes per element go. Copies preserve
# the bits, of floats too; gloo sends no integers of 2 bytes.
_SENT = {torch.int8, torch.uint8, torch.float16, torch.int32, torch.float32, torch.int64, torch.float64}
_WORDS = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's element type of that name.

    Raises:
        DtypeError: if PyTorch has none.
    """
    try:
        return _OF_NAME[name]
    except KeyError:
        raise DtypeError(name) from None


def can_plan(dtype: torch.dtype) -> bool:
    """Whether plans know an element type."""
    return dtype in _NAME_OF


def name_of(dtype: torch.dtype) -> str:
    """The name by which plans record an element type.

    Raises:
        DtypeError: if plans have none.
    """
    try:
        return _NAME_OF[dtype]
    except KeyError:
        raise DtypeError(str(dtype)) from None


def word_of(dtype: torch.dtype) -> torch.dtype:
    """The element type in which elements of a type are copied and sent."""
    return dtype if dtype in _SENT else _WORDS[dtype.itemsize]


def word_bytes(itemsize: int) -> int:
    """Bytes of such a word."""
    return min(8, itemsize)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as a flat tensor of words over the same memory."""
    flat = tensor.reshape(-1)
    word = word_of(flat.dtype)
    if flat.dtype == word:
        return flat
    if not flat.numel():  # a stride of 0, as of an empty NumPy array, allows no view
        return flat.new_empty(0, dtype=word)
    return flat.view(word)


def source_words(x: torch.Tensor | None, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The words of a tensor of a type, copied only if its elements do not lie in memory as they are; none of None."""
    if x is None:
        return torch.empty(0, dtype=word_of(dtype), device=device)
    if x.requires_grad:
        x = x.detach()
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    return words(x.contiguous())
