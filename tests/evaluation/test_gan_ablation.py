"""The ablation of DP-GAN: its variants, its split, and the section of the results page."""

import json

import numpy as np
from benchmarks import gan_ablation, results
from benchmarks.hflow_data import Packed

from sfumato.schema import Boolean, Schema


def test_every_variant_is_a_method_of_its_own():
    made = {variant: gan_ablation.method_of(variant, 20) for variant in gan_ablation.VARIANTS}
    assert made["plain"] == made["warm start"], "they differ in their public rows alone"
    assert len({json.dumps(method.settings()) for method in made.values()}) == len(made) - 1
    assert {method.steps for method in made.values()} == {20}
    assert gan_ablation.method_of("plain", None).steps == type(made["plain"])().steps


def test_public_rows_are_left_out_of_the_private_ones():
    low = np.arange(500, dtype=np.float32)[:, None] / 500
    data = Packed(schema=Schema(columns={"y": Boolean()}), low=low, width=np.zeros_like(low))
    private, public = gan_ablation.split(data)
    assert len(public["low"]) == 500 // gan_ablation.PUBLIC
    assert sorted([*private.low[:, 0], *public["low"][:, 0]]) == sorted(low[:, 0])


def test_the_section_of_the_results_page(tmp_path, monkeypatch):
    machine = {"device": "cpu", "backend": "cpu", "cores": 2, "jax": "0.10", "python": "3.11"}
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert results.gan_ablation() == []
    runs = [
        {"variant": variant, "seconds": 3.0, "machine": machine, "scores": {"utility_auroc": {"value": value}}}
        for variant, value in (("plain", 0.6), ("plain", 0.7), ("all", 0.8), ("groups", None))
    ]
    found = {"machine": machine, "epsilon": 1.0, "delta": 1e-5, "runs": runs, "summary": gan_ablation.summary(runs)}
    (tmp_path / "gan_ablation.json").write_text(json.dumps(found))
    page = results.gan_ablation()
    assert "| plain | 2 | 0.650 ± 0.050 | 3 |" in page and "| all | 1 | 0.800 | 3 |" in page
    assert not any("groups" in line for line in page[6:])
