"""The student of votes: silent where it was told nothing, right where counts are clear."""

import jax
import jax.numpy as jnp
import numpy as np

from sfumato.fitting.student import Student
from sfumato.models.generators.critic import CriticShape

SHAPE = CriticShape(6, width=4, depth=1, label=(4, 6))


def asked(num=400, seed=0):
    random = np.random.default_rng(seed)
    rows = np.concatenate([random.random((num, 4)), np.eye(2)[random.integers(2, size=num)]], axis=1)
    # Real-looking where the first number is high and the label is the second, or low and the first.
    votes = 0.4 * np.where(rows[:, 5] > 0, 1, -1) * (2 * rows[:, 0] - 1)
    return jnp.asarray(rows, jnp.float32), jnp.asarray(votes, jnp.float32)


def scores(student, rows):
    return np.asarray(jax.vmap(student.score)(rows))


def test_a_student_that_was_told_nothing_says_nothing():
    rows, votes = asked()
    student = Student.start(SHAPE, jax.random.key(0))
    assert not scores(student, rows).any()
    drowned = student.studied(rows, votes, jnp.asarray(1e4, jnp.float32))
    assert np.abs(scores(drowned, rows)).max() < 1e-3, "counts of boundless noise are no counts"


def test_it_learns_what_goes_with_a_label_and_forgets_what_is_old():
    rows, votes = asked()
    quiet = jnp.asarray(0.05, jnp.float32)
    student = Student.start(SHAPE, jax.random.key(0)).studied(rows, votes, quiet)
    fresh, truth = asked(seed=1)
    assert np.corrcoef(scores(student, fresh), truth)[0, 1] > 0.95
    for seed in range(2, 32):
        again, others = asked(seed=seed)
        student = student.studied(again, -others, quiet)
    assert np.corrcoef(scores(student, fresh), -truth)[0, 1] > 0.95


def test_noise_on_the_counts_shrinks_it():
    rows, votes = asked()
    student = Student.start(SHAPE, jax.random.key(0))
    clear, loud = (student.studied(rows, votes, jnp.asarray(noise, jnp.float32)) for noise in (0.01, 3.0))
    assert np.abs(scores(loud, rows)).mean() < 0.7 * np.abs(scores(clear, rows)).mean()
