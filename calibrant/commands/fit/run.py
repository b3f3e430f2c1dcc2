"""The steps of a fit in their order. A file to serve is there before the long step begins."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.atomic import write_text
from calibrant.commands.fit import deploy, heads, judge, tuning
from calibrant.commands.fit.data import Rows, settle
from calibrant.commands.fit.page import sections
from calibrant.commands.fit.plan import Clock, Wanted
from calibrant.commands.fit.project import Project
from calibrant.errors import CheckFailed
from calibrant.progress import spoken

if TYPE_CHECKING:
    from calibrant.calibration.report.figures import Model
    from calibrant.train.model.choice import ChosenBackbone

_STEPS = 6
_ROWS = {"oof": "rows that the head had not seen (out of fold)", "val": "rows that were not trained on"}
_SCRATCH = (
    "no pretrained weights in the cache and no hub in reach: the network learns from scratch, which on a few thousand "
    "pictures costs most of the accuracy (docs/fit.md); --weights FILE takes a local file"
)
REPORT = "report.html"


def run(wanted: Wanted, where: Path, *, overwrite: bool, workers: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that is not done yet; gives what --json prints."""
    project = Project.open(where, wanted.stored(), overwrite=overwrite)
    clock = Clock(wanted.minutes, wanted.preset)
    if project.steps:
        say(f"going on in {where}: done are {', '.join(s for s in project.steps if s not in ('pace', 'plan'))}")

    def step(number: int, text: str) -> None:
        say(f"[{number}/{_STEPS}] {text}")

    step(1, "looking at the images")
    rows, said = settle(wanted, project, workers=workers)
    say(f"      {len(rows.class_names)} classes; {rows.says()}")
    for line in said:
        say(f"      ! {line}")

    choice = _chosen(wanted, project)
    images = len(rows.learn) + (0 if rows.test is None else len(rows.test))
    pace = heads.pace(wanted, choice, images, clock, project)
    step(2, f"features: {choice.says()}, at {pace.size} px, about {spoken(images * pace.seconds)}")
    if not choice.pretrained:
        say(f"      ! {_SCRATCH}")
    cache = heads.extract(wanted, project, choice, rows, pace.size, workers=workers)

    step(3, "trying heads")
    tried = heads.choose(project, cache, rows, wanted)
    say(f"      {_best(tried)}")

    tuned = project.done("tuning")
    step(4, "calibrating, and exporting a file that can be served")
    if tuned is not None and tuned["wins"]:
        say("      done, and replaced by the fine-tuned network")
    else:
        deploy.calibrate(wanted, project, "calibrate")
        deploy.export(wanted, project, "export")

    plan = tuning.planned(wanted, project, choice, rows, pace, clock)
    step(5, f"fine-tuning: {plan['why']}")
    tuned = None
    if plan["epochs"]:
        tuned = tuning.tune(wanted, project, choice, rows, pace, plan["epochs"])
        say(f"      {_compared(tuned)}")
    if tuned is not None and tuned["wins"]:
        tuning.put_in_place(project)
        say("      calibrating and exporting the fine-tuned network in its place")
        deploy.calibrate(wanted, project, "calibrate-tuned")
        deploy.export(wanted, project, "export-tuned")
    step(6, "judging what decided nothing" if rows.test is not None else "judging out of fold")
    models = judge.judge(wanted, project, rows, cache)
    proof = deploy.prove(project, rows)
    if proof is not None and not proof["passed"]:
        raise CheckFailed("the file does not give what the run's predictions say", where=where / deploy.MODEL)
    return _report(wanted, project, rows, said, choice, tried, tuned, plan, models, proof, clock)


def _chosen(wanted: Wanted, project: Project) -> ChosenBackbone:
    """The backbone, the same in every sitting."""
    from calibrant.train.model.choice import ChosenBackbone, choose

    known = project.done("backbone")
    if known is None:
        made = choose(wanted.preset, model=wanted.model, weights=wanted.weights)
        known = project.finish("backbone", {"model": made.model, "origin": made.origin})
    return ChosenBackbone(known["model"], known["origin"], wanted.weights)


def _best(tried: dict[str, Any]) -> str:
    kept = next(c for c in tried["candidates"] if c["name"] == tried["chosen"])
    return (
        f"{kept['name']} of {len(tried['candidates'])}: NLL {kept['nll']:.3f}, accuracy {100 * kept['accuracy']:.1f} % "
        f"on {tried['rows']:,} rows that it had not seen"
    )


def _compared(tuned: dict[str, Any]) -> str:
    word = "it replaces the head" if tuned["wins"] else "the head is kept"
    return (
        f"NLL {tuned['nll']:.3f} against the head's {tuned['head_nll']:.3f} on {tuned['rows']:,} rows, gain "
        f"{tuned['gain']:.3f} ± {tuned['standard_error']:.3f}: {word}"
    )


def _report(
    wanted: Wanted,
    project: Project,
    rows: Rows,
    said: list[str],
    choice: ChosenBackbone,
    tried: dict[str, Any],
    tuned: dict[str, Any] | None,
    plan: dict[str, Any],
    models: list[Model],
    proof: dict[str, Any] | None,
    clock: Clock,
) -> dict[str, Any]:
    """report.html, the lines that end the command, and what --json prints."""
    from datetime import datetime

    from calibrant.calibration.report.html import html_report
    from calibrant.calibration.verdict.text import verdict_lines

    chosen = "fine-tuned" if tuned is not None and tuned["wins"] else tried["chosen"]
    calibration = project.done("calibrate-tuned") or project.done("calibrate") or {}
    following = next_lines(project.path)
    how = {
        "Backbone": choice.says(), "Kept": chosen, "Fine-tuning": plan["why"],
        "Temperature": f"{calibration['temperature']:.3f}, fitted on {_ROWS[calibration['rows']]}",
        "Class shares in use": str(calibration.get("prior")),
        "Proof": "compared with torch on real images"
        + ("" if proof is None else f"; on {proof['rows']} test images it differs by at most {proof['max_diff']:.1e}"),
    }  # fmt: skip
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    extra = sections(rows, said, tried, tuned, how, following)
    page = html_report(
        models, title=f"{project.path.resolve().name}: can it be trusted?", bins=15, made=made, more=extra
    )
    write_text(project.path / REPORT, page)
    result = {
        "project": str(project.path), "model": str(project.path / deploy.MODEL), "report": str(project.path / REPORT),
        "backbone": choice.model, "chosen": chosen, "prior": calibration.get("prior"), "findings": said,
        "evaluation": judge.summary(models), "seconds": round(clock.passed(), 1), "next": following,
    }  # fmt: skip
    project.finish("report", result)
    last = [verdict_lines(m.verdict, m.name) for m in models if m.verdict is not None and not m.reference]
    lines = [*last, "", f"class shares in use {calibration.get('prior')}", f"{project.path}: {deploy.MODEL}, {REPORT}"]
    return result | {"text": "\n".join([*lines, *(f"next: {line}" for line in following)])}


def next_lines(path: Path) -> list[str]:
    """What can be typed as it stands."""
    model = str(path / deploy.MODEL)
    return [
        shlex.join(["calibrant", "serve", model, "--feedback-log", str(path / "feedback")]),
        "curl --data-binary @photo.jpg http://127.0.0.1:8000/predict",
        shlex.join(["calibrant", "dashboard", str(path)]),
    ]
