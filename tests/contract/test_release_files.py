"""Release files: damaged, forged and hostile ones are refused with one kind of error, before anything is allocated.

Goal: every single-byte flip of a small release, and more than 200 hostile files: no silent difference, no other
exception, no code run, no large allocation.
"""

import ast
import errno
import io
import json
import os
import pickle
import random
import time
import tracemalloc
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sfumato
from sfumato.errors import ReleaseError
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness
from sfumato.privacy.certificate import certify
from sfumato.privacy.events import GaussianSum, PoissonGaussian
from sfumato.release import Release, load, store
from sfumato.schema import Boolean, Categorical, Continuous, Schema

SOURCE = Path(sfumato.__file__).parent
MOST_BYTES = 16 * 2**20
"""What refusing a small hostile file may allocate."""
MOST_SECONDS = 5.0


def small_release():
    # Names out of alphabetical order: the order of columns is part of a schema.
    schema = Schema(
        columns={
            "z": Continuous(lower=0, upper=10),
            "smokes": Boolean(nullable=True),
            "colour": Categorical(levels=("red", "green", "blue")),
        },
        rows=1_000,
    )
    key = jax.random.wrap_key_data(jnp.array([1, 2], jnp.uint32))
    model = MaskedAutoregressiveFlow.start(MafShape(4, 2, 12, 1, True), key=key)
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6), Adjacency())
    ledger.charge(GaussianSum(noise_multiplier=20.0), "location and scale")
    ledger.charge(PoissonGaussian(rate=0.1, noise_multiplier=4.0, steps=10), "gradients")
    certificate = certify(ledger, Randomness.from_os(), {"method": "maf", "settings": {}, "declared_rows": 1_000})
    return Release(model=model, schema=schema, certificate=certificate, kind="pandas")


@pytest.fixture(scope="module")
def release():
    return small_release()


@pytest.fixture(scope="module")
def content(release):
    content = store.to_bytes(release)
    assert 4_000 < len(content) < 10_000
    return content


def parts_of(content):
    """The texts and tensors of a good file, to forge from."""
    texts = store._read_texts(content)
    return dict(texts), dict(store.safetensors.numpy.load(content))


