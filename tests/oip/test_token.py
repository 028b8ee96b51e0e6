"""One rule for tokens, wherever they come from."""

from pathlib import Path

import pytest

from hinge.oip.json import MAX_TOKEN, read_token


def test_a_file_goes_before_the_environment_and_ends_of_lines_are_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_token(None, "TOKEN_OF_NOBODY") is None
    monkeypatch.setenv("TOKEN_OF_NOBODY", " secret\n")
    assert read_token(None, "TOKEN_OF_NOBODY") == "secret"
    (tmp_path / "token").write_text("other\r\n")
    assert read_token(tmp_path / "token", "TOKEN_OF_NOBODY") == "other"


BAD = [b"", b"\n", b"two words", b"two\nlines", "ümlaut".encode(), b"\xff", b"x" * (MAX_TOKEN + 1)]


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_what_cannot_stand_in_a_header_is_refused_and_not_shown(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ValueError, match=r"token: token must be printable ASCII without spaces$"):
        read_token(tmp_path / "token")
