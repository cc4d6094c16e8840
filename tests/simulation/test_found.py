"""Schedules in which a promise did not hold, as data: they stay the same when seeds draw others."""

from __future__ import annotations

import pytest

from ._run import Run
from ._schedule import Act, Fault, Schedule


def schedule(seed: int, *acts: Act, wire: str = "openai", leases: bool = False, crowd: int = 1) -> Schedule:
    """A schedule. `seed` decides whose step comes next."""
    return Schedule(
        seed=seed,
        wire=wire,
        leases=leases,
        combines=False,
        behind=False,
        crowd=crowd,
        is_tight=False,
        acts=acts,
    )


FOUND = {
    "a running turn took in a message from a conversation that was begun anew after a deletion": schedule(
        6100129,
        Act("send", 1, save="checkpoint", choice=0.43685414124696154),
        Act("append", 102, choice=0.10473857121099905),
        Act("refused", 2, choice=0.2059462206990137),
        Act("withdraw", 156, target=102, choice=0.8159153843620266),
        Act("reset", 3, choice=0.5500162160214694),
        leases=True,
        crowd=3,
        wire="openai-responses",
    )._replace(combines=True, steers=True),
    "an event was withdrawn between the load and the first save of a resume that claimed it": schedule(
        6099199,
        Act("send", 1, save="checkpoint", rounds=(("ask",),), choice=0.5951127319624938),
        Act("answer_again", 3, save="checkpoint", choice=0.6948094897323006),
        Act("append", 4, choice=0.875020671060529),
        Act("append", 102, choice=0.9442241757094338),
        Act("answer", 5, save="checkpoint", choice=0.09035061776058506),
        Act("withdraw", 157, target=4, choice=0.3598021062815019),
        leases=True,
        crowd=2,
        wire="openai-responses",
    )._replace(steers=True),
    "a message had its reply, and a refusal of a later one took its turn id from the turn": schedule(
        6023159,
        Act("send", 2, choice=0.9862182751531644),
        Act("send", 3, rounds=(("pay",),), choice=0.7169667557507462),
        Act("answer_again", 4, choice=0.956986540727163),
        Act("refused", 5, choice=0.908147202820097),
        leases=True,
        crowd=3,
        wire="anthropic",
    )._replace(steers=True),
    "an event was handed to a worker that died": schedule(
        7087671,
        Act("append", 3),
        Act(
            "send",
            4,
            choice=0.299406211431995,
            faults=(Fault(1, "fail", 1.5), Fault(3, "unanswered", 3.0), Fault(6, "kill_after", 3.0)),
        ),
    ),
    "a queued message was handed to a worker that died": schedule(
        7290753,
        Act("send", 1, rounds=(("ask", "look"),), choice=0.5756307965570955),
        Act("send", 2, choice=0.6948905726465789),
        Act(
            "send",
            3,
            save="checkpoint",
            choice=0.6339436104097467,
            faults=(Fault(9, "fail", 0.2), Fault(10, "fail", 1.5), Fault(18, "kill_after", 0.7)),
        ),
        leases=True,
        crowd=2,
    ),
    "a turn id was taken back although its message had a reply": schedule(
        7113063,
        Act("send", 1, rounds=(("pay",),), choice=0.08350378538062808),
        Act("send", 2, save="checkpoint", choice=0.789542123458721, faults=(Fault(6, "fail", 1.5),)),
        Act("again", 3, save="checkpoint", has_id=False, target=1, choice=0.11159027817722855),
        Act("send", 4, save="checkpoint", choice=0.9550309745793157, faults=(Fault(3, "cancel", 3.0),)),
        Act("resume", 5, save="checkpoint", choice=0.4551798789290519),
        crowd=4,
    ),
    "a message whose save got no answer was saved twice, because others went on with the turn": schedule(
        70571,
        Act(
            "send",
            1,
            save="checkpoint",
            rounds=(("ask", "pay"),),
            choice=0.31064110239402076,
            faults=(Fault(8, "pause", 1.5),),
        ),
        Act("resume", 2, choice=0.08481482249089722),
        Act("send", 3, save="checkpoint", choice=0.6074914530764588),
        Act("send", 4, has_id=False, choice=0.7994321875484589, faults=(Fault(0, "unanswered", 0.2),)),
        Act("send", 5, save="checkpoint", choice=0.9121481482630612),
        crowd=4,
        wire="anthropic",
    ),
    "a reset takes the ids of cut turns along: the run knew nothing of it": schedule(
        8253511,
        Act("send", 1, rounds=(("pay",),), choice=0.9734314215473332),
        Act("send", 2, save="checkpoint", choice=0.5669954910546084),
        Act("again", 3, target=1, choice=0.5543413153553257),
        Act("compact", 4, save="checkpoint", choice=0.45618965103963016),
        Act("reset", 5, choice=0.3043211230158315),
        crowd=3,
        wire="openai-responses",
    ),
    "a copied process gave other answers than the one that it was copied from": schedule(
        8014366,
        Act("send", 1, save="checkpoint", rounds=(("ask",),), choice=0.9660950564720171),
        Act("answer", 2, choice=0.80680907718058, faults=(Fault(1, "pause", 1.5),)),
        Act(
            "answer_again", 3, save="checkpoint", choice=0.13919175692664554, faults=(Fault(6, "copy", 1.5),)
        ),
        Act("answer", 4, choice=0.16691904052610862),
        crowd=3,
    ),
    "a claim without an answer was saved again, without the event that was taken back": schedule(
        669,
        Act("send", 1, save="checkpoint", choice=0.8559620194968209),
        Act("cancel", 2, save="checkpoint", has_id=False, choice=0.2940754772034204),
        Act("resume", 3, choice=0.2959757975529451, faults=(Fault(6, "late", 3.0),)),
        Act("append", 101, choice=0.5203051455003944),
        Act("withdraw", 154, target=101, choice=0.29859663493915156),
        leases=True,
        crowd=2,
    )._replace(steers=True),
    "new messages were claimed without an answer, and one was taken back": schedule(
        1196209,
        Act(
            "recall",
            1,
            rounds=(("recall",),),
            choice=0.6521358706152315,
            faults=(Fault(5, "late", 0.7), Fault(6, "copy", 1.5)),
        ),
        Act("append", 101, choice=0.5424448250459456),
        Act("compact", 2, choice=0.10844567045138687),
        Act("append", 102, choice=0.8401524847656618),
        Act("withdraw", 156, target=101, choice=0.6093110784335815),
        Act("again", 4, save="checkpoint", target=1, choice=0.7281689454383163),
        Act("withdraw", 157, target=102, choice=0.21242007284383768),
        leases=True,
        crowd=3,
        wire="openai-responses",
    )._replace(combines=True, recalls=True, steers=True),
    "a running turn asked again, because a refused message had left the row": schedule(
        6145329,
        Act("refused", 1, save="checkpoint", choice=0.9702957481681905, faults=(Fault(10, "pause", 1.5),)),
        Act("send", 2, save="checkpoint", choice=0.2970356778118791),
        Act("send", 3, choice=0.7500118910598411, faults=(Fault(10, "copy", 0.2),)),
        leases=True,
        crowd=3,
    )._replace(steers=True),
    "a withdrawal had no answer, and a turn had taken the event": schedule(
        7018249,
        Act("hand_off", 1, save="checkpoint", rounds=(("pay",),), choice=0.8945937960216285),
        Act("resume", 2, choice=0.5088556900105721, faults=(Fault(1, "fail", 0.7),)),
        Act("append", 101, choice=0.6318184771146799),
        Act("withdraw", 153, target=101, choice=0.6360576000108301, faults=(Fault(1, "fail", 0.7),)),
        leases=True,
        crowd=2,
        wire="openai-responses",
    )._replace(combines=True, steers=True),
    "a rewind beside a running turn took its claims away": schedule(
        6213409,
        Act("send", 1, save="checkpoint", rounds=(("pay",),), choice=0.45144337055186234),
        Act("erase", 2, save="checkpoint", choice=0.7509490824722184),
        Act("send", 3, choice=0.8190024548994749, faults=(Fault(18, "kill", 3.0),)),
        Act("append", 101, choice=0.44801009066354724),
        Act("append", 102, choice=0.8582399497208876),
        Act("withdraw", 156, target=101, choice=0.7862213781216376),
        Act("rewind", 4, choice=0.19892527923306125),
        Act("withdraw", 157, target=102, choice=0.7807521268608629),
        leases=True,
        crowd=3,
        wire="openai-responses",
    )._replace(parts=True, steers=True),
    "a redaction found nothing, while a turn ran that had loaded the text": schedule(
        1115257,
        Act("send", 1, save="checkpoint", choice=0.2621070594858599, faults=(Fault(4, "fail", 1.5),)),
        Act("send", 2, choice=0.683189398434369),
        Act("redact", 4, save="checkpoint", target=1, choice=0.3062438893705529),
        crowd=2,
        wire="openai-responses",
    ),
    "an edit took a message out, whose turn id came back with a turn of another worker": schedule(
        1439868,
        Act("send", 1, choice=0.5785608451303869),
        Act("send", 2, save="checkpoint", choice=0.5676915739441968, faults=(Fault(9, "unanswered", 0.2),)),
        Act("fallback", 3, has_id=False, choice=0.02927351395207345, faults=(Fault(1, "pause", 1.5),)),
        Act("edit", 201, has_id=False, target=2, choice=0.7857054213425928),
        crowd=3,
    )._replace(behind=True, converts=True, fallback="anthropic"),
    "an edit whose copy came late took the copy of another edit for its own": schedule(
        7718318,
        Act("send", 1, save="checkpoint", choice=0.6895049894283265, faults=(Fault(5, "kill", 0.7),)),
        Act("again", 3, target=1, choice=0.10577465088500226, faults=(Fault(3, "kill_after", 3.0),)),
        Act("edit", 202, target=1, choice=0.12573401271597795),
        Act("edit", 201, target=1, choice=0.7363799508642352, faults=(Fault(0, "late", 0.2),)),
        crowd=2,
        wire="anthropic",
    ),
    "an interrupted edit took the copy of another edit for its own": schedule(
        6119618,
        Act(
            "send",
            1,
            save="checkpoint",
            rounds=(("ask", "pay"),),
            choice=0.355818289200588,
            faults=(Fault(5, "unanswered", 3.0),),
        ),
        Act("answer", 2, save="checkpoint", choice=0.0067107694981923816),
        Act("answer_again", 3, save="checkpoint", choice=0.9604836469843085),
        Act("edit", 201, save="checkpoint", target=1, choice=0.2421915040911946),
        Act("fork", 4, choice=0.7638321457576451),
        Act(
            "edit",
            202,
            save="checkpoint",
            has_id=False,
            target=1,
            choice=0.4532048929264173,
            faults=(Fault(3, "cancel", 1.5),),
        ),
        Act("answer", 5, key="f4", save="checkpoint", choice=0.7838410837889568),
        crowd=3,
        wire="anthropic",
    )._replace(parts=True),
    "two turns had a call of one id, and one was put behind the other": schedule(
        1,
        Act("convert", 1, rounds=(("look",),), choice=0.8866052889266723, wire="openai-responses"),
        Act("send", 2, rounds=(("look",),), choice=0.9144162219734048),
        crowd=2,
    )._replace(behind=True, converts=True),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_schedule_that_once_failed_passes(name: str) -> None:
    """Each failed before the promise was kept there too. All of its faults strike: if steps have come or gone
    since it was recorded, it is another schedule."""
    played = Run(FOUND[name], traced=True)

    assert played.play() == ""
    struck = {
        line.partition("***")[2].split()[0] for line in played.trace or () if "***" in line
    }  # or "is cancelled"
    assert struck - {"is"} == {fault.kind for act in FOUND[name].acts for fault in act.faults}
