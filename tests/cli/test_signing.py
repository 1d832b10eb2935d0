"""Signed results: a changed, missing or added file is found; a redacted report verifies."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from typer.testing import CliRunner

from leakgauge.cli import app

SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
data = "fashion_mnist_sample"
records = 6
[defenses]
none = "identity()"
[adversaries]
linear = "analytic()"
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    (folder / "spec.toml").write_text(SPEC)
    assert run("key", "new", folder / "key").exit_code == 0
    ended = run("audit", folder / "spec.toml", "--quiet", "--out", folder / "run", "--redact", "--sign", folder / "key")
    assert ended.exit_code == 0, ended.output
    return folder


def test_a_flipped_byte_in_any_signed_file_is_found(home: Path) -> None:
    folder, key = home / "run", home / "key.pub"
    assert (home / "key").stat().st_mode & 0o077 == 0
    names = list(json.loads((folder / "signature.json").read_text())["files"])
    assert {"result.json", "report.html", "report.md", "junit.xml", "spec.toml"} <= set(names)
    assert run("verify", folder, "--key", key).exit_code == 0
    for name in (*names, "signature.json"):
        path = folder / name
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 2):
            path.write_bytes(content[:place] + bytes((content[place] ^ 1,)) + content[place + 1 :])
            ended = run("verify", folder, "--key", key)
            assert ended.exit_code == 2, (name, place)
            assert name in ended.output
        path.unlink()
        assert run("verify", folder, "--key", key).exit_code == 2
        path.write_bytes(content)
    assert run("verify", folder, "--key", key).exit_code == 0


def test_a_redacted_report_in_a_folder_of_its_own_verifies(home: Path, tmp_path: Path) -> None:
    words = ("report", home / "run", "--redact", "--format", "html", "--out", tmp_path, "--sign", home / "key")
    assert run(*words).exit_code == 0
    ended = run("verify", tmp_path, "--key", home / "key.pub")
    assert ended.output == "signed and unchanged: report.html\n"
    (tmp_path / "junit.xml").write_text("<testsuites/>")
    assert "junit.xml is not signed" in run("verify", tmp_path, "--key", home / "key.pub").output


def test_another_key_does_not_verify(home: Path, tmp_path: Path) -> None:
    assert run("key", "new", tmp_path / "other").exit_code == 0
    assert "not made with this key" in run("verify", home / "run", "--key", tmp_path / "other.pub").output
    assert "already exists" in run("key", "new", tmp_path / "other").output


def test_a_list_that_leaves_its_folder_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "signature.json").write_text(json.dumps({"files": {"../key": "0"}, "signature": "00"}))
    assert "is not a signature" in run("verify", tmp_path, "--key", home / "key.pub").output


def test_keys_that_cannot_be_used_are_named_before_the_audit(home: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    other = X25519PrivateKey.generate()
    plain = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8)
    (tmp_path / "kind").write_bytes(other.private_bytes(*plain, forms.NoEncryption()))
    locked = Ed25519PrivateKey.generate().private_bytes(*plain, forms.BestAvailableEncryption(b"word"))
    (tmp_path / "locked").write_bytes(locked)
    for name, what in (("text", "is not a private"), ("kind", "is not a private"), ("locked", "is encrypted")):
        ended = run("audit", home / "spec.toml", "--out", tmp_path / "run", "--sign", tmp_path / name)
        assert ended.exit_code == 2
        assert what in ended.output
    assert "no such file" in run("report", home / "run", "--sign", tmp_path / "none").output
    assert not (tmp_path / "run").exists()


def test_without_the_extra_one_sentence_says_what_to_install(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)  # as where it is not installed
    ended = run("key", "new", tmp_path / "key")
    assert ended.exit_code == 2
    assert "leakgauge[sign]" in ended.output
