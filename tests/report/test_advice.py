"""Advice: only what the audit measured or proved, with its number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leakgauge.audit.judge.result import parts as asked
from leakgauge.defenses import of_stage, protection
from leakgauge.report import read
from leakgauge.report.advice import MOST, advice
from leakgauge.testing import EXAMPLES
from tests.report.samples import BOUND, defense, make, parts


def said(folder: Path, **defenses: str) -> str:
    return "\n".join(advice(read(make(folder, defenses)).result))


def test_leaks_are_named_with_their_count(tmp_path: Path) -> None:
    text = said(tmp_path / "run", none="recognisable", noisy="recognisable")
    assert "Do not send undefended updates: 3 of 5 records" in text
    assert "Do not rely on noisy" in text
    assert "None of the settings audited hid the records" in text


def test_silence_is_offered_as_no_proof(tmp_path: Path) -> None:
    text = said(tmp_path / "run", none="recognisable", noisy="no evidence")
    assert "found nothing through noisy" in text
    assert "no proof of safety" in text
    assert "leakgauge doctor" in text  # the set-up was not checked


def test_a_proof_names_the_noise_it_needs(tmp_path: Path) -> None:
    enough = {"expression": "clip(norm=1.0) | gaussian(std=0.93)", "ceiling": 0.5}
    made = {**defense("bounded", "recognisable"), "bound": {**BOUND, "ceiling": 1.0, "enough": enough}}
    folder = make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}])
    text = "\n".join(advice(read(folder).result))
    assert "use clip(norm=1.0) | gaussian(std=0.93)" in text
    assert "nobody recognises a record with a probability above 50 %" in text


def test_an_attack_that_does_not_model_the_defense_is_called_out(tmp_path: Path) -> None:
    def lines(folder: Path, *generic: float) -> list[str]:
        scores = {"generic": list(generic), "adaptive": [0.6, 0.7, 0.7, 0.7, 0.8]}
        adversaries = [
            {"name": name, "mean": sum(by) / len(by), "scores": {"real": {"ssim": by}}} for name, by in scores.items()
        ]
        made = {**defense("pruned", "recognisable"), "adversaries": adversaries}
        make(folder, checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}])
        return [line for line in advice(read(folder).result) if "strongest adversary" in line]

    (said,) = lines(tmp_path / "run", 0.1, 0.1, 0.1, 0.05, 0.15)
    assert "generic reaches 0.10 on average under pruned, adaptive 0.70" in said
    assert not lines(tmp_path / "chance", 0.9, 0.05, 0.9, 0.05, 0.9)  # on other records, and within the interval


def trained(name: str, word: str, expression: str, *accuracies: float) -> dict[str, Any]:
    """A defense of a trained model, with the accuracy of every seed."""
    return {
        **defense(name, word),
        **parts(expression),
        "accuracy": accuracies[0],
        "accuracies": list(accuracies),
    }


def told(folder: Path, *defenses: dict[str, Any], **changes: Any) -> str:
    checkpoint = {"step": 9, "accuracy": 0.9, "accuracies": [0.9, 0.88], "defenses": list(defenses)}
    return "\n".join(advice(read(make(folder, checkpoints=[checkpoint], **changes)).result))


def test_accuracy_that_bought_nothing_is_called_a_waste_unless_seeds_explain_it(tmp_path: Path) -> None:
    dear = trained("pruned", "recognisable", "prune(p=0.999)", 0.7, 0.72)
    said = told(tmp_path / "dear", dear)
    assert "Do not rely on pruned (3 of 5 records recognised, and it costs 18 points of accuracy" in said
    assert "71 % (70 to 72)" in said
    chance = trained("pruned", "recognisable", "prune(p=0.5)", 0.8, 0.89)
    assert "it costs" not in told(tmp_path / "chance", chance)
    silent = trained("pruned", "no evidence", "prune(p=0.999)", 0.7, 0.72)
    assert "accuracy 71 % (70 to 72), 18 points less than without a defense" in told(tmp_path / "silent", silent)


def test_a_combination_stands_beside_its_parts(tmp_path: Path) -> None:
    parts = (
        trained("hidden", "recognisable", "instahide()", 0.8),
        trained("pruned", "recognisable", "prune(p=0.9)", 0.89),
    )
    both = trained("both", "detectable", "instahide() | prune(p=0.9)", 0.7)
    said = told(tmp_path / "both", *parts, both)
    assert "Combining hides more: both: mean ssim 0.20, worst record 0.28, accuracy 70 %" in said
    assert "hidden: mean ssim 0.50, worst record 0.58" in said
    worse = trained("both", "exact", "instahide() | prune(p=0.9)", 0.7)
    assert "Combining hides no more here: both: mean ssim 0.85" in told(tmp_path / "worse", *parts, worse)
    assert "Audit hidden and pruned together (instahide() | prune(p=0.9))" in told(tmp_path / "apart", *parts)


def test_only_records_encoded_and_updates_changed_are_worth_a_combination(tmp_path: Path) -> None:
    wasted = (
        trained("hidden", "recognisable", "instahide()", 0.7),
        trained("bottled", "recognisable", "precode(k=9)", 0.89),
        trained("pruned", "recognisable", "prune(p=0.9)", 0.7),
    )
    assert "together" not in told(tmp_path / "wasted", *wasted)
    noisy = trained("noisy", "detectable", "clip(norm=1.0) | gaussian(std=0.1)", 0.7)
    cheap = trained("signed", "recognisable", "sign()", 0.89)
    assert "Audit hidden and noisy together" in told(tmp_path / "noisy", *wasted, cheap, noisy)
    assert "Audit hidden and signed together" in told(tmp_path / "cheap", *wasted, cheap)


def test_every_part_says_its_stage_and_how_it_mixes() -> None:
    for stage in ("input", "model", "training", "update"):
        for name in of_stage(stage):
            for text in EXAMPLES["defense"][name]:
                said = asked(protection(text))
                assert {part.stage for part in said} == ({stage} if name != "identity" else set())
    mixing = {text: asked(protection(text))[0].mixing for text in ("mixup()", "instahide()", "ats()", "mixup(k=1)")}
    assert mixing == {"mixup()": "solvable", "instahide()": "secret", "ats()": None, "mixup(k=1)": None}


def test_a_result_that_does_not_know_its_parts_gets_no_advice_on_combining_them(tmp_path: Path) -> None:
    old = [
        trained("hidden", "recognisable", "instahide()", 0.8),
        trained("pruned", "recognisable", "prune(p=0.9)", 0.8),
    ]
    for entry in old:
        del entry["parts"]
    assert "together" not in told(tmp_path / "run", *old)


def test_a_combination_hides_more_only_if_encodings_are_hidden_too(tmp_path: Path) -> None:
    def encoded(made: dict[str, Any], mean: float) -> dict[str, Any]:
        found = {
            "called": "mixture",
            "lone": False,
            "recognised": 3,
            "records": 5,
            "mean": mean,
            "best": mean,
            "p": 0.01,
        }
        rows = [{**r, "encoding": {"score": mean + 0.01 * i, "null": 0.1}} for i, r in enumerate(made["records"])]
        return {**made, "records": rows, "encoding": {**found, "excess": made["attack"]["excess"]}}

    mixed = encoded(trained("mixed", "recognisable", "mixup(k=4)", 0.8), 0.7)
    both = trained("both", "detectable", "mixup(k=4) | prune(p=0.9)", 0.7)
    assert "Combining hides no more here" in told(tmp_path / "same", mixed, encoded(both, 0.8))
    assert "Combining hides more: both: mean ssim 0.20, worst record 0.28, mean of mixtures 0.60" in told(
        tmp_path / "less", mixed, encoded(both, 0.6)
    )


def test_advice_is_short_and_groups_what_leaks(tmp_path: Path) -> None:
    grants = [{"grant": "labels", "mean": 0.2, "low": 0.1, "high": 0.3}]
    many = [{**trained(f"d{i}", "recognisable", f"prune(p=0.{i})", 0.8), "ablation": grants} for i in range(1, 9)]
    finding = {"name": "first layer", "severity": "exact", "sentence": "The first layer is linear."}
    bare = {**trained("none", "recognisable", "identity()", 0.9)}
    lines = told(tmp_path / "run", bare, *many, trained("x", "exact", "ats()", 0.9), preflight=[finding]).splitlines()
    assert len(lines) <= MOST
    (rely,) = [line for line in lines if line.startswith("Do not rely on")]
    assert rely.startswith("Do not rely on x (")
    assert all(f"d{i} (3 of 5 records" in rely for i in range(1, 9))
    assert lines[0].startswith("Check the set-up first")


def test_an_average_below_the_threshold_does_not_hide_the_worst_record(tmp_path: Path) -> None:
    made = defense("noisy", "recognisable", 0.85)
    said = told(tmp_path / "run", made)
    assert "its worst record and its strongest adversary: ssim 0.51 against 0.43 on average under noisy" in said


def test_batch_statistics_and_grants_are_kept_from_the_server(tmp_path: Path) -> None:
    finding = {"name": "batch-norm statistics", "severity": "medium", "sentence": "3 batch norms train."}
    grants = [
        {"grant": "labels", "mean": 0.2, "low": 0.1, "high": 0.3},
        {"grant": "indices", "mean": 0.1, "low": -0.1, "high": 0.3},
    ]
    said = told(tmp_path / "run", {**defense("noisy", "recognisable"), "ablation": grants}, preflight=[finding])
    assert "keep its statistics on the client: 3 batch norms train" in said
    assert "Keep labels from the server if you can: ssim falls without labels by 0.20 [0.10, 0.30] under noisy" in said
    assert "Keep indices" not in said  # it may be worth nothing


def test_what_an_update_shows_by_itself_is_not_worth_keeping_secret(tmp_path: Path) -> None:
    def said(folder: str, name: str, grant: dict[str, Any], preflight: list[dict[str, str]]) -> str:
        grants = [{"mean": 0.2, "low": 0.1, "high": 0.3, **grant}]
        return told(tmp_path / folder, {**defense(name, "recognisable"), "ablation": grants}, preflight=preflight)

    shows = [{"name": "labels", "severity": "high", "sentence": "The bias shows the label."}]
    assert "Keep labels" not in said("bare", "none", {"grant": "labels", "labels": 0.2}, shows)
    assert "Keep labels" not in said("inferred", "noisy", {"grant": "labels", "labels": 1.0}, shows)
    assert "Keep labels" in said("drowned", "noisy", {"grant": "labels", "labels": 0.2}, shows)
    assert "learning rate" not in said("rate", "noisy", {"grant": "learning_rate"}, [])


def test_a_difference_within_its_interval_is_not_advised(tmp_path: Path) -> None:
    alone = trained("pruned", "recognisable", "prune(p=0.9)", 0.8)
    both = trained("both", "recognisable", "prune(p=0.9) | gaussian(std=0.1)", 0.8)
    swing = [0.3, -0.3, 0.3, -0.3, -0.2]  # lower on average, within the interval
    both["records"] = [{**r, "score": r["score"] + s} for r, s in zip(alone["records"], swing, strict=True)]
    assert "Combining hides no more here" in told(tmp_path / "run", alone, both)


def test_the_batch_is_named_with_what_leaked_from_it(tmp_path: Path) -> None:
    spec = {"task": {"model": "bayes_cnn", "recipe": {"batch": 4}}}
    said = told(tmp_path / "run", defense("none", "recognisable"), spec=spec)
    assert "3 of 5 records were recognised in updates of 4 records each. Let clients average over more" in said
