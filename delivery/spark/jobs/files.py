"""Messages as rows of files: Parquet, JSON lines and CSV, with the columns of a read.

Parquet has bytes. In JSON and CSV a body, a key or a header's value is base64 in a column whose name ends so
(`value_base64`), or text under the plain name: whoever reads the files sees by the names which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final, Literal, get_args

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, functions as F  # noqa: N812 - as Spark's own texts write it
from pyspark.sql.types import StringType, StructField, StructType

from delivery.errors import InvalidRequest
from delivery.model import near_names

Form = Literal["parquet", "json", "csv"]
FORMS: Final[tuple[str, ...]] = get_args(Form)
Bodies = Literal["base64", "text"]
BODIES: Final[tuple[str, ...]] = get_args(Bodies)

COLUMNS: Final = "key,value,topic,partition,offset,timestamp,headers,queue"
"""Of a read, that are kept."""
BROKEN: Final = "_broken"
"""Holds a line that could not be read."""

_BASE64: Final = "_base64"
_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_WRITING: Final[Mapping[str, Mapping[str, str]]] = {
    "parquet": {"compression": "zstd"},
    "json": {"timestampFormat": _TIME, "timeZone": "UTC"},
    "csv": {
        "header": "true", "escape": '"', "timestampFormat": _TIME, "timeZone": "UTC",
        "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false",
    },
}  # fmt: skip
# What an empty cell without quotation marks becomes at first, then null: an empty text would be one, too, without this.
_CSV: Final = {"header": "true", "escape": '"', "multiLine": "true", "mode": "PERMISSIVE", "nullValue": "\0null"}
_HEADERS: Final = "array<struct<key: string, value: string, value_base64: string>>"
_KEPT_HEADERS: Final = "array<struct<key: string, value: binary>>"
_TEXTS: Final = {
    "value": "string", "value_base64": "string", "key": "string", "key_base64": "string", "topic": "string",
    "partition": "int", "offset": "bigint", "timestamp": "string", "queue": "string",
}  # fmt: skip
"""Columns of JSON and CSV, beside headers."""


class Files(msgspec.Struct, frozen=True):
    """A folder to write, or files to read."""

    path: str
    """Any that Spark can write or read."""
    form: Form = "parquet"
    bodies: Bodies = "base64"
    """Of JSON and CSV that is written: what stands for bytes. As text all of them must be UTF-8."""

    def checked(self) -> Files:
        """Itself. Raises InvalidRequest for a form or bodies that there are not."""
        if self.form not in FORMS:
            raise InvalidRequest(f"there is no format {self.form!r}; there are {', '.join(FORMS)}")
        if self.bodies not in BODIES:
            raise InvalidRequest(f"bodies are base64 or text, not {self.bodies!r}")
        return self


def write_files(messages: DataFrame, files: Files) -> None:
    """Write rows of a read into a folder that is not there yet."""
    form = files.form
    rows = messages if form == "parquet" else _as_text(messages, files.bodies, flat=form == "csv")
    rows.write.format(form).options(**_WRITING[form]).mode("errorifexists").save(files.path)


def read_files(session: SparkSession, files: Files) -> DataFrame:
    """The rows of files, with columns that can be written to a queue, and BROKEN where lines can be unreadable.

    Raises InvalidRequest for columns that are none of a message's; other fields of JSON count for nothing.
    """
    path = files.path
    if files.form == "parquet":
        return _known(session.read.parquet(path), COLUMNS.split(","))
    if files.form == "json":
        fields = ", ".join(f"{name} {kind}" for name, kind in _TEXTS.items())
        schema = f"{fields}, headers {_HEADERS}, {BROKEN} string"
        lines = session.read.schema(schema).option("columnNameOfCorruptRecord", BROKEN).json(path)
        return _from_text(lines, F.col("headers"))
    names = session.read.options(**_CSV).csv(path).columns
    texts = StructType([StructField(name, StringType()) for name in [*names, BROKEN]])
    rows = session.read.schema(texts).options(**_CSV, columnNameOfCorruptRecord=BROKEN).csv(path)
    known = _known(rows, [*_TEXTS, "headers", BROKEN])
    headers = F.from_json("headers", _HEADERS) if "headers" in names else None
    return _from_text(known, headers)


def _known(rows: DataFrame, names: list[str]) -> DataFrame:
    for name in rows.columns:
        if name not in names:
            near = "".join(f"; did you mean {one!r}?" for one in near_names(name, names)[:1])
            raise InvalidRequest(f"the files have a column {name!r}, which is none of a message's{near}")
    return rows


def _as_text(messages: DataFrame, bodies: Bodies, *, flat: bool) -> DataFrame:
    """The rows without bytes; `flat` without arrays, too. A text that is none is an error of Spark's."""
    said: Callable[[Column], Column]
    if bodies == "text":
        ending, said = "", lambda column: F.validate_utf8(column.cast("string"))
    else:
        ending, said = _BASE64, F.base64
    headers = F.transform(
        "headers", lambda one: F.struct(one["key"].alias("key"), said(one["value"]).alias("value" + ending))
    )
    return messages.select(
        "queue", "partition", "offset", "timestamp", "topic",
        said(F.col("key")).alias("key" + ending), said(F.col("value")).alias("value" + ending),
        (F.to_json(headers) if flat else headers).alias("headers"),
    )  # fmt: skip


def _from_text(rows: DataFrame, headers: Column | None) -> DataFrame:
    """The rows with bytes and numbers; one with a cell that cannot be decoded is broken, too."""
    columns, bad = [], []
    for name in ("key", "value"):
        plain, coded = (F.col(one) if one in rows.columns else F.lit(None) for one in (name, name + _BASE64))
        columns.append(_bytes(plain, coded).alias(name))
        bad.append(_no_base64(coded))
    for name in ("partition", "offset"):
        if name in rows.columns:
            number = F.col(name).try_cast(_TEXTS[name])
            columns.append(number.alias(name))
            bad.append(F.col(name).isNotNull() & number.isNull())
    columns += [F.col(name) for name in ("topic", "queue") if name in rows.columns]
    if headers is not None:
        decoded = F.transform(
            headers,
            lambda one: F.struct(one["key"].alias("key"), _bytes(one["value"], one["value_base64"]).alias("value")),
        )
        columns.append(decoded.cast(_KEPT_HEADERS).alias("headers"))
        bad.append(F.col("headers").isNotNull() & headers.isNull())
        bad.append(F.coalesce(F.exists(headers, lambda one: _no_base64(one["value_base64"])), F.lit(False)))
    known = [F.col(name) for name in rows.columns if name != BROKEN]
    whole = F.when(reduce(Column.__or__, bad), F.to_json(F.struct(*known)))
    return rows.select(*columns, F.coalesce(BROKEN, whole).alias(BROKEN))


def _bytes(plain: Column, coded: Column) -> Column:
    return F.coalesce(_decoded(coded), plain.cast("string").cast("binary"))


def _no_base64(coded: Column) -> Column:
    return coded.isNotNull() & _decoded(coded).isNull()


def _decoded(coded: Column) -> Column:
    return F.try_to_binary(coded.cast("string"), F.lit("base64"))
