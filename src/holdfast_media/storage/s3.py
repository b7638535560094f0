"""S3, and everything that speaks like it."""

from __future__ import annotations

import base64
import hashlib
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from io import BufferedReader
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeVar, cast

from holdfast_media.errors import MediaError

if find_spec("boto3") is None:
    raise MediaError("BAD_STORAGE", "S3 needs the package boto3, which is missing. Fix: pip install 'holdfast[s3]'")

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from holdfast_media.storage import s3_errors as trouble
from holdfast_media.storage.cache import Cache
from holdfast_media.storage.hashing import ANY, checked_sha256, content_type_of, sha256_of
from holdfast_media.storage.keys import checked_key, checked_prefix, is_key
from holdfast_media.storage.local import compare, not_found
from holdfast_media.storage.passing import Passing
from holdfast_media.storage.port import Stored
from holdfast_media.storage.reading import BUFFER, ResumingReader, replaced
from holdfast_media.storage.retrying import Patience, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast_media.storage.port import Attempt, BeforePublish, OnProgress, Stop

T = TypeVar("T")

MEBI: Final = 1024 * 1024
MOST_PARTS: Final = 9_000
"""S3 takes 10,000."""
MOST_RESTARTS: Final = 5
"""How often an upload is begun anew whose parts the server has forgotten."""
PROBE: Final = ".holdfast/conditional-writes"
"""What the server is tried with: no key begins with a dot."""
WRITE: Final = "STORAGE_UPLOAD_FAILED"
READ: Final = "STORAGE_READ_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How a bucket is spoken to."""

    endpoint: str | None = None
    """`None`: Amazon's."""
    region: str | None = None
    profile: str | None = None
    part_size: int = 16 * MEBI
    """Bytes of a part. Files up to this size are sent in one request."""
    conditional: Literal["auto", "yes", "no"] = "auto"
    """Whether the server keeps `If-None-Match: *`; `auto` tries it once, at Amazon's it is known."""
    checksum: Literal["auto", "sha256", "md5"] = "auto"
    """What every request is checked with on arrival; `auto`: SHA-256 at Amazon's, elsewhere Content-MD5, which all know."""
    path_style: bool | None = None
    """Whether the bucket is in the path, not in the host's name; by default wherever an endpoint is given."""
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    patience: Patience = field(default_factory=Patience)


