"""`nextapp privacy`: compare mechanisms, audit them, add reports up, attack them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from nextapp.audit import accounting, attacks, verdict
from nextapp.audit.attacks import SyntheticPhones, synthetic_phones
from nextapp.audit.bit_source import audit_bits
from nextapp.audit.comparing import LABELS, Compared, build_mechanisms
from nextapp.audit.comparing import compare as compare_mechanisms
from nextapp.cli import commands, screen
from nextapp.cli.commands import Group, option, options_of
from nextapp.privacy import Mechanism
from nextapp.settings import count, setting
from nextapp.studies.experiment import versions
from nextapp.table import Marked, Table, number

app = Group(
    "privacy",
    epilog="nextapp privacy account --epsilon 1 --reports 30 --phones 1000",
    help="Compare, audit, add up and attack privacy mechanisms.",
)


_HIDES_LITTLE = 0.95  # of the ε of a report; what is above it is called next to nothing


@dataclass(frozen=True)
class ComparisonOptions:
    """Mechanisms, and the synthetic phones whose gradients they report."""

    HEADING: ClassVar[str] = "Mechanisms and phones"
    epsilon: float = setting(text="Privacy budget ε of one report.")
    apps: int = setting(87, "Apps in the catalogue.", least=2)
    dim: int = setting(16, "Length of an app vector.", least=1)
    mechanisms: tuple[str, ...] = setting(
        tuple(LABELS), "Names, separated by commas. Default: all."
    )
    seed: int = setting(0, "Random seed.")

    def build(self) -> dict[str, Mechanism]:
        return build_mechanisms(self.mechanisms, self.apps, self.dim, self.epsilon, self.seed)

    def phones(self, n: int) -> SyntheticPhones:
        return synthetic_phones(n, self.apps, self.dim, self.seed)

    def as_json(self, mechanisms: Mapping[str, Any], **more: int) -> dict[str, Any]:
        settings = {name: value for name, value in asdict(self).items() if name != "mechanisms"}
        return {
            "settings": settings | more,
            "data": "synthetic phones, not data of people",
            "mechanisms": mechanisms,
            "versions": versions(),
        }


@app.command(epilog="nextapp privacy compare --apps 87 --dim 16 --phones 292 --epsilon 4.5")
@options_of(ComparisonOptions, "asked")
@option("--phones", type=click.IntRange(min=2), default=292, help="Synthetic phones that report.")
@option(
    "--rounds", type=click.IntRange(min=1), default=5, help="Simulated rounds that are averaged."
)
@commands.json_file
def compare(asked: ComparisonOptions, phones: int, rounds: int, json: Path | None) -> None:
    """Compare mechanisms on the same SeqMF gradients of synthetic phones.

    Shows how well the mean report fits the mean gradient, what a report costs, and what leaks.
    """
    with screen.progress() as report:
        report("making synthetic phones", 0, 0)
        fleet, mechanisms = asked.phones(phones), asked.build()
        found = compare_mechanisms(
            mechanisms, fleet, n_rounds=rounds, seed=asked.seed, progress=report
        )
    screen.out.print(_comparison(found).terminal(tight=True))
    _say_what_it_means(found, phones)
    figures = {each.name: asdict(each) for each in found}
    screen.write_json(json, asked.as_json(figures, phones=phones, rounds=rounds))


@dataclass(frozen=True)
class AuditOptions:
    """How hard mechanisms are tested."""

    epsilon: float = setting(4.5, "Privacy budget ε of a report.")
    reports: int = setting(20_000, "Reports drawn for each of two inputs.", least=1000)
    quick: bool = setting(False, "A fifth of the work, for a first look.")
    seed: int = setting(0, "Random seed.")


@app.command(epilog="nextapp privacy audit harmony walsh --reports 200000")
@click.argument(
    "mechanisms",
    nargs=-1,
    required=False,
    metavar="NAMES",
    help="Mechanisms. Default: all that claim an ε; qharmony is none of them and must fail.",
)
@options_of(AuditOptions, "asked")
@commands.json_file
def audit(mechanisms: tuple[str, ...], asked: AuditOptions, json: Path | None) -> None:
    """Test whether a mechanism gives away more than its ε; exit code 1 if one does.

    Checks on small instances the exact law, the sampler against it, and reports as seen from
    outside; tests the phone's random bits. That each mechanism of nextapp makes the stated report
    at the sizes of a deployment, word by word, is checked by the tests of the project only.
    """
    names = mechanisms or [each for each in verdict.CASES if each not in verdict.EXPECTED_TO_FAIL]
    cases = {name: verdict.find_case(name) for name in names}
    n_reports = asked.reports // 5 if asked.quick else asked.reports
    bits = audit_bits()
    found = []
    with screen.progress() as report:
        for name, case in cases.items():
            found.append(
                verdict.audit(
                    case.mechanism(asked.epsilon),
                    max(1000, int(case.share * n_reports)),
                    asked.seed,
                    name=name,
                    progress=report,
                )
            )
    screen.out.print(_audit_table(found).terminal(tight=True))
    screen.out.print(
        f"The phone's bits ({bits.source}, {bits.n_words:,} words): "
        + ("hold." if bits.holds else "[bold red]fail[/].")
    )
    screen.out.print(
        f"False-alarm rate: a mechanism that is right fails at most once in "
        f"{1 / verdict.FALSE_ALARM:,.0f} audits, right bits once in "
        f"{1 / bits.false_alarm:,.0f}; one of all these at most with probability "
        f"{min(1.0, len(found) * verdict.FALSE_ALARM + bits.false_alarm):.2g}."
    )
    for fault in bits.faults:
        screen.out.print(f"- {fault}", markup=False)
    for each in found:
        if not each.holds:
            expected = each.mechanism in verdict.EXPECTED_TO_FAIL
            screen.out.print(
                f"[bold red]{each.mechanism} fails[/] ({', '.join(each.caught_by)})"
                + (", as it must: it sends f_max(u) in the clear." if expected else ".")
            )
    screen.out.print(
        "Not checked here: reports at the sizes of a deployment. The tests of nextapp do, for "
        "its own mechanisms (tests/audit).",
        style="dim",
    )
    screen.write_json(
        json,
        {
            "settings": asdict(asked) | {"reports": n_reports},
            "mechanisms": {each.mechanism: each.as_json() for each in found},
            "bits": asdict(bits) | {"holds": bits.holds},
            "versions": versions(),
        },
    )
    if not (bits.holds and all(each.holds for each in found)):
        raise click.exceptions.Exit(1)


@app.command(epilog="nextapp privacy account --epsilon 1.1 --reports 100 --phones 10000")
@option("--epsilon", type=commands.EPSILON, required=True, help="Privacy budget ε of one report.")
@option("--reports", type=click.IntRange(min=1), required=True, help="Reports of one phone.")
@option(
    "--phones", type=click.IntRange(min=1), required=True, help="Phones that report in every round."
)
@option(
    "--delta", type=float, default=1e-6, help="Probability δ that a total other than the sum fails."
)
@commands.json_file
def account(epsilon: float, reports: int, phones: int, delta: float, json: Path | None) -> None:
    """Add up the ε of many reports of one phone, and with a shuffler."""
    with screen.progress() as report:
        report("composing", 0, 0)
        totals = accounting.total_loss(epsilon, reports, phones, delta)
    bound, with_delta = totals.simple_bound, f"except for δ = {delta:g}"
    simple = "too few phones" if bound is None else f"{bound:.4g}"
    table = Table.of_text(
        ["", f"ε of {count(reports, 'report')}", "holds"],
        [
            ["sum", f"{totals.total_by_sum:.4g}", "always"],
            ["privacy loss distribution", f"{totals.total_by_pld:.4g}", with_delta],
            ["shuffled, one round", f"{totals.shuffled_round:.4g}", f"{with_delta}, if"],
            ["the same, simple bound", simple, f"{with_delta}, if"],
            ["shuffled, all", f"{totals.shuffled_total:.4g}", f"{with_delta}, if"],
        ],
    )
    screen.out.print(table.terminal(tight=True))
    screen.out.print("if:")
    for assumption in totals.assumptions:
        screen.out.print(f"- {assumption}", soft_wrap=True)
    if totals.shuffled_round > _HIDES_LITTLE * epsilon:
        screen.out.print(f"{phones:,} phones are too few: shuffling hides next to nothing.")
    screen.out.print(f"A phone promises ε = {epsilon:g} a report, never a shuffled figure.")
    screen.write_json(json, {"plan": asdict(totals), "versions": versions()})


@app.command(epilog="nextapp privacy attack --epsilon 4.5 --reports 10")
@options_of(ComparisonOptions, "asked")
@option(
    "--phones", type=click.IntRange(min=2), default=60, help="Synthetic phones that are attacked."
)
@option(
    "--reports",
    type=click.IntRange(min=1),
    default=10,
    help="Reports of each phone; one report is attacked too.",
)
@commands.json_file
def attack(asked: ComparisonOptions, phones: int, reports: int, json: Path | None) -> None:
    """Attack mechanisms: which apps a phone has, and which it uses most.

    An uninformed attacker reads decoded reports; an informed one knows all about the phone but the
    answer. Figures are AUC: .5 is guessing, 1 is certainty.
    """
    found: dict[str, list[attacks.Leak]] = {}
    with screen.progress() as report:
        report("making synthetic phones", 0, 0)
        fleet, mechanisms = asked.phones(phones), asked.build()
        for name, each in mechanisms.items():
            found[name] = [
                leak
                for n_reports in sorted({1, reports})
                for leak in attacks.uninformed_attack(each, fleet, n_reports, asked.seed)
            ]
            found[name] += attacks.informed_attack(
                each, fleet, reports, asked.seed, progress=report
            )
    for n_reports in sorted({1, reports}):
        screen.out.print(_leaks(found, n_reports).terminal(tight=True))
        screen.out.print()
    screen.out.print(
        "± half of the 95 % interval over phones. hits: how often the app with the longest row "
        "is the most used one.",
        style="dim",
    )
    figures = {name: [asdict(leak) for leak in leaks] for name, leaks in found.items()}
    screen.write_json(json, asked.as_json(figures, phones=phones, reports=reports))


def _round_count(count: int) -> str:
    """A count in three digits at most.

    >>> _round_count(292), _round_count(23_512), _round_count(1_799_906_360)
    ('292', '23.5k', '1.8G')
    """
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)


def _comparison(found: Sequence[Compared]) -> Table:
    return Table.of_text(
        ["mechanism", "NMSE", "cosine", ".71 at", "signs", "bytes", "µs", "AUC"],
        [
            [
                each.name,
                f"{each.nmse:.2g}",
                f"{number(each.cosine)}±{number(each.cosine_error)}",
                "–" if each.phones_needed is None else _round_count(each.phones_needed),
                number(each.signs),
                f"{each.n_bytes}",
                f"{each.microseconds:.0f}",
                _auc(each.leak),
            ]
            for each in found
        ],
    )


def _say_what_it_means(found: Sequence[Compared], n_phones: int) -> None:
    screen.out.print(
        ".71 at: phones for as much gradient as noise. signs: right ones among the largest tenth "
        "of entries. AUC: an informed attacker's, for “is the most used app here?”, one report.",
        style="dim",
    )
    needed = {each.name: each.phones_needed for each in found if each.name != "identity"}
    least = min((n for n in needed.values() if n is not None), default=0)
    if least > n_phones:
        best = next(name for name, n in needed.items() if n == least)
        screen.out.print(
            f"Even {best}, the best here, needs about {least:,} phones for as much gradient as "
            f"noise: with {n_phones:,} a run learns slowly, if at all."
        )


def _audit_table(found: Sequence[verdict.Audit]) -> Table:
    rows = [
        [
            each.mechanism,
            f"{each.epsilon:g}",
            f"{'=' if each.exact.tight else ''} {each.exact.worst:.4f}".strip(),
            f"{each.fit.p_value:.3f}" if each.fit.n_cells else "–",
            f"≥ {each.black_box.epsilon_low:.3f}",
            Marked(each.verdict, "" if each.holds else "bad"),
        ]
        for each in found
    ]
    headings = ["mechanism", "ε", "exact", "fit p", "from outside", "verdict"]
    return Table.of_text(headings, rows)


def _leaks(found: Mapping[str, Sequence[attacks.Leak]], n_reports: int) -> Table:
    rows = []
    for name, leaks in found.items():
        at: dict[tuple[str, str], Any] = {
            (leak.attacker, leak.question): leak for leak in leaks if leak.n_reports == n_reports
        }
        guess = at["uninformed", "favourite"]
        rows.append(
            [
                name,
                _auc(at["uninformed", "apps"]),
                _auc(guess),
                f"{guess.hit_rate:.0%}",
                *(_auc(at["informed", question]) for question in attacks.QUESTIONS),
            ]
        )
    return Table.of_text(
        ["mechanism", "apps", "favourite", "hits", "informed: apps", "favourite", "order"],
        rows,
        "one report" if n_reports == 1 else f"{n_reports:,} reports of each phone",
    )


def _auc(leak: attacks.Leak) -> str:
    return f"{number(leak.auc)}±{number((leak.high - leak.low) / 2, 2)}"
