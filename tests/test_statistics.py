"""Statistics against SciPy, and against the enumeration of all cases where there are few."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from pac4sac.paper.verdicts import (
    MARGIN,
    REPRODUCED,
    compare_means,
    compare_median,
    compare_solved,
    is_never_solved,
    is_same,
    tally,
)
from pac4sac.report.comparison import BETTER, WORSE
from pac4sac.runs.statistics import (
    EQUIVALENCE,
    UNDECIDED,
    Estimate,
    Summary,
    bootstrap_band,
    fraction,
    holm,
    interquartile_mean,
    is_within,
    mann_whitney,
    mean_interval,
    median,
    performance_profile,
    probability_of_improvement,
    solved_fraction_curve,
    summarise,
    welch,
    welch_over_strata,
)


def all_resamples(values: Sequence[float]) -> list[tuple[float, ...]]:
    return list(itertools.product(values, repeat=len(values)))


class TestMeans:
    def test_the_standard_deviation_uses_n_minus_1(self) -> None:
        assert summarise([1.0, 2.0, 6.0]) == Summary(3, 3.0, pytest.approx(np.sqrt(7.0)))

    def test_a_single_run_has_no_standard_deviation(self) -> None:
        assert summarise([4.0]) == Summary(1, 4.0, None)

    def test_a_mean_has_students_interval_and_a_single_value_has_none(self) -> None:
        values = [1.0, 2.0, 6.0, 7.5]
        for confidence in (0.95, 0.8):
            found = mean_interval(values, confidence)
            expected = stats.t.interval(confidence, 3, np.mean(values), stats.sem(values))
            assert (found.low, found.high) == pytest.approx(expected)
        assert mean_interval([4.0]).low is None


class TestInterquartileMean:
    def test_omits_a_quarter_at_each_end(self) -> None:
        assert (
            interquartile_mean([[100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 5.0, 0.0]]).value
            == (1 + 2 + 3 + 4) / 4
        )
        # of five runs one at either end
        assert interquartile_mean([[9.0, 1.0, 2.0, 3.0, -9.0]]).value == 2.0

    def test_gives_every_task_the_same_weight_whatever_its_number_of_seeds(self) -> None:
        assert interquartile_mean([[0.0] * 20, [0.0, 6.0, 6.0, 6.0, 90.0]]).value == 3.0

    def test_its_interval_is_that_of_all_resamples(self) -> None:
        values = [0.0, 1.0, 3.0, 7.0, 20.0]
        exact = [stats.trim_mean(resample, 0.25) for resample in all_resamples(values)]
        found = interquartile_mean([values])
        low, high = np.quantile(exact, [0.025, 0.975])
        assert found.low == pytest.approx(low, abs=0.35)
        assert found.high == pytest.approx(high, abs=0.35)

    def test_resamples_within_each_task_only(self) -> None:
        # Each task is constant: no resample within tasks can differ, one across tasks would.
        found = interquartile_mean([[1.0] * 4, [5.0] * 4])
        assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)

    def test_is_deterministic_and_depends_on_the_seed(self) -> None:
        # of fewer runs, resamples often coincide
        values = [np.random.default_rng(0).normal(size=20)]
        assert interquartile_mean(values) == interquartile_mean(values)
        assert interquartile_mean(values, seed=1) != interquartile_mean(values, seed=2)

    def test_one_run_has_a_value_and_no_interval(self) -> None:
        found = interquartile_mean([[2.0]])
        assert (found.value, found.low, found.high) == (2.0, None, None)


class TestMedian:
    def test_its_interval_is_that_of_all_resamples(self) -> None:
        values = [1.0, 2.0, 4.0, 8.0]
        exact = np.quantile(
            [np.median(resample) for resample in all_resamples(values)], [0.025, 0.975]
        )
        found = median(values)
        assert found.value == 3.0
        # the distribution has steps of a half
        assert [found.low, found.high] == pytest.approx(exact, abs=0.51)


class TestProbabilityOfImprovement:
    def test_is_mann_whitneys_u_over_the_pairs(self) -> None:
        ours, theirs = [1.0, 4.0, 2.0, 2.0], [3.0, 2.0, 5.0]
        u = stats.mannwhitneyu(theirs, ours).statistic  # how often theirs is larger, ties half
        found = probability_of_improvement([ours], [theirs], lower_is_better=True)
        assert found.value == pytest.approx(u / 12)

    def test_the_direction_can_be_turned(self) -> None:
        ours, theirs = [1.0, 4.0, 2.0], [3.0, 2.0, 5.0]
        less = probability_of_improvement([ours], [theirs], lower_is_better=True)
        more = probability_of_improvement([ours], [theirs], lower_is_better=False)
        assert less.value + more.value == pytest.approx(1)

    def test_tasks_have_equal_weights_with_any_number_of_runs(self) -> None:
        ours = [[0.0, 0.0], [1.0] * 6]
        theirs = [[1.0, 1.0], [0.0] * 6]
        assert probability_of_improvement(ours, theirs, lower_is_better=True).value == 0.5

    def test_its_interval_is_that_of_all_resamples_of_both_sides(self) -> None:
        ours, theirs = [1.0, 4.0, 6.0], [3.0, 5.0, 7.0]

        def probability(a: Sequence[float], b: Sequence[float]) -> float:
            return float(np.mean([(x < y) + 0.5 * (x == y) for x in a for y in b]))

        exact = [probability(a, b) for a in all_resamples(ours) for b in all_resamples(theirs)]
        low, high = np.quantile(exact, [0.025, 0.975])
        found = probability_of_improvement([ours], [theirs], lower_is_better=True)
        assert found.value == pytest.approx(6 / 9)
        assert [found.low, found.high] == pytest.approx([low, high], abs=0.06)


class TestMannWhitney:
    def test_is_the_share_of_orders_that_are_as_uneven(self) -> None:
        # Of the 20 ways to choose three of six places, the first three and the last three are as
        # uneven as this.
        assert mann_whitney([1.0, 2.0, 3.0], [4.0, 5.0, 600.0]) == pytest.approx(2 / 20)

    def test_needs_two_runs_per_side_and_some_difference(self) -> None:
        assert mann_whitney([1.0], [2.0, 3.0]) is None
        assert mann_whitney([40.0, 40.0], [40.0, 40.0]) is None


class TestWelch:
    def test_agrees_with_scipy_in_p_value_and_interval(self) -> None:
        generator = np.random.default_rng(3)
        ours, theirs = generator.normal(2, 1, 5), generator.normal(3, 4, 8)
        expected = stats.ttest_ind(ours, theirs, equal_var=False)
        interval = expected.confidence_interval(0.95)
        found = welch(summarise(ours), summarise(theirs))
        assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert (found.low, found.high) == (
            pytest.approx(interval.low),
            pytest.approx(interval.high),
        )

    def test_works_from_published_numbers(self) -> None:
        found = welch(Summary(5, 6.0, 1.6), Summary(5, 5.7, 0.3))
        expected = stats.ttest_ind_from_stats(6.0, 1.6, 5, 5.7, 0.3, 5, equal_var=False)
        assert found.p == pytest.approx(expected.pvalue)

    def test_one_side_may_be_constant_but_not_both(self) -> None:
        found = welch(Summary(5, 40.0, 0.0), Summary(5, 34.2, 3.8))
        half_width = stats.t.ppf(0.975, 4) * 3.8 / np.sqrt(5)
        assert (found.low, found.high) == (
            pytest.approx(5.8 - half_width),
            pytest.approx(5.8 + half_width),
        )
        assert welch(Summary(5, 40.0, 0.0), Summary(5, 250.0, 0.0)).p is None

    def test_a_single_run_gives_a_difference_alone(self) -> None:
        found = welch(Summary(1, 3.0, None), Summary(5, 1.0, 1.0))
        assert (found.value, found.low, found.p) == (2.0, None, None)

    def test_differences_between_strata_do_not_widen_the_interval(self) -> None:
        two, four = ((Summary(2, mean, 2**0.5), Summary(2, 1.0, 2**0.5)) for mean in (3.0, 5.0))
        # of variance 4 · 1/4, with 1/(4 · 1/16) = 4 degrees of freedom
        found = welch_over_strata([two, four])
        assert (found.value, found.low, found.high) == (
            3.0,
            pytest.approx(0.2236, abs=1e-4),
            pytest.approx(5.7764, abs=1e-4),
        )
        assert welch_over_strata([two, (Summary(1, 3.0, None), two[1])]).low is None


class TestEquivalence:
    @pytest.mark.parametrize("shift", [-0.9, -0.3, 0.0, 0.2, 0.8, 2.0])
    def test_is_two_one_sided_tests_at_five_per_cent(self, shift: float) -> None:
        generator = np.random.default_rng(5)
        ours, theirs, margin = (
            generator.normal(10 + shift, 0.5, 6),
            generator.normal(10, 0.8, 9),
            1.5,
        )
        above = stats.ttest_ind(
            ours + margin, theirs, equal_var=False, alternative="greater"
        ).pvalue
        below = stats.ttest_ind(ours - margin, theirs, equal_var=False, alternative="less").pvalue
        interval = welch(summarise(ours), summarise(theirs), EQUIVALENCE)
        assert is_within(interval, margin) == (max(above, below) < 0.05)
        # The margin at which the harder of the two tests just fails is the farther end of the
        # interval.
        farther = max(abs(interval.low or 0), abs(interval.high or 0))
        assert is_within(interval, 1.001 * farther)
        assert not is_within(interval, 0.999 * farther)

    def test_matches_values_computed_by_hand(self) -> None:
        # 103 ± 10 of 5 and 100 ± 10 of 5: error √(20 + 20) = 6.325, 8 degrees of freedom, t(0.95) =
        # 1.8595.
        found = welch(Summary(5, 103.0, 10.0), Summary(5, 100.0, 10.0), EQUIVALENCE)
        assert (found.low, found.high) == (
            pytest.approx(-8.760, abs=1e-3),
            pytest.approx(14.760, abs=1e-3),
        )
        assert is_within(found, 15.0)
        assert not is_within(found, 14.0)

    def test_equivalence_needs_an_interval(self) -> None:
        assert not is_within(Estimate(0.0), 1.0)


class TestHolm:
    @pytest.mark.parametrize(
        "p_values", [[0.01, 0.04, 0.03], [0.2, 0.001, 0.02, 0.02], [0.5], [0.9, 0.6, 0.04]]
    )
    def test_is_the_closed_test_of_bonferroni(self, p_values: list[float]) -> None:
        """A hypothesis is rejected when every set of hypotheses with it is: enumerate all sets."""
        indices = range(len(p_values))
        sets = [s for n in range(1, len(p_values) + 1) for s in itertools.combinations(indices, n)]
        expected = [
            max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets if k in s)
            for k in indices
        ]
        assert holm(p_values) == pytest.approx(expected)

    def test_comparisons_without_a_p_value_are_not_counted(self) -> None:
        assert holm([0.03, None, 0.02]) == [pytest.approx(0.04), None, pytest.approx(0.04)]


class TestSolvedFractions:
    def test_the_interval_is_wilsons(self) -> None:
        found = fraction(0, 5)
        z = stats.norm.ppf(0.975)
        assert (found.value, found.low) == (0.0, 0.0)
        assert found.high == pytest.approx(z**2 / (5 + z**2))

    def test_the_curve_rises_where_a_run_is_solved(self) -> None:
        episodes, fractions = solved_fraction_curve([1, None, 3, 3], until=4)
        assert episodes.tolist() == [0, 1, 2, 3, 4]
        assert [f.value for f in fractions] == [0.0, 0.25, 0.25, 0.75, 0.75]


class TestVerdicts:
    """Against the paper's 100 ± 10 of five seeds, unless told otherwise."""

    paper = Summary(5, 100.0, 10.0)

    @pytest.mark.parametrize(
        ("ours", "verdict"),
        [
            (Summary(5, 103.0, 10.0), REPRODUCED),  # 90 % interval from −8.8 to 14.8
            # to 15.8: it may differ by more than 15, or not at all
            (Summary(5, 104.0, 10.0), UNDECIDED),
            (Summary(5, 96.0, 10.0), UNDECIDED),
            (Summary(5, 103.0, 60.0), UNDECIDED),
            (Summary(5, 60.0, 10.0), BETTER),
            (Summary(5, 150.0, 10.0), WORSE),
            (Summary(1, 100.0, None), UNDECIDED),
        ],
    )
    def test_are_equivalence_or_difference_or_neither(self, ours: Summary, verdict: str) -> None:
        assert compare_means(ours, self.paper).verdict == verdict

    def test_a_difference_that_is_shown_to_be_small_still_reproduces(self) -> None:
        found = compare_means(Summary(50, 108.0, 5.0), Summary(50, 100.0, 5.0))
        assert found.low is not None
        assert found.low > 0
        assert found.verdict == REPRODUCED
        assert "within 15%" in found.reason
        assert "6% to 10%" in found.reason

    def test_runs_that_were_never_solved_reproduce_no_mean_below_the_cap(self) -> None:
        """Though E_max may be within 15 % of it."""
        capped, paper = Summary(5, 500.0, 0.0), Summary(5, 473.8, 18.5)
        assert compare_means(capped, paper).verdict == REPRODUCED
        assert compare_means(capped, paper, is_capped=True).verdict == WORSE
        assert compare_means(capped, Summary(5, 482.2, 15.9), is_capped=True).verdict == UNDECIDED

    def test_depend_on_the_papers_uncertainty(self) -> None:
        ours = Summary(50, 100.0, 1.0)
        assert compare_means(ours, Summary(5, 100.0, 1.0)).verdict == REPRODUCED
        assert compare_means(ours, Summary(5, 100.0, 20.0)).verdict == UNDECIDED

    def test_our_runs_are_compared_by_the_same_rule(self) -> None:
        assert MARGIN == 0.15
        assert is_same(Summary(5, 103.0, 10.0), Summary(5, 100.0, 10.0))
        assert not is_same(Summary(5, 104.0, 10.0), Summary(5, 100.0, 10.0))

    def test_are_counted(self) -> None:
        told = tally([WORSE, REPRODUCED, UNDECIDED, BETTER, WORSE])
        assert told == "1 is reproduced, 1 is better, 2 are worse and 1 is undecided"
        assert tally([UNDECIDED]) == "1 is undecided"

    @pytest.mark.parametrize(
        ("solved", "n", "verdict"),
        [(0, 5, REPRODUCED), (0, 3, UNDECIDED), (3, 5, UNDECIDED), (4, 5, BETTER), (5, 5, BETTER)],
    )
    def test_if_the_paper_solved_no_run_the_solved_counts_decide(
        self, solved: int, n: int, verdict: str
    ) -> None:
        assert compare_solved(solved, n).verdict == verdict

    def test_only_e_max_without_spread_means_never_solved(self) -> None:
        assert is_never_solved(Summary(5, 250.0, 0.0), 250)
        assert not is_never_solved(Summary(5, 223.6, 14.6), 250)

    @pytest.mark.parametrize(
        ("ours", "verdict"),
        [
            ([98.0, 99.0, 101.0, 104.0, 97.0], REPRODUCED),
            ([50.0, 52.0, 49.0, 60.0, 55.0], BETTER),
            ([150.0, 152.0, 149.0, 160.0, 155.0], WORSE),
            ([20.0, 99.0, 180.0, 101.0, 240.0], UNDECIDED),
            ([100.0], UNDECIDED),
        ],
    )
    def test_a_median_without_spread_is_taken_as_exact(
        self, ours: list[float], verdict: str
    ) -> None:
        assert compare_median(ours, 100.0).verdict == verdict


