"""Groups: the parts of an evaluation by the names that a reader sees, and a sentence on each."""

from collections.abc import Mapping
from dataclasses import dataclass

from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Score


@dataclass(frozen=True, kw_only=True)
class Group:
    """How a group of metrics is presented: its title, its name in the navigation, the question that it
    answers, the metric that stands for it, and what it needs.
    """

    title: str
    link: str
    question: str
    warning: str = ""
    headline: str = ""
    need: str = ""


GROUPS: Mapping[str, Group] = {
    "columns": Group(
        title="Single columns",
        link="Columns",
        question="Does each column, by itself, look like the real one?",
        headline="tv_binned",
    ),
    "pairs": Group(
        title="Pairs of columns",
        link="Pairs",
        question="Do columns go together as they do in the real rows?",
        headline="tv2_binned",
    ),
    "workload": Group(
        title="Counts and queries",
        link="Queries",
        question="Are tables of counts and answers to queries close?",
        headline="kway_error",
    ),
    "detection": Group(
        title="Detection",
        link="Detection",
        question="Can a classifier tell synthetic rows from real ones? The less it can, the better the copy.",
        headline="detection_xgboost",
    ),
    "utility": Group(
        title="Utility",
        link="Utility",
        question="Does a model that learnt from synthetic rows predict real ones as well as one that learnt from "
        "real rows?",
        headline="utility_macro_f1",
    ),
    "density": Group(
        title="Likelihood and anomalies",
        link="Likelihood",
        need="Needs a release that gives likelihoods: --model.",
        question="Does the model find real rows likely, and odd rows unlikely?",
    ),
    "membership": Group(
        title="Membership smoke test",
        link="Membership",
        need="Needs real rows that the model never saw: --holdout.",
        question="Do rows that the model was fitted to stand out against rows that it never saw?",
        warning="A smoke test proves nothing: a good value does not show that anyone is protected, since a better "
        "attack may exist. Only the certificate states a guarantee. A bad value is a reason to stop and look.",
    ),
}
"""In the order of the page; a group that is not listed comes last, under its own name."""


def group_of(key: str) -> Group:
    """The presentation of a group by its key."""
    words = key.replace("_", " ").capitalize()
    return GROUPS.get(key, Group(title=words, link=words, question=""))


def ordered(evaluation: Evaluation) -> list[tuple[str, tuple[Score, ...]]]:
    """The groups that hold a score, in the order of the page."""
    known = [key for key in GROUPS if key in evaluation.groups]
    keys = known + [key for key in evaluation.groups if key not in GROUPS]
    return [(key, evaluation.groups[key]) for key in keys if evaluation.groups[key]]


def headline(key: str, scores: tuple[Score, ...]) -> Score:
    """The score that stands for its group: the chosen one, else the first with a value, else the first that applies."""
    chosen = group_of(key).headline
    rank = [(score.value is not None, score.applies, score.metric.name == chosen) for score in scores]
    return scores[max(range(len(scores)), key=lambda place: (rank[place], -place))]
