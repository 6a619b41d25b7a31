"""The bad-input corpus: 25 classes of 12 files, each with a canary in its cells and the exit code it must give.

Code 2 is for faults of form (refused before any budget is spent); code 0 for faults of single rows, which are
clamped, other or missing, and never refused.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CANARY = "Xanthippe7731"
HEADER = "id,age,weight,smokes,city,visit"
NAMES = HEADER.split(",")

SCHEMA = """\
rows = 1_000

[columns.id]
kind = "identifier"

[columns.age]
kind  = "integer"
lower = 0
upper = 120

[columns.weight]
kind     = "continuous"
lower    = 0
upper    = 300
nullable = true

[columns.smokes]
kind = "boolean"

[columns.city]
kind   = "categorical"
levels = ["Rome", "Oslo", "Lima", "elsewhere"]
other  = "elsewhere"

[columns.visit]
kind     = "date"
lower    = 2000-01-01
upper    = 2030-12-31
nullable = true
"""


@dataclass(frozen=True)
class BadFile:
    """One file of the corpus: its name, its bytes, and the exit code that it must give."""

    name: str
    content: bytes
    code: int

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        path.write_bytes(self.content)
        return path


def row(place: int = 0, **cells: str) -> str:
    """A line of the table with a canary for its identifier; cells replace the usual ones."""
    usual = {
        "id": f"{CANARY}{place}",
        "age": str(20 + place),
        "weight": "70.5",
        "smokes": "yes",
        "city": ("Rome", "Oslo", "Lima")[place % 3],
        "visit": "2020-01-31",
    }
    return ",".join((usual | cells).values())


def csv(*lines: str, header: str = HEADER, end: str = "\n") -> bytes:
    return end.join([header, *lines, ""]).encode()


def rows(num: int = 4) -> list[str]:
    return [row(place) for place in range(num)]


def table(num: int = 4, **columns: pa.Array) -> pa.Table:
    usual = {
        "id": pa.array([f"{CANARY}{place}" for place in range(num)], pa.string()),
        "age": pa.array([20 + place for place in range(num)], pa.int64()),
        "weight": pa.array([70.5] * num, pa.float64()),
        "smokes": pa.array([True] * num, pa.bool_()),
        "city": pa.array(["Rome"] * num, pa.string()),
        "visit": pa.array([date(2020, 1, 31)] * num, pa.date32()),
    }
    return pa.table(usual | columns)


def parquet(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink)
    return sink.getvalue()


def arrow(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, content.schema) as writer:
        writer.write_table(content)
    return sink.getvalue()


def stream(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content)
    return sink.getvalue()


def _files(code: int, *contents: bytes | tuple[str, bytes] | tuple[str, bytes, int]) -> list[BadFile]:
    """Files of one class; a content alone is a .csv, a pair names its suffix, a triple its own code."""
    found = []
    for place, content in enumerate(contents):
        parts = (".csv", content) if isinstance(content, bytes) else content
        own = parts[2] if len(parts) == 3 else code
        found.append(BadFile(f"file{place:02d}{parts[0]}", parts[1], own))
    return found


def empty_file() -> list[BadFile]:
    texts = [b"", b"\n", b"\r\n\r\n", b"   ", b" \n \n", b"\xef\xbb\xbf", b"\xff\xfe"]
    packed = [(".csv.gz", gzip.compress(b"", mtime=0)), (".csv.gz", b"")]
    return _files(2, *texts, *packed, (".parquet", b""), (".arrow", b""), (".tsv", b""))


def header_only() -> list[BadFile]:
    line = HEADER.encode()
    wide = HEADER.replace(",", "\t").encode()
    none = table(0)
    return _files(
        0,
        line,
        line + b"\n",
        line + b"\r\n",
        b"\xef\xbb\xbf" + line + b"\n",
        HEADER.replace(",", ";").encode() + b"\n",
        ('"' + HEADER.replace(",", '","') + '"\n').encode(),
        (HEADER + "\n").encode("utf-16"),
        (".tsv", wide + b"\n"),
        (".csv.gz", gzip.compress(line + b"\n", mtime=0)),
        (".parquet", parquet(none)),
        (".arrow", arrow(none)),
        (".feather", stream(none)),
    )


def one_row() -> list[BadFile]:
    one = csv(row())
    return _files(
        0,
        one,
        one.rstrip(b"\n"),
        csv(row(), end="\r\n"),
        b"\xef\xbb\xbf" + one,
        one.decode().encode("utf-16"),
        one.replace(b",", b";"),
        one.replace(b",", b"|"),
        (".tsv", one.replace(b",", b"\t")),
        (".csv.gz", gzip.compress(one, mtime=0)),
        (".parquet", parquet(table(1))),
        (".arrow", arrow(table(1))),
        (".ipc", stream(table(1))),
    )


def one_column() -> list[BadFile]:
    singles = [(name + "\n" + f"{CANARY}\n" * 3).encode() for name in NAMES]
    frames = [(".parquet", parquet(table().select([name]))) for name in NAMES]
    return _files(2, *singles, *frames)


def no_header() -> list[BadFile]:
    plain = "\n".join(rows()) + "\n"
    odd = [
        row(age=f"{CANARY}age"),
        row(city="city"),
        row(id="age", city=CANARY),
        row(age=""),
        row(smokes="20", age="20"),
        row(city=f'"{CANARY}, x"'),
        row(city=f'"{CANARY}\nx"'),
        row(id="age", city="visit", smokes=CANARY),
    ]
    variants = [(first + "\n" + plain).encode() for first in odd]
    tabs = plain.replace(",", "\t").encode()
    one = (row() + "\n").encode()
    return _files(
        2, plain.encode(), *variants, (".tsv", tabs), one, (".csv.gz", gzip.compress(plain.encode(), mtime=0))
    )


def duplicate_header() -> list[BadFile]:
    twice = [csv(*(f"{line},{CANARY}" for line in rows()), header=f"{HEADER},{name}") for name in NAMES]
    swapped = [csv(*rows(), header=HEADER.replace(name, "age")) for name in ("id", "weight", "city", "visit")]
    double = pa.Table.from_arrays([*table().columns, table().column(0)], names=[*NAMES, "id"])
    return _files(2, *twice, *swapped, (".parquet", parquet(double)), (".arrow", arrow(double)))


def empty_header() -> list[BadFile]:
    gone = [csv(*rows(), header=",".join("" if name == lost else name for name in NAMES)) for lost in NAMES]
    blank = [csv(*rows(), header=HEADER.replace(lost, "  ")) for lost in ("id", "weight")]
    last = csv(*(f"{line},{CANARY}" for line in rows()), header=f"{HEADER},")
    commas = csv(*rows(), header=",,,,,")
    unnamed = table().rename_columns(["", *NAMES[1:]])
    return _files(2, *gone, *blank, last, commas, (".parquet", parquet(unnamed)), (".arrow", arrow(unnamed)))


def too_many_columns() -> list[BadFile]:
    found: list[bytes | tuple[str, bytes]] = []
    for size in (10_001, 10_002, 20_000, 50_000, 100_000, 1_000_000):
        names = ",".join(f"c{place}" for place in range(size))
        found.append(f"{names}\n{CANARY}\n".encode())
    commas = "," * 10_000
    found += [f"{commas}\n{CANARY}\n".encode(), f"{HEADER}{commas}\n{row()}\n".encode()]
    names = "\t".join(f"c{place}" for place in range(10_001))
    found += [(".tsv", f"{names}\n{CANARY}\n".encode())]
    found += [(".csv.gz", gzip.compress(names.replace("\t", ",").encode() + b"\n", compresslevel=1))]
    wide = pa.table({f"c{place}": pa.array([CANARY]) for place in range(10_001)})
    return _files(2, *found, (".arrow", arrow(wide)), (".feather", stream(wide)))


def ragged_rows() -> list[BadFile]:
    short, long = row().rsplit(",", 1)[0], f"{row()},{CANARY}"
    shapes = [[short], [long], [*rows(), short], [*rows(), long], [short, *rows()], [long, *rows()]]
    shapes += [[short, long], [CANARY], [*rows(), CANARY], [f"{row()},,,,,"], [row().replace(",", ";")]]
    packed = gzip.compress(csv(*rows(), short))
    return _files(2, *(csv(*shape) for shape in shapes), (".csv.gz", packed))


def unclosed_quote() -> list[BadFile]:
    broken = row(city=f'"{CANARY}')
    starts = [[broken], [broken, *rows()], [*rows(), broken], [row(id=f'"{CANARY}'), *rows()]]
    starts += [[*rows(2), row(visit=f'"{CANARY}'), *rows(2)], [row(city=f'"{CANARY}"x'), row(city='"'), *rows()]]
    files = [csv(*lines) for lines in starts]
    files += [csv(*rows(), header='"' + HEADER), csv(*rows(), header=HEADER.replace("age", '"age'))]
    files += [csv(broken, *rows(), end="\r\n"), csv(*rows(), broken).rstrip(b"\n"), csv(row(age=f'"{CANARY}'), *rows())]
    return _files(2, *files, (".csv.gz", gzip.compress(csv(broken, *rows()))))


def nul_bytes() -> list[BadFile]:
    good = csv(*rows())
    places = [0, 1, 5, len(HEADER), len(HEADER) + 3, len(good) // 2, len(good) - 1, len(good)]
    files = [good[:place] + b"\0" + good[place:] for place in places]
    files += [good + b"\0" * 1_000, good.replace(b"\n", b"\0"), good.replace(b",", b"\0")]
    return _files(2, *files, (".tsv", good.replace(b",", b"\t") + b"\0"))


def bom_and_utf16() -> list[BadFile]:
    text = csv(*rows()).decode()
    good = [b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")]
    good += [b"\xff\xfe" + text.encode("utf-16-le"), b"\xfe\xff" + text.encode("utf-16-be")]
    accents = text.replace("Rome", "Göteborg")
    good += [accents.encode("utf-16"), b"\xef\xbb\xbf" + accents.encode()]
    bad = [text.encode("utf-16")[:-1], text.encode("utf-16-le"), text.encode("utf-16-be"), text.encode("utf-32")]
    bad += [b"\xff\xfe" + b"\x00\xd8" * 9, b"\xfe\xff" + text.encode("utf-16-le")]
    return _files(0, *good, *((".csv", content, 2) for content in bad))


def invalid_utf8() -> list[BadFile]:
    marks = [
        b"\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\x80",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
    ]
    files = [csv(*rows()).replace(b"Oslo", b"Oslo" + mark + CANARY.encode()) for mark in marks]
    files += [csv(*rows()).replace(b"age", b"ag\xe9"), csv(*rows()) + b"\xff", b"\xff" + csv(*rows())]
    return _files(2, *files, (".csv.gz", gzip.compress(files[0], mtime=0)))


def mixed_newlines() -> list[BadFile]:
    lines = [HEADER, *rows(5)]
    ends = [("\n", "\r\n"), ("\r\n", "\n"), ("\r", "\n"), ("\n", "\r"), ("\r", "\r\n"), ("\r\n", "\r"), ("\r", "\r")]
    files = ["".join(line + pair[place % 2] for place, line in enumerate(lines)).encode() for pair in ends]
    files += ["\n\n".join(lines).encode(), "\r\n\r\n".join(lines).encode(), ("\n\n" + "\n".join(lines)).encode()]
    files += [("\n".join(lines) + "\n\n\n").encode(), "\n\r".join(lines).encode()]
    return _files(0, *files)


def huge_cell() -> list[BadFile]:
    def big(size: int) -> str:
        return (CANARY * (size // len(CANARY) + 1))[:size]

    files = [csv(row(city=big(size))) for size in (2**16 + 1, 100_000, 10**6, 20 * 10**6)]
    files += [csv(row(city=f'"{big(size)}"')) for size in (2**16 + 1, 10**6, 20 * 10**6)]
    files += [csv(row(age="7" * 10**6)), csv(row(id=big(10**6)), *rows()), csv(row(visit=big(70_000)))]
    files += [csv(*rows(), header=f"{HEADER},{big(17 * 2**20)}"), csv(row(city=f'"{big(100 * 2**20)}"'))]
    return _files(2, *files)


def odd_numbers() -> list[BadFile]:
    words = ["inf", "-inf", "nan", "NaN", "Infinity", "1e400", "-1e400", "1e-400", "+Inf", "0x1F", "1_000", CANARY]
    return _files(0, *(csv(row(age=word, weight=word), *rows()) for word in words))


def overflow() -> list[BadFile]:
    sizes = [2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400]
    texts = [csv(row(age=str(size)), *rows()) for size in sizes]
    frames = [
        table(2, age=pa.array([2**64 - 1, 0], pa.uint64())),
        table(2, age=pa.array([2**63 - 1, -(2**63)], pa.int64())),
        table(2, age=pa.array([Decimal(10) ** 37, Decimal(1)], pa.decimal128(38, 0))),
        table(2, age=pa.array([1e308, -1e308], pa.float64())),
        table(2, age=pa.array([Decimal(10) ** 70, Decimal(1)], pa.decimal256(76, 0))),
    ]
    return _files(0, *texts, *((".parquet", parquet(frame)) for frame in frames))


def odd_dates() -> list[BadFile]:
    words = ["0000-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", "2021-02-30", "1066-10-14", "31/01/2020"]
    words += ["2020-01-31T25:00:00", f"{CANARY}", "20200131"]
    far = pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32())
    moments = pa.array([datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us"))
    frames = [(".arrow", arrow(table(2, visit=far))), (".parquet", parquet(table(2, visit=moments)))]
    return _files(0, *(csv(row(visit=word), *rows()) for word in words), *frames)


def all_missing() -> list[BadFile]:
    blanks = [csv(*(row(place, **{name: ""}) for place in range(3))) for name in NAMES]
    words = [csv(*(row(place, weight=word, visit=word) for place in range(3))) for word in ("NA", "null")]
    nulls = [table(2, **{name: pa.nulls(2)}) for name in ("age", "city")]
    typed = [table(2, weight=pa.nulls(2, pa.float64())), table(2, id=pa.nulls(2, pa.string()))]
    return _files(0, *blanks, *words, *((".arrow", arrow(frame)) for frame in (*nulls, *typed)))


def unknown_level() -> list[BadFile]:
    levels = [CANARY, "rome", "ROME", "Rome ", "", "NA", "=1+1", "'Rome", "Göteborg", "Rome\u200b", "0", '"Ro""me"']
    return _files(0, *(csv(row(city=f"{level}"), row(1, city=CANARY), *rows()) for level in levels))


def out_of_bounds() -> list[BadFile]:
    ages = ["-1", "121", "-987654321", "987654321", "120.5", "-0"]
    weights = ["-0.1", "300.1", "987654.321", "-987654.321", "1e300", "-1e300"]
    files = [csv(row(age=age), *rows()) for age in ages] + [csv(row(weight=weight), *rows()) for weight in weights]
    return _files(0, *files)


def missing_or_extra() -> list[BadFile]:
    frame = table()
    lost = [(".parquet", parquet(frame.drop_columns([name]))) for name in NAMES]
    extra = [csv(*(f"{line},{CANARY}" for line in rows()), header=f"{HEADER},{name}") for name in ("Age", "x", "id ")]
    other = csv(*rows(), header=HEADER.upper())
    more = frame.append_column("more", pa.array([CANARY] * 4))
    return _files(2, *lost, *extra, other, (".parquet", parquet(more)), (".arrow", arrow(more)))


def wrong_dtype() -> list[BadFile]:
    lists = pa.array([[CANARY]] * 4)
    structs = pa.array([{CANARY: 1}] * 4)
    clock, span = pa.array([time(1)] * 4), pa.array([timedelta(1)] * 4)
    days = table().column("visit")
    wrong = [
        table(age=lists),
        table(city=structs),
        table(age=pa.array([CANARY.encode()] * 4)),
        table(weight=days.combine_chunks()),
        table(visit=pa.array([1, 2, 3, 4])),
        table(visit=clock),
        table(age=span),
        table(smokes=days.combine_chunks()),
        table(id=lists),
    ]
    words = pa.array([CANARY] * 4)
    fine = [table(age=words), table(weight=words, smokes=words), table(visit=words)]
    return _files(
        2,
        *((".arrow", arrow(frame)) for frame in wrong),
        *((".parquet", parquet(frame), 0) for frame in fine),
    )


def truncated() -> list[BadFile]:
    packed, columns, batches = gzip.compress(csv(*rows(200))), parquet(table(200)), arrow(table(200))
    cuts = [(".csv.gz", packed[:size]) for size in (5, 20, len(packed) // 2, len(packed) - 1)]
    cuts += [(".parquet", columns[:size]) for size in (4, 100, len(columns) // 2, len(columns) - 1)]
    # An Arrow file without its end still begins like one.
    cuts += [(".arrow", batches[:size]) for size in (6, 100, len(batches) // 2, len(batches) - 1)]
    return _files(2, *cuts)


def bombs() -> list[BadFile]:
    good = csv(*rows())
    bomb = gzip.compress(HEADER.encode() + b"\n" + b"0" * 200 * 2**20, compresslevel=1, mtime=0)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as inner:
        inner.writestr("t.csv", good)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as inner_tar:
        inner_tar.add(__file__, "t.csv")
    return _files(
        2,
        (".csv.gz", bomb),
        (".csv.gz", gzip.compress(bomb, mtime=0)),
        (".csv.gz", gzip.compress(gzip.compress(good), mtime=0)),
        (".csv.gz", gzip.compress(b"\n" * 200 * 2**20, compresslevel=1, mtime=0)),
        (".csv", gzip.compress(good, mtime=0)),
        (".csv", archive.getvalue()),
        (".csv", bz2.compress(good)),
        (".csv", lzma.compress(good)),
        (".csv", parquet(table())),
        (".csv", tar.getvalue()),
        (".parquet", good),
        (".parquet", constant_parquet(20, 10**6)),
    )


def constant_parquet(groups: int, size: int) -> bytes:
    """A file of a few kilobytes that unpacks to a gigabyte: one value, over and over."""
    values = pa.nulls(size, pa.int64()).fill_null(7731)
    part = pa.table(dict.fromkeys(NAMES, values))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, part.schema, compression="zstd") as writer:
        for _ in range(groups):
            writer.write_table(part, row_group_size=size)
    return sink.getvalue()


CLASSES: dict[str, Callable[[], list[BadFile]]] = {
    make.__name__: make
    for make in (
        empty_file,
        header_only,
        one_row,
        one_column,
        no_header,
        duplicate_header,
        empty_header,
        too_many_columns,
        ragged_rows,
        unclosed_quote,
        nul_bytes,
        bom_and_utf16,
        invalid_utf8,
        mixed_newlines,
        huge_cell,
        odd_numbers,
        overflow,
        odd_dates,
        all_missing,
        unknown_level,
        out_of_bounds,
        missing_or_extra,
        wrong_dtype,
        truncated,
        bombs,
    )
}
