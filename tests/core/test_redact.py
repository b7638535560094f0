"""Secrets are taken out of errors, innocent text is left alone, and no text takes long."""

from __future__ import annotations

import time

import pytest

from holdfast.core.redact import MASK, redact

SECRET = "hUnter2-s3cret"

HIDDEN = "DE12 3456"


@pytest.mark.parametrize(
    "text",
    [
        f"iban: {HIDDEN}",
        f"iban={HIDDEN}, amount=4",
        f'{{"iban": "{HIDDEN}", "amount": 4}}',
        f"{{'iban': '{HIDDEN}', 'amount': 4}}",
        f'{{"iban": {{"country": 1, "number": "{HIDDEN}"}}}}',
        f"paid from iban: {HIDDEN}\nand no more",
    ],
)
def test_what_a_hidden_field_says_is_taken_out_of_a_text(text: str) -> None:
    shown = redact(text, ("iban", "tax_id"))
    assert MASK in shown
    assert "3456" not in shown
    assert redact(shown, ("iban", "tax_id")) == shown
    assert redact(text) == text
    assert ("amount" in shown) == ("amount" in text)


def test_a_name_that_only_ends_like_a_hidden_field_hides_nothing() -> None:
    assert redact("noiban: 4, ibans: 5 and an iban", ("iban",)) == "noiban: 4, ibans: 5 and an iban"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"PASSWORD = {SECRET}",
        f"password: {SECRET}",
        f"password='{SECRET}'",
        f'{{"password": "{SECRET}", "user": "ann"}}',
        f'{{"password": "a\\"{SECRET}"}}',
        f"{{'db_password': '{SECRET}'}}",
        f"PGPASSWORD={SECRET} psql",
        f"passwd={SECRET}",
        f"pwd={SECRET}",
        f"passphrase={SECRET}",
        f"SECRET_KEY={SECRET}",
        f"client_secret: {SECRET}",
        f"aws_secret_access_key={SECRET}",
        f"api_key={SECRET}",
        f"apikey={SECRET}",
        f"X-Api-Key: {SECRET}",
        f"token={SECRET}",
        f"https://host/path?access_token={SECRET}&page=2",
        f"credentials={SECRET}",
        f"postgresql://ann:{SECRET}@db.example/shop",
        f"postgresql://ann:at@{SECRET}@db.example/shop",
        f"redis://:{SECRET}@cache:6379/0",
        f"Authorization: Bearer {SECRET}",
        f"Authorization: Basic {SECRET}",
        f"{{'Authorization': 'Bearer {SECRET}'}}",
        f"bearer {SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET.replace('-', '')}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_is_taken_out(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert "s3cret" not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "key",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "sk-proj-" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "hf_a1b2c3d4e5f6_" + "aB3_-xY9" * 5 + "abc",
        "hf_a1b2c3d4e5f6_" + "aB3_-xY9",  # cut off, as long texts are
        "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "whsec_+/+/MDEyMzQ1Njc4OWFiY2RlZjAx",
    ],
)
def test_the_well_known_shapes_of_keys_are_taken_out_wherever_they_stand(key: str) -> None:
    assert redact(f"cannot use {key} here") == f"cannot use {MASK} here"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a basic understanding of things",
        "the bearer certificate has expired",
        "max_tokens=4096 exceeds the limit",
        "tokenizer=fast and secretary=Ann",
        "KeyError: 'password'",
        "the password is wrong",
        "https://ann@example.com/path and http://localhost:8080/users",
        "mail to ann@example.com at 10:30",
        "File 'app.py', line 3, in send",
        "primary_key=17",
        "task-1 sk-short",
        "hf_short and hf_transfer_enabled, self_hf_a1b2c3d4e5f6_x",
        "whsec_ is how they begin",
        "/var/lib/jobs.db: no such file",
    ],
)
def test_innocent_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password={}",
        "password='{}'",
        '{{"token": "{}"}}',
        "postgresql://ann:{}@db.example/shop",
        "Authorization: Bearer {}",
        "Authorization: Basic {}",
        "bearer {}",
        "sk-{}",
        "hf_a1b2c3d4e5f6_{}",
        "whsec_{}",
        "eyJ{0}.{0}.{0}",
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    ],
)
def test_nothing_is_left_of_a_long_secret(text: str) -> None:
    shown = redact(text.format("a1B2c3D4" * 1_000))
    assert "a1B2" not in shown
    assert MASK in shown


def test_what_stands_around_a_secret_is_kept() -> None:
    shown = redact(f"login of ann at postgresql://ann:{SECRET}@db.example:5432/shop failed (token={SECRET}, try=3)")
    assert shown == f"login of ann at postgresql://ann:{MASK}@db.example:5432/shop failed (token={MASK}, try=3)"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/ann/shop/app.py", "~/shop/app.py"),
        ("/Users/ann/shop/app.py", "~/shop/app.py"),
        (r"C:\Users\ann\app.py", r"~\app.py"),
        ("/home/ann/shop/.venv/lib/python3.11/site-packages/httpx/_client.py", "…/site-packages/httpx/_client.py"),
        ("/usr/lib/python3.11/asyncio/tasks.py", "…/lib/python3.11/asyncio/tasks.py"),
    ],
)
def test_paths_are_cut_to_what_a_reader_needs(path: str, shown: str) -> None:
    assert redact(f'File "{path}", line 3') == f'File "{shown}", line 3'


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(f"password={SECRET} postgresql://a:{SECRET}@h /home/ann/x Authorization: Bearer {SECRET}")
    assert redact(once) == once


@pytest.mark.parametrize(
    "part",
    [
        "a-",
        "a.",
        "a_",
        "/",
        "a://:",
        "a://",
        "token ",
        "token=",
        "password",
        "bearer ",
        " ",
        "=",
        "'",
        "\\",
        "/a",
        "eyJa.",
        "eyJ-",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "api-",
        "authorization: ",
        "a://a:a",
        "@",
        "/home/",
        "sk-",
        "hf_a1b2c3d4e5f6_",
        "whsec_",
        "\n",
        "password='\\",
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(part: str) -> None:
    def took(size: int) -> float:
        text = (part * size)[:size]
        best = float("inf")
        for _ in range(2):
            begin = time.process_time()
            redact(text)
            best = min(best, time.process_time() - begin)
        return best

    # eight times the text: eight times the time, where a quadratic pattern takes sixty-four times
    assert took(24_000) < 24 * max(took(3_000), 0.002)
