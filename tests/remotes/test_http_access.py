"""One rule for tokens, wherever they come from."""

from pathlib import Path

import pytest

from hinge.remotes.address import MAX_TOKEN, check_url, read_token


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


@pytest.mark.parametrize(
    "url",
    ["edge:8080", "ftp://edge", "http://", "http://edge:port", "http://edge:0", "http://edge:99999", "http://[::1",
     "http://a b", "http://edge\n", "http://edge/?q", "http://edge/#f", "http://me:pw@edge", "http://edgé", ""],
)  # fmt: skip  # several to a line
def test_addresses_that_could_be_taken_for_something_else_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="OpenInference: url must") as caught:
        check_url("OpenInference", url)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("url", ["http://me:pw-1@edge", "ftp://me:pw-1@edge", "me:pw-1@edge", "http://me:a/pw-1@edge"])
def test_a_password_in_an_address_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"got '.*\*\*\*@edge'") as caught:
        check_url("OpenInference", url)
    assert "pw-1" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://edge", "https://edge:8443/models", "http://[::1]:8080"])
def test_an_address_loses_the_slash_at_its_end(url: str) -> None:
    assert check_url("OpenInference", url + "/") == url


def test_a_server_may_ask_for_a_longer_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 15)
    with pytest.raises(ValueError, match=r"token must be printable ASCII without spaces, at least 16 characters$"):
        read_token(tmp_path / "token", least=16)
    (tmp_path / "token").write_text("x" * 16)
    assert read_token(tmp_path / "token", least=16) == "x" * 16