class TestCurves:
    def test_a_profile_is_the_fraction_of_runs_better_than_each_score(self) -> None:
        runs, thresholds = [[1.0, 2.0, 3.0, 4.0]], np.array([0.0, 2.0, 2.5, 5.0])
        more, *_ = performance_profile(runs, thresholds, lower_is_better=False)
        less, *_ = performance_profile(runs, thresholds, lower_is_better=True)
        assert more.tolist() == [1, 0.5, 0.5, 0]  # the run with 2 is not better than 2
        assert less.tolist() == [0, 0.25, 0.5, 1]

    def test_tasks_have_equal_weights_in_a_profile(self) -> None:
        runs = [[1.0, 2.0], [3.0] * 6]
        middle, low, high = performance_profile(runs, np.array([1.5, 2.5]), lower_is_better=False)
        assert middle.tolist() == [0.75, 0.5]
        # of two runs, both may be drawn from one
        assert (low.tolist(), high.tolist()) == ([0.5, 0.5], [1, 0.5])

    def test_the_ends_of_a_band_are_those_of_the_resampled_means(self) -> None:
        # The odd run of five is drawn k times with Binomial(5, 1/5): none at all with 0.33, at most
        # three times with 0.993 and at most twice with 0.942, so that the middle 95 % of the means
        # lie from 0 to 3 · 10 / 5.
        mean, low, high = bootstrap_band([[[0.0, 7.0]] * 4 + [[10.0, 7.0]]])
        assert (mean.tolist(), low.tolist(), high.tolist()) == ([2, 7], [0, 7], [6, 7])