def header_of(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def framed(header, data=b""):
    """A safetensors file around a header, given as an object or as raw bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def same(left, right):
    leaves = zip(jax.tree.leaves(left.model), jax.tree.leaves(right.model), strict=True)
    return (
        left.schema == right.schema
        and list(left.schema.columns) == list(right.schema.columns)
        and left.certificate == right.certificate
        and left.kind == right.kind
        and left.model.describe() == right.model.describe()
        and all(np.array_equal(a, b) for a, b in leaves)
    )


# --- what is good comes back ---------------------------------------------------------------------------------


def test_a_release_comes_back_as_it_was_and_is_written_as_the_same_bytes(release, content):
    again = store.from_bytes(content)
    assert same(again, release)
    assert store.to_bytes(again) == content


def test_the_order_of_the_columns_survives(release, content):
    assert list(store.from_bytes(content).schema.columns) == ["z", "smokes", "colour"]


def test_anyone_can_read_the_certificate_without_us(content):
    header, _ = header_of(content)
    certificate = json.loads(header["__metadata__"]["certificate"])
    assert certificate["status"] == "for release"
    assert 0 < certificate["epsilon"] <= 1


# --- every byte ----------------------------------------------------------------------------------------------


def refused_or_equal(changed, release):
    """Whether a changed file is refused by ReleaseError (True) or loads as an equal release (False)."""
    try:
        loaded = store.from_bytes(changed)
    except ReleaseError:
        return True
    assert same(loaded, release), "a changed file was read as another release"
    return False


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_byte_flipped_is_refused(release, content, mask):
    step = 1 if mask == 0x01 else 3
    refused = 0
    places = range(0, len(content), step)
    for place in places:
        changed = bytearray(content)
        changed[place] ^= mask
        refused += refused_or_equal(bytes(changed), release)
    assert refused == len(places), "the digest covers every byte, so every flip is seen"


def test_the_flip_test_would_see_a_store_without_digest(release, content, monkeypatch):
    """The mutant: a store that does not compare. Some flip in the numbers must then load as another release."""
    monkeypatch.setattr(store, "_pack", lambda texts, tensors: Same())
    monkeypatch.setattr(store, "to_bytes", lambda release: Same())
    changed = bytearray(content)
    changed[-5] ^= 0x01
    with pytest.raises(AssertionError, match="another release"):
        refused_or_equal(bytes(changed), release)


class Same:
    """Equal to everything."""

    __hash__ = None

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


# --- hostile files -------------------------------------------------------------------------------------------


def truncations(content):
    lengths = sorted({0, 1, 7, 8, 9, 15, 16, *range(32, len(content), 97), len(content) - 1, len(content) - 4})
    return {f"cut to {length} bytes": content[:length] for length in lengths}


def lying_lengths(content):
    lies = [0, 1, 7, 9, 100, 2**16, 2**24, 2**24 + 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]
    return {f"header length {lie}": lie.to_bytes(8, "little") + content[8:] for lie in lies} | {
        "more bytes behind": content + b"\0" * 8,
        "one byte behind": content + b"\0",
        "a second file behind": content + content,
        "spaces in the header": _with_header_text(content, lambda text: text + b" " * 8),
        "no padding": _with_header_text(content, lambda text: text.rstrip(b" ") + b"\n"),
    }


def _with_header_text(content, change):
    length = int.from_bytes(content[:8], "little")
    text = change(content[8 : 8 + length])
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def wrong_tensors(content):
    found = {}

    def add(name, **fields):
        header, data = header_of(content)
        tensor = sorted(name for name in header if name != "__metadata__")[0]
        header[tensor] = {**header[tensor], **fields}
        found[name] = framed(header, data)

    for shape in ([2**40], [2**31], [2**31 - 1], [2**20, 2**20, 2**20], [0], [-1], [-4, -4], [2**63], [2**64]):
        add(f"shape {shape}", shape=shape)
    for shape in (None, "4", {"0": 4}, 4, [4.0], ["4"], [True], [None], [[4]], [1e300], [float("nan")]):
        add(f"shape {shape!r}", shape=shape)
    add("many dimensions", shape=[1] * 1_000)
    add("dimensions that multiply for hours", shape=[2**31 - 1] * 400_000)
    for dtype in ("F64", "F16", "BF16", "I64", "U8", "BOOL", "O", "object", "", None, 5, ["F32"], "F8_E4M3", "f32"):
        add(f"dtype {dtype!r}", dtype=dtype)
    for offsets in ([0, 2**40], [2**40, 2**41], [4, 0], [-8, 0], [0], [], None, "0", [0.0, 4.0], [0, 2**64], [1, 5]):
        add(f"offsets {offsets!r}", data_offsets=offsets)
    for entry in (None, [], "x", 3, {}, {"dtype": "F32"}):
        header, data = header_of(content)
        header["extra"] = entry
        found[f"tensor entry {entry!r}"] = framed(header, data)
    header, data = header_of(content)
    header |= {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(2_000)}
    found["two thousand empty tensors"] = framed(header, data)
    return found


def wrong_headers(content):
    header, data = header_of(content)
    metadata = header["__metadata__"]
    found = {}
    for name in metadata:
        for value in (None, 5, [], {}, "", "null", metadata[name] + " "):
            changed = {**metadata, name: value}
            found[f"{name} = {str(value)[-20:]!r}"] = framed({**header, "__metadata__": changed}, data)
        without = {key: value for key, value in metadata.items() if key != name}
        found[f"without {name}"] = framed({**header, "__metadata__": without}, data)
    for version in ("0", "2", "1.0", "999", "latest"):
        found[f"version {version}"] = framed({**header, "__metadata__": {**metadata, "version": version}}, data)
    found["forged certificate, old digest"] = content.replace(b'epsilon\\":0.', b'epsilon\\":0.0', 1)
    found["another key in the metadata"] = framed({**header, "__metadata__": {**metadata, "x": "y"}}, data)
    text = json.dumps(header, separators=(",", ":"))
    twice = text[:-1] + ',"__metadata__":' + json.dumps(metadata) + "}"
    found["metadata twice"] = framed(twice.encode(), data)
    tensor = sorted(name for name in header if name != "__metadata__")[0]
    found["tensor twice"] = framed((text[:-1] + f',"{tensor}":' + json.dumps(header[tensor]) + "}").encode(), data)
    for name, raw in {
        "not JSON": b"hello, world",
        "JSON null": b"null",
        "JSON list": b"[]",
        "JSON number": b"7",
        "JSON text": b'"x"',
        "empty object": b"{}",
        "only NaN": b"NaN",
        "deep list": b"[" * 200_000,
        "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "deep metadata": b'{"__metadata__":' * 50_000 + b"{}" + b"}" * 50_000,
        "long number": b'{"a":' + b"9" * 100_000 + b"}",
        "not UTF-8": b'{"\xff\xfe":1}',
        "UTF-16": '{"a":1}'.encode("utf-16"),
        "NUL bytes": b"\0" * 64,
        "lone surrogate": b'{"\\ud800":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
    }.items():
        found[f"header: {name}"] = framed(raw, data)
    return found


def other_formats():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../outside.txt", "x")
        file.writestr("model.json", "{}")
    array = io.BytesIO()
    np.save(array, np.array([Bomb()], dtype=object), allow_pickle=True)
    noise = random.Random(5)
    found = {f"{size} random bytes": noise.randbytes(size) for size in (1, 8, 9, 64, 1_000, 50_000)}
    return found | {
        "empty file": b"",
        "pickle": pickle.dumps(Bomb()),
        "pickle behind a header length": framed(pickle.dumps(Bomb())),
        "zip": archive.getvalue(),
        "npy with objects": array.getvalue(),
        "gzip magic": b"\x1f\x8b\x08\0\0\0\0\0" + b"\0" * 50,
        "HDF5 magic": b"\x89HDF\r\n\x1a\n" + b"\0" * 50,
        "text": b"age,sex\n3,f\n",
    }


class Bomb:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return (_went_off, ())


GONE_OFF = []


def _went_off():
    GONE_OFF.append(1)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


# What a forger can write in a certificate without breaking its form. Re-deriving epsilon is what shows it.
PLAUSIBLE = {
    "budget_epsilon": (5.0,),
    "epsilon": (5.0,),
    "epsilon_rdp": (5.0,),
    "epsilon_clt_approximation_may_understate": (5.0,),
    "unit": ("x",),
    "max_rows": (5, 10**400),
    "charges": ([],),
    "assumptions": ([],),
    **dict.fromkeys(("accountant", "randomness", "public", "versions"), ({}, {"a": 1})),
}


def forged_with_a_right_digest(content):
    """Files whose digest is right, since anyone can compute it: what they claim must be checked all the same."""
    found = {}

    def add(name, tensors=None, **changes):
        texts, good = parts_of(content)
        texts |= {key: value if isinstance(value, str) else compact(value) for key, value in changes.items()}
        found[name] = store._pack(texts, good if tensors is None else tensors)

    texts, good = parts_of(content)
    model, schema, certificate = (json.loads(texts[name]) for name in ("model", "schema", "certificate"))
    for field in ("num_features", "blocks", "width", "depth"):
        for value in (0, -1, 10**6, 10**7, 2**63, 10**30, 1.5, "4", None, True, [4], 7, float("nan"), float("inf")):
            add(f"{field} = {value!r}", model={**model, field: value})
    for value in (0, 1, "true", None, []):
        add(f"act_norm = {value!r}", model={**model, "act_norm": value})
    add("act_norm off", model={**model, "act_norm": False})
    for kind in ("pickle", "os.system", "", None, 5, [], {}, "masked_autoregressive_flow "):
        add(f"kind of model {kind!r}", model={**model, "kind": kind})
    for raw in ("[]", "null", "5", '"x"', "{}", "", "NaN", "{", "[" * 100_000, '{"a":' * 90_000, "9" * 5_000):
        for part in ("model", "schema", "certificate"):
            add(f"{part} = {raw[:10]!r}", **{part: raw})
    for part, value in {"model": model, "schema": schema, "certificate": certificate}.items():
        add(f"unknown field in {part}", **{part: {**value, "surprise": 1}})
        add(f"{part} with a key twice", **{part: texts[part][:-1] + "," + texts[part][1:]})
        add(f"{part} with spaces", **{part: " " + texts[part]})
        add(f"{part} with NaN", **{part: texts[part][:-1] + ',"surprise":NaN}'})
    for field in certificate:
        for value in (None, [], {}, 10**400, float("nan"), -1, "x", {"a": 1}, [[]], 5, 5.0, {"a": float("nan")}):
            if value in PLAUSIBLE.get(field, ()) and type(value) is not (int if field != "max_rows" else float):
                continue
            add(f"certificate {field} = {str(value)[:8]}", certificate={**certificate, field: value})
        add(f"certificate without {field}", certificate={k: v for k, v in certificate.items() if k != field})
    for event in (
        {"kind": "gaussian_sum"},
        {"kind": "gaussian_sum", "noise_multiplier": 0},
        {"kind": "gaussian_sum", "noise_multiplier": 10**400},
        {"kind": "gaussian_sum", "noise_multiplier": float("inf")},
        {"kind": "poisson_gaussian", "rate": 2, "noise_multiplier": 1, "steps": 1},
        {"kind": "__import__", "x": 1},
        {"kind": ["gaussian_sum"]},
        {"noise_multiplier": 1},
        [],
        "x",
    ):
        changed = {**certificate, "charges": [{"purpose": "p", "event": event}]}
        add(f"event {str(event)[:60]}", certificate=changed)
    add("a number past all floats", certificate=texts["certificate"].replace('"settings":{}', '"settings":1e999'))
    nested = "[" * 5_000 + "]" * 5_000
    add("deep settings", certificate=texts["certificate"].replace('"settings":{}', f'"settings":{nested}'))
    for columns in ({}, [], None, {"a": {"kind": "integer"}}, {"a": {"kind": "categorical", "levels": []}}):
        add(f"columns {columns!r}", schema={**schema, "columns": columns})
    fewer = {name: column for name, column in schema["columns"].items() if name != "z"}
    add("a schema of fewer features than the model", schema={**schema, "columns": fewer})
    add("a schema of more features", schema={**schema, "columns": {**schema["columns"], "b": {"kind": "boolean"}}})
    for kind in ("", "numpy", "Pandas", "os"):
        add(f"kind {kind!r}", kind=kind)
    name = sorted(good)[0]
    add("a tensor missing", {key: value for key, value in good.items() if key != name})
    add("a tensor too many", good | {"extra": np.zeros(3, np.float32)})
    add("a tensor by another name", {("x" if key == name else key): value for key, value in good.items()})
    add("a tensor of another shape", good | {name: good[name][None]})
    add("a tensor of transposed shape", good | {name: np.zeros((*good[name].shape[::-1], 1), np.float32)})
    add("no tensors", {})
    million = {"x": np.zeros(10**6, np.float32)}
    add("a million layers", million, model={**model, "num_features": 1, "blocks": 1, "width": 1, "depth": 10**6 - 1})
    add("a million blocks", million, model={**model, "num_features": 1, "blocks": 10**6, "width": 1, "depth": 1})
    add("a wide layer", million, model={**model, "num_features": 1, "blocks": 1, "width": 10**6, "depth": 1})
    add("a wide model", million, model={**model, "num_features": 10**6, "blocks": 1, "width": 1, "depth": 1})
    return found


def corpus(content):
    return (
        truncations(content)
        | lying_lengths(content)
        | wrong_tensors(content)
        | wrong_headers(content)
        | other_formats()
        | forged_with_a_right_digest(content)
    )


def test_hostile_files_are_refused_by_the_one_named_error(content):
    files = corpus(content)
    assert len(files) >= 200
    wrong = []
    for name, file in files.items():
        assert file != content, name
        started = time.perf_counter()
        try:
            store.from_bytes(file)
            wrong.append(f"{name}: was accepted")
        except ReleaseError as error:
            if "\n" in str(error) or len(str(error)) > 300:
                wrong.append(f"{name}: message is not one line")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}")
        if time.perf_counter() - started > MOST_SECONDS:
            wrong.append(f"{name}: took {time.perf_counter() - started:.0f} s")
    assert not wrong, "\n".join(wrong)
    assert not GONE_OFF, "code from a file was run"


def test_refusing_allocates_little(content):
    files = corpus(content)
    store.from_bytes(content)
    tracemalloc.start()
    try:
        for name, file in files.items():
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(ReleaseError):
                store.from_bytes(file)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MOST_BYTES + 30 * len(file), name
    finally:
        tracemalloc.stop()


def test_files_are_refused_by_load_with_their_name_and_nothing_is_written(content, tmp_path):
    for number, file in enumerate([b"", content[:-1], pickle.dumps(Bomb()), b"age,sex\n3,f\n"]):
        path = tmp_path / f"hostile {number}.safetensors"
        path.write_bytes(file)
        with pytest.raises(ReleaseError, match=f"hostile {number}"):
            load(path)
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(ReleaseError, match="directory"):
        load(tmp_path)
    with pytest.raises(ReleaseError, match="no such file"):
        load(tmp_path / "nowhere")


def test_a_file_past_the_cap_is_refused_unread(tmp_path):
    path = tmp_path / "large.safetensors"
    with path.open("wb") as stream:
        stream.truncate(2**33)
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match="larger"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_a_device_without_end_is_refused():
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero")
    with pytest.raises(ReleaseError):
        load("/dev/zero")


# --- no code in files ----------------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "joblib", "marshal", "shelve", "dill", "cloudpickle", "torch", "importlib", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "import_module"}


def code_loaders(text):
    """The places of a source that could turn file content into code."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES and name != "importlib.metadata"]
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else None
            found += [called] if called in FORBIDDEN_CALLS else []
            found += [keyword.arg for keyword in node.keywords if keyword.arg == "allow_pickle"]
        if isinstance(node, ast.Attribute) and node.attr in ("load_module", "import_module", "from_named_tuple"):
            found.append(node.attr)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_source_can_turn_a_file_into_code(path):
    assert code_loaders(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "eval('1')",
        "exec(text)",
        "import importlib\nimportlib.import_module(name)",
    ],
)
def test_the_gate_sees_what_it_forbids(text):
    assert code_loaders(text)


# --- in full or not at all -----------------------------------------------------------------------------------


def test_an_error_while_saving_leaves_the_old_file_and_no_other(release, content, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    release.save(path)
    assert path.read_bytes() == content

    def full_disk(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ReleaseError, match="no space left"):
        release.save(path)
    monkeypatch.undo()

    def interrupted(release):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "to_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        release.save(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_file_loads_and_replaces_the_one_before(release, content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    release.save(path)
    assert same(load(path), release)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["nowhere/model.safetensors", "file/model.safetensors", "."])
def test_a_place_that_cannot_be_written_is_one_named_error(release, tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReleaseError, match="Cannot write"):
        release.save(tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_permission_is_one_named_error(release, tmp_path):
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(ReleaseError, match="permission denied"):
            release.save(tmp_path / "model.safetensors")
    finally:
        tmp_path.chmod(0o700)