class S3Storage:
    """A bucket, or what is below a prefix of it. May be used from several threads.

    Put-if-absent is atomic where the server keeps `If-None-Match`. Where it does not, two that publish one key within the same
    moment may both succeed, and the later one stands: harmless where a key says what its content is made of.
    The SHA-256 is in the object's metadata.
    """

    def __init__(
        self, bucket: str, prefix: str = "", settings: S3Settings | None = None, *, cache: Cache | None = None
    ) -> None:
        self.bucket = bucket
        self.prefix = f"{checked_key(prefix.strip('/'))}/" if prefix.strip("/") else ""
        self.settings = settings or S3Settings()
        self.cache = cache or Cache()
        self.client = _client(self.settings)
        self._stop: Stop | None = None
        self._shared: dict[str, bool] = {}
        """What has been learnt of the server; common to those that are bound."""

    def bind(self, attempt: Attempt, *, stop: Stop | None = None) -> S3Storage:  # noqa: ARG002  it knows of no leases
        """Return it with a reason to stop; S3 asks nobody for a lease."""
        bound = copy(self)
        bound._stop = stop  # noqa: SLF001  a copy of this one
        return bound

    # looking

    def head(self, key: str) -> Stored | None:
        """Return what is under a key."""
        checked_key(key)
        try:
            found = self._call("head_object", key, READ, **self._sums())
        except MediaError as error:
            if error.code == "NOT_FOUND":
                return None
            raise
        return self._stored(key, found)

    def open(self, key: str, start: int = 0) -> BinaryIO:
        """Return a reader, which asks again from where a connection broke, for as long as the ETag is the same."""
        found = self.head(key)
        if found is None:
            raise not_found(key)
        return self._reader(found, start)

    @contextmanager
    def lend(self, key: str, *, on_progress: OnProgress | None = None) -> Iterator[Path]:
        """Give a downloaded file."""
        found = self.head(key)
        if found is None:
            raise not_found(key)
        reader = lambda start: self._reader(found, start)  # noqa: E731  bound to what was found
        with self.cache.lend(found, self.url_for(key), reader, on_progress=on_progress, stop=self._stop) as path:
            yield path

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Return everything whose key begins with a prefix, by key."""
        checked_prefix(prefix)
        more: dict[str, Any] = {}
        while True:
            page = self._call("list_objects_v2", prefix, READ, Prefix=self.prefix + prefix, without_key=True, **more)
            for one in page.get("Contents", []):
                key = one["Key"].removeprefix(self.prefix)
                if is_key(key):
                    yield Stored(
                        key=key,
                        size=one["Size"],
                        sha256=None,
                        modified=one["LastModified"],
                        etag=one["ETag"].strip('"'),
                        content_type=content_type_of(key),
                    )
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def check(self, key: str, *, sha256: str | None = None) -> bool:
        """Download everything and compare the SHA-256."""
        found = self.head(key)
        if found is None or (wanted := sha256 or found.sha256) is None:
            return False
        with self._reader(found, 0) as content:
            return sha256_of(content, Passing(0, None, self._stop)) == wanted

    def free_bytes(self) -> int | None:
        """Return nothing: a bucket has no size."""
        return None

    def url_for(self, key: str) -> str:
        """Return where it is."""
        return f"s3://{self.bucket}/{self.prefix}{checked_key(key)}"

    # changing

    def put(
        self,
        key: str,
        path: Path,
        *,
        sha256: str | None = None,
        content_type: str | None = None,
        overwrite: bool = False,
        consume: bool = False,
        on_progress: OnProgress | None = None,
        before_publish: BeforePublish | None = None,
    ) -> Stored:
        """Publish a file: in one request, or in parts that are completed in one."""
        checked_key(key)
        if sha256 is not None:
            checked_sha256(sha256)
        found = None if overwrite else self.head(key)
        if found is None:
            size = path.stat().st_size
            digest = sha256_of(path, Passing(0, None, self._stop))
            compare(path.name, sha256, digest)
            upload = _Upload(
                self,
                key,
                path,
                size,
                about={"Metadata": {"sha256": digest}, "ContentType": content_type_of(key, content_type)},
                unless_there={} if overwrite or not self._is_conditional() else {"IfNoneMatch": "*"},
                passing=Passing(size, on_progress, self._stop),
                before_publish=before_publish,
            )
            created = upload.run()
            found = self._found(key, size if created else None, digest if created else None)
            found = replace(found, created=created)
        if consume:
            path.unlink(missing_ok=True)
        return found

    def delete(self, key: str) -> bool:
        """Remove an object."""
        if self.head(key) is None:
            return False
        self._call("delete_object", key, WRITE)
        return True

    def sweep(self, older_than: float = 86_400.0) -> int:
        """Abort uploads in parts that were begun so many seconds ago: S3 keeps, and charges, what they have sent."""
        newest = datetime.now(UTC) - timedelta(seconds=older_than)
        swept = 0
        marks: dict[str, Any] = {}
        while True:
            try:
                page = self._call("list_multipart_uploads", self.prefix, READ, Prefix=self.prefix, without_key=True, **marks)
            except ClientError:  # some say so where there is none
                return swept
            for one in page.get("Uploads", []):
                if one["Initiated"] < newest and one["Key"].startswith(self.prefix):
                    with suppress(MediaError):  # completed or aborted meanwhile
                        self._call(
                            "abort_multipart_upload", one["Key"].removeprefix(self.prefix), WRITE, UploadId=one["UploadId"]
                        )
                        swept += 1
            if not page.get("IsTruncated"):
                return swept
            marks = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def close(self) -> None:
        """Hang up."""
        self.client.close()

    # how

    def ask(self, name: str, key: str, code: str, *, without_key: bool = False, **arguments: Any) -> Any:
        """Make one request. Raises `Transient` for what may pass, and leaves `ClientError`s to who knows them by name."""
        where = {"Bucket": self.bucket} | ({} if without_key else {"Key": self.prefix + key})
        try:
            return getattr(self.client, name)(**where, **arguments)
        except (ClientError, BotoCoreError, HTTPError, OSError) as error:
            if isinstance(error, ClientError) and trouble.code_of(error) in trouble.TAKEN | trouble.UNKNOWN_UPLOAD:
                raise
            raise_for(error, f"s3://{self.bucket}", key, code)
            raise

    def _call(self, name: str, key: str, code: str, *, without_key: bool = False, **arguments: Any) -> Any:
        """Make a request until it is answered."""
        return self.repeat(lambda: self.ask(name, key, code, without_key=without_key, **arguments))

    def repeat(self, call: Callable[[], T]) -> T:
        """Call until there is an answer."""
        return self.settings.patience.repeat(call, self._stop)

    def _reader(self, found: Stored, start: int) -> BinaryIO:
        def fetch(at: int) -> _Body:
            where: dict[str, Any] = {"Range": f"bytes={at}-"} if at else {}
            try:
                answer = self.ask("get_object", found.key, READ, IfMatch=f'"{found.etag}"', **where)
            except ClientError as error:  # the precondition: it is another content by now
                raise replaced(found.key) from error
            if answer["ETag"].strip('"') != found.etag:  # some servers ignore the precondition
                answer["Body"].close()
                raise replaced(found.key)
            return _Body(answer["Body"], f"s3://{self.bucket}", found.key)

        raw = ResumingReader(fetch, found.size, start, patience=self.settings.patience, stop=self._stop)
        return cast("BinaryIO", BufferedReader(raw, BUFFER))

    def _stored(self, key: str, found: Any) -> Stored:
        # servers differ in how they spell the names of metadata
        metadata = {name.lower(): value for name, value in found.get("Metadata", {}).items()}
        sha256 = metadata.get("sha256") or _full_sha256(found)
        return Stored(
            key=key,
            size=found["ContentLength"],
            sha256=sha256,
            modified=found["LastModified"],
            etag=found["ETag"].strip('"'),
            content_type=found.get("ContentType", ANY),
        )

    def _found(self, key: str, size: int | None, sha256: str | None) -> Stored:
        """Return what is under a key that was just published, with its SHA-256 also where the server keeps no metadata."""
        found = self.head(key)
        if found is None:
            raise MediaError(WRITE, f"{key} was removed while it was published")
        if size is not None and found.size != size:
            raise MediaError(WRITE, f"{key} has {found.size:,} bytes there, and {size:,} here: replaced or cut")
        return found if found.sha256 is not None else replace(found, sha256=sha256)

    def _sums(self) -> dict[str, Any]:
        return {"ChecksumMode": "ENABLED"} if self.is_checked_by_sha256() else {}

    def is_checked_by_sha256(self) -> bool:
        """Tell whether requests carry a SHA-256, and not an MD5."""
        choice = self.settings.checksum
        return choice == "sha256" or (choice == "auto" and self.settings.endpoint is None)

    def _is_conditional(self) -> bool:
        """Tell whether the server keeps `If-None-Match: *`, tried once: some ignore it, and would overwrite."""
        choice = self.settings.conditional
        if choice != "auto" or self.settings.endpoint is None:
            return choice != "no"
        if "conditional" not in self._shared:
            # where it is kept, the second of two is refused; the first may be that of another process
            self._shared["conditional"] = any(self._is_refused() for _ in range(2))
        return self._shared["conditional"]

    def _is_refused(self) -> bool:
        try:
            self._call("put_object", PROBE, WRITE, Body=b"", IfNoneMatch="*")
        except ClientError:
            return True
        except MediaError as error:
            if error.code == "BAD_STORAGE":  # it does not know the header, and says so
                self._shared["conditional"] = False
                return False
            raise
        return False


class _Upload:
    """One file on its way to S3."""

    def __init__(
        self,
        storage: S3Storage,
        key: str,
        path: Path,
        size: int,
        *,
        about: dict[str, Any],
        unless_there: dict[str, str],
        passing: Passing,
        before_publish: BeforePublish | None,
    ) -> None:
        self._storage = storage
        self._key = key
        self._path = path
        self._size = size
        self._about = about
        self._unless_there = unless_there
        self._passing = passing
        self._before_publish = before_publish or (lambda: None)
        smallest = -(-size // MOST_PARTS)
        self._part_size = max(storage.settings.part_size, -(-smallest // MEBI) * MEBI)

    def run(self) -> bool:
        """Send it; tells whether it was published, or something was there already."""
        try:
            if self._size <= self._part_size:
                self._whole()
            else:
                self._in_parts()
        except ClientError as error:
            if trouble.code_of(error) in trouble.TAKEN:
                return False
            raise_for(error, f"s3://{self._storage.bucket}", self._key, WRITE)
            raise
        return True

    def _whole(self) -> None:
        data = self._path.read_bytes()
        self._publish("put_object", Body=data, **_sums_of(data, self._storage), **self._about, **self._unless_there)
        self._passing(len(data))

    def _in_parts(self) -> None:
        for number in range(MOST_RESTARTS):
            try:
                self._in_parts_once()
            except ClientError as error:
                # a server that was restarted may have forgotten the upload: what was sent has to be sent again
                if trouble.code_of(error) not in trouble.UNKNOWN_UPLOAD or number == MOST_RESTARTS - 1:
                    raise
                if self._is_there_already():
                    return
            else:
                return

    def _in_parts_once(self) -> None:
        self._passing.back_to(0)
        kind = {"ChecksumAlgorithm": "SHA256"} if self._storage.is_checked_by_sha256() else {}
        upload = self._repeat("create_multipart_upload", **self._about, **kind)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            with self._path.open("rb") as file:
                while data := file.read(self._part_size):
                    number = len(parts) + 1
                    sums = _sums_of(data, self._storage)
                    sent = self._repeat("upload_part", UploadId=upload, PartNumber=number, Body=data, **sums)
                    parts.append({"PartNumber": number, "ETag": sent["ETag"]} | _sums_in(sent))
                    self._passing(len(data))
            self._publish("complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts}, **self._unless_there)
        except BaseException:
            with suppress(Exception):  # it may be gone already; `sweep` finds what is not
                self._storage.ask("abort_multipart_upload", self._key, WRITE, UploadId=upload)
            raise

    def _is_there_already(self) -> bool:
        """Tell whether the completion happened whose answer was lost: the upload is gone then, too."""
        found = self._storage.head(self._key)
        return found is not None and found.sha256 == self._about["Metadata"]["sha256"]

    def _publish(self, name: str, **arguments: Any) -> None:
        """Make the request that publishes; what is to be asked before that is asked before every try."""

        def once() -> None:
            self._before_publish()
            self._storage.ask(name, self._key, WRITE, **arguments)

        self._storage.repeat(once)

    def _repeat(self, name: str, **arguments: Any) -> Any:
        return self._storage.repeat(lambda: self._storage.ask(name, self._key, WRITE, **arguments))


class _Body:
    """What S3 sends, with its errors told as ours."""

    def __init__(self, body: Any, where: str, key: str) -> None:
        self._body = body
        self._where = where
        self._key = key

    def read(self, size: int, /) -> bytes:
        try:
            return cast("bytes", self._body.read(size))
        except (BotoCoreError, HTTPError, OSError) as error:
            why = f"{self._where}: the connection broke while {self._key} was read: {type(error).__name__}"
            raise Transient(MediaError(READ, why)) from error

    def close(self) -> None:
        self._body.close()


def raise_for(error: Exception, where: str, key: str, code: str) -> None:
    """Raise what an error means; those of the HTTP client below are lost connections."""
    if isinstance(error, HTTPError):
        raise Transient(MediaError(code, f"{where} does not answer: {type(error).__name__}")) from error
    trouble.raise_for(error, where, key, code)


def _client(settings: S3Settings) -> Any:
    path_style = settings.endpoint is not None if settings.path_style is None else settings.path_style
    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        retries={"total_max_attempts": 1},  # we repeat, with a bound on the time that it takes and a reason to stop
        s3={"addressing_style": "path" if path_style else "auto"},
        request_checksum_calculation="when_required",  # servers that are not Amazon's refuse what they do not know
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        user_agent_extra="holdfast-media",
    )
    try:
        session = boto3.session.Session(profile_name=settings.profile, region_name=settings.region)
        region = session.region_name or "us-east-1"
        return session.client("s3", endpoint_url=settings.endpoint, region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise MediaError("BAD_STORAGE", f"S3 cannot be used: {error}") from error


def _sums_of(data: bytes, storage: S3Storage) -> dict[str, str]:
    if storage.is_checked_by_sha256():
        return {"ChecksumSHA256": base64.b64encode(hashlib.sha256(data).digest()).decode()}
    return {"ContentMD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()}


def _sums_in(answer: Any) -> dict[str, str]:
    return {"ChecksumSHA256": answer["ChecksumSHA256"]} if "ChecksumSHA256" in answer else {}


def _full_sha256(found: Any) -> str | None:
    """Return the SHA-256 that S3 itself has of a whole object; of one in parts it has that of the parts' checksums."""
    given = found.get("ChecksumSHA256", "")
    if not given or "-" in given or found.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return base64.b64decode(given).hex()
