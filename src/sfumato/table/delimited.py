"""Delimited text (CSV and its dialects) to an Arrow table of text columns.

Every column is read as text: types come from the schema, never from the rows. An empty cell without quotes is
null; words such as NA are left to the encoding, which knows whether the schema has them as levels.
Messages name the file and the rule only: the parser's own messages quote cells, so none of them passes.
"""

import collections
import csv
import io
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sfumato.errors import TableError

MAX_COLUMNS = 10_000
MAX_CELL_BYTES = 64 * 2**10
MAX_LINE_BYTES = 16 * 2**20
MAX_BYTES = 4 * 2**30
MAX_RATIO = 100

_DELIMITERS = (",", ";", "\t", "|")
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1")


def parse_delimited(data: bytes, name: str) -> pa.Table:
    """Parse the bytes of a CSV file whose name serves in messages only.

    >>> parse_delimited(b"a;b\\n1;x\\n2;\\n", "t.csv").to_pydict()
    {'a': ['1', '2'], 'b': ['x', None]}
    """
    if data.startswith(_ARCHIVES):
        raise TableError(f"file {name!r}: not text but an archive or a binary table; unpack it or rename it")
    text = _as_utf8(data, name).lstrip(b"\r\n")
    if not text.strip():
        raise TableError(f"file {name!r}: empty; expected a header line with the names of the columns")
    if b"\x00" in text:
        raise TableError(f"file {name!r}: holds NUL bytes; export it again as UTF-8 text")
    header, delimiter = _read_header(text, name)
    if not text.endswith((b"\n", b"\r")):
        text += b"\n"
    table = _parse(text, header, delimiter, name)
    _check_cells(table, text, delimiter, name)
    return table


def gunzip(data: bytes, name: str) -> bytes:
    """Unpack gzip with a cap on the bytes and on the ratio, so that a bomb stops early."""
    parts: list[bytes] = []
    total, place = 0, 0
    limit = min(MAX_BYTES, MAX_RATIO * len(data) + 2**20)
    while data[place : place + 1].strip(b"\x00"):  # a zero after a member is padding
        member = zlib.decompressobj(wbits=31)
        while place < len(data) and not member.eof:
            piece = data[place : place + 2**16]
            try:
                part = member.decompress(piece)
            except zlib.error:
                raise TableError(f"file {name!r}: damaged gzip; copy or export it again") from None
            place += len(piece) - len(member.unused_data)
            total += len(part)
            if total > limit:
                raise TableError(f"file {name!r}: unpacks to {MAX_RATIO} times its size; unpack it first")
            parts.append(part)
        if not member.eof:
            raise TableError(f"file {name!r}: truncated gzip; copy or export it again")
    return b"".join(parts)


def _as_utf8(data: bytes, name: str) -> bytes:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16").encode("utf-8")
        except UnicodeError:
            raise TableError(f"file {name!r}: not valid UTF-16 text; save it as UTF-8") from None
    return data.removeprefix(b"\xef\xbb\xbf")


def _read_header(text: bytes, name: str) -> tuple[list[str], str]:
    head = text[:MAX_LINE_BYTES]
    try:
        # A cut in the middle of a letter is not a fault of the file.
        start = head.decode("utf-8", "strict" if len(text) <= MAX_LINE_BYTES else "ignore")
    except UnicodeDecodeError:
        raise TableError(f"file {name!r}: not valid UTF-8 text; save it as UTF-8") from None
    delimiter = _sniff(start[: 2**20])  # enough of any header, and letter by letter is slow
    try:
        header = next(csv.reader(io.StringIO(start, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        raise TableError(f"file {name!r}: the header line cannot be read; check its quotes") from None
    if len(header) > MAX_COLUMNS:
        raise TableError(f"file {name!r}: more than {MAX_COLUMNS:,} columns")
    check_header([column if column.strip() else "" for column in header], f"file {name!r}")
    return header, delimiter


def check_header(header: list[str], where: str) -> None:
    """Refuse empty and repeated names; by place, since the first line of a file without header is a row."""
    first: dict[str, int] = {}
    for place, column in enumerate(header, start=1):
        if not column:
            raise TableError(f"{where}: column {place} has no name in the header; give every column a name")
        if column in first:
            raise TableError(f"{where}: columns {first[column]} and {place} have the same name in the header")
        first[column] = place


def _sniff(start: str) -> str:
    """Choose the delimiter that is there most often in the header line, outside quotes."""
    counts = dict.fromkeys(_DELIMITERS, 0)
    quoted = False
    for letter in start:
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "\r\n":
            break
        elif not quoted and letter in counts:
            counts[letter] += 1
    return max(counts, key=counts.__getitem__)


def _parse(text: bytes, header: list[str], delimiter: str, name: str) -> pa.Table:
    # One thread: a reader thread that is still alive when a short command ends aborts the process.
    read = pyarrow.csv.ReadOptions(
        column_names=header,
        skip_rows_after_names=1,
        block_size=min(MAX_LINE_BYTES, max(len(text), 64)),
        use_threads=False,
    )
    # In a file of one column an empty line is a missing value; in others it is a slip.
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1)
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(text), read_options=read, parse_options=parse, convert_options=convert
        )
    except pa.ArrowInvalid as error:
        raise TableError(f"file {name!r}: {_reason(str(error))}") from None


def _reason(message: str) -> str:
    """Say in our words what the parser found, as its own words hold cells."""
    if "UTF8" in message:
        return "not valid UTF-8 text; save it as UTF-8"
    if "straddl" in message:
        return "a line is too long, or a quote is not closed"
    if "Expected" in message and "columns" in message:
        return "a line has more or fewer cells than the header; check delimiters and quotes"
    return "cannot be parsed as delimited text; check delimiters and quotes"


def _check_cells(table: pa.Table, text: bytes, delimiter: str, name: str) -> None:
    broken = text.count(b'"') % 2 == 1
    for column in table.columns:
        if (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_CELL_BYTES:
            raise TableError(f"file {name!r}: a cell is longer than 64 KiB; is a quote not closed?")
        broken = broken or bool(pc.any(pc.match_substring_regex(column, r"[\r\n]")).as_py())
    # A quote left open swallows lines, and Arrow does not mind: where that may be, a strict parser looks.
    if broken and not _strictly_quoted(text, delimiter):
        raise TableError(f"file {name!r}: a quote is not closed, or text follows a closing quote")


def _strictly_quoted(text: bytes, delimiter: str) -> bool:
    lines = io.StringIO(text.decode("utf-8"), newline="")
    try:
        collections.deque(csv.reader(lines, delimiter=delimiter, strict=True), maxlen=0)
    except csv.Error:
        return False
    return True
