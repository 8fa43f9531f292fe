"""Blame: the source of wrong bytes, by simulated replicas with or without checksums."""

import asyncio
import random
from zlib import adler32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import ConnectionLost, VerificationError
from coalloc.model.checksums import SUSPECTED, Checksum, Extent
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from coalloc.verify import AtSink, WitnessServers, expectation
from coalloc.verify.blame import PieceBlame, blame
from coalloc.verify.comparison import Comparison

DATA = random.Random(5).randbytes(90_000)
GOOD = Checksum("adler32", f"{adler32(DATA):08x}")


def replica(index: int, *, wrong: int | None = None, speaks: bool = True) -> SimulatedSource:
    corrupts = frozenset() if wrong is None else frozenset({wrong})
    return SimulatedSource(f"s{index}", DATA, Behaviour(corrupts=corrupts, offers_checksum=speaks))


def piece(start: int, end: int, source: int, *, of: SimulatedSource | None = None, flip: bool = False) -> Extent:
    data = bytearray((of._content if of else DATA)[start:end])
    if flip:
        data[0] ^= 1
    return Extent(start, end, source, adler32(data))


def thirds(replicas, **flips):
    return [piece(30_000 * i, 30_000 * (i + 1), i, of=replicas[i], flip=flips.get(f"s{i}", False)) for i in range(3)]


async def compare(servers, pieces):
    comparison = Comparison(servers, sum(piece.end - piece.start for piece in pieces))
    comparison.add(pieces)
    return await comparison.finish()


def test_replicas_that_agree_confirm_each_other():
    replicas = [replica(i) for i in range(3)]
    assert run(compare(WitnessServers(replicas), thirds(replicas))) == ("agree", {})


def test_without_any_witness_nothing_is_confirmed():
    replicas = [replica(i, speaks=False) for i in range(3)]
    assert run(compare(WitnessServers(replicas), thirds(replicas))) == ("none", {})


def test_a_single_replica_is_its_own_witness():
    assert run(compare(WitnessServers([replica(0)]), [piece(0, 90_000, 0)])) == ("own word", {})
    confirmed, bad = run(compare(WitnessServers([replica(0)]), [piece(0, 90_000, 0, flip=True)]))
    assert (confirmed, bad) == ("none", {0: "its bytes changed on the way"})


@pytest.mark.parametrize(("times", "outcome"), [(1, "agree"), (2, "own word")])
def test_a_witness_is_asked_once_more_if_its_connection_is_lost(monkeypatch, times, outcome):
    """A depot that dies takes the connections to all servers behind it along."""
    replicas, lost, checksum = [replica(0), replica(1)], [], SimulatedSource.checksum

    async def losing(self, *query):
        if self is replicas[1] and len(lost) < times:
            lost.append(query)
            raise ConnectionLost(f"{self.url} closed the connection")
        return await checksum(self, *query)

    monkeypatch.setattr(SimulatedSource, "checksum", losing)
    assert run(compare(WitnessServers(replicas), [piece(0, 90_000, 0)])) == (outcome, {})
    assert len(lost) == times


def test_bytes_that_changed_on_the_way_are_found():
    replicas = [replica(i) for i in range(3)]
    confirmed, bad = run(compare(WitnessServers(replicas), thirds(replicas, s1=True)))
    assert (confirmed, bad) == ("none", {1: "its bytes changed on the way"})


def test_at_a_server_one_wrong_witness_blames_no_source_that_others_confirm():
    """The source computes no checksums, the first witness is wrong, and the second one is right."""
    replicas = [replica(0, speaks=False), replica(1, wrong=10), replica(2)]

    async def ask(algorithm: str, start: int, end: int) -> str:
        return f"{adler32(DATA[start:end]):08x}"

    with pytest.raises(VerificationError, match=r"s2/file and sim://s1/file differ"):
        run(AtSink(WitnessServers(replicas), len(DATA), ()).find_bad([piece(0, 90_000, 0)], ask))


@pytest.mark.parametrize("offset", [10, 30_010, 60_010])
def test_the_majority_names_the_bad_replica(offset):
    replicas = [replica(0), replica(1, wrong=offset), replica(2)]
    confirmed, bad = run(compare(WitnessServers(replicas), thirds(replicas)))
    assert bad in ({}, {1: "its replica differs from the others"})
    assert confirmed == ("none" if bad else "agree")
    assert bad or offset // 30_000 != 1, "wrong bytes that were delivered are always found"


def test_two_different_replicas_cannot_be_judged():
    replicas = [replica(0), replica(1, wrong=60_000)]
    pieces = [piece(0, 45_000, 0), piece(45_000, 90_000, 1, of=replicas[1])]
    with pytest.raises(VerificationError, match=r"differ in bytes 45000 to 89999"):
        run(compare(WitnessServers(replicas), pieces))


def test_blame_by_the_servers_own_words():
    replicas = [replica(0), replica(1, wrong=60_000)]
    pieces = [piece(0, 45_000, 0), piece(45_000, 90_000, 1, of=replicas[1])]
    bad = run(blame(WitnessServers(replicas), pieces, GOOD, "00000000", len(DATA)))
    assert bad == {1: f"its replica is another file: adler32 is not {GOOD.value}"}


def test_blame_on_the_way():
    replicas = [replica(0), replica(1)]
    pieces = [piece(0, 45_000, 0), piece(45_000, 90_000, 1, flip=True)]
    bad = run(blame(WitnessServers(replicas), pieces, GOOD, "00000000", len(DATA)))
    assert bad == {1: "its bytes changed on the way"}


def test_without_witnesses_the_one_that_gave_least_is_suspected_first():
    replicas = [replica(i, speaks=False) for i in range(2)]
    pieces = [piece(0, 80_000, 0), piece(80_000, 90_000, 1)]
    bad = run(blame(WitnessServers(replicas), pieces, GOOD, "00000000", len(DATA)))
    assert list(bad) == [1]


def test_replicas_that_a_server_named_are_suspected_before_all_others_and_together():
    replicas = [replica(i, speaks=False) for i in range(4)]
    pieces = [piece(0, 10_000, 0), piece(10_000, 50_000, 1), piece(50_000, 90_000, 2)]

    def found(*present, suspected=frozenset()):
        servers = WitnessServers(replicas, lambda source: source in present)
        return set(run(blame(servers, pieces, GOOD, "00000000", len(DATA), suspected, guests={1, 2, 3})))

    assert found(0, 1, 2) == {1, 2, 3}
    assert found(1, 2) == {0}, "without other replicas, one at a time, so that an honest one is found"
    assert found(1, 2, suspected={0}) == {1}


def test_wrong_pieces_are_blamed_on_replicas_that_a_server_named():
    pieces = [piece(0, 50_000, 0), piece(50_000, 90_000, 1)]
    assert set(PieceBlame({1, 2}).find(pieces, [(40_000, 60_000)])) == {1}
    assert set(PieceBlame({1}).find(pieces, [(0, 10_000)])) == {0}


@given(st.integers(2, 5), st.integers(1, 6), st.randoms(use_true_random=False))
def test_of_several_senders_of_wrong_pieces_only_the_wrong_one_is_bad(sources, count, chance):
    """Pieces are fetched again from any sources that are not blamed, as often as they are wrong."""
    wrong = chance.randrange(sources)
    search, blamed = PieceBlame(), {}
    pieces = {at: set() for at in range(0, 100 * count, 100)}
    again = set(pieces)
    for _ in range(100):
        usable = [source for source in range(sources) if source not in blamed]
        for at in again:
            pieces[at] = set(chance.sample(usable, chance.randint(1, min(3, len(usable)))))
        bad = [at for at, senders in pieces.items() if wrong in senders]
        if not bad:
            break
        extents = [
            Extent(at + 10 * i, at + (10 * i + 10 if i + 1 < len(senders) else 100), source)
            for at, senders in pieces.items()
            for i, source in enumerate(senders)
        ]
        taken = bad if chance.random() < 0.5 else [chance.choice(bad)]  # when complete, or as each arrives
        found = search.find(extents, [(at, at + 100) for at in taken])
        blamed = {source: why for source, why in blamed.items() if why != SUSPECTED} | found
        again = set(taken)
    else:
        pytest.fail("the search does not end")
    assert {source for source, why in blamed.items() if why != SUSPECTED} <= {wrong}


def test_agreement_of_all_replicas_blames_the_expected_checksum():
    replicas = [replica(i) for i in range(2)]
    wrong = Checksum("adler32", "12345678")
    with pytest.raises(VerificationError, match="not the expected 12345678"):
        run(blame(WitnessServers(replicas), [piece(0, 90_000, 0)], wrong, GOOD.value, len(DATA)))


def test_replica_without_checksums_is_not_blamed_if_all_others_are_wrong():
    replicas = [replica(0, wrong=10), replica(1, speaks=False)]
    content = replicas[0]._content
    bad = run(
        blame(
            WitnessServers(replicas), [piece(0, 90_000, 0, of=replicas[0])], GOOD, f"{adler32(content):08x}", len(DATA)
        )
    )
    assert bad == {0: f"its replica is another file: adler32 is not {GOOD.value}"}


def test_pieces_of_a_bad_replica_from_an_earlier_run_are_bad():
    replicas = [replica(0, wrong=10), replica(1, speaks=False)]
    pieces = [piece(0, 45_000, 2, of=replicas[0]), piece(45_000, 90_000, 1)]
    bad = run(blame(WitnessServers(replicas, holders={2: 0}), pieces, GOOD, "00000000", len(DATA)))
    assert bad == dict.fromkeys((0, 2), f"its replica is another file: adler32 is not {GOOD.value}")


def test_replica_no_longer_listed_is_suspected_before_listed_ones():
    pieces = [piece(0, 80_000, 1, flip=True), piece(80_000, 90_000, 0)]
    bad = run(blame(WitnessServers([replica(0, speaks=False)]), pieces, GOOD, "00000000", len(DATA)))
    assert list(bad) == [1]


def test_the_strongest_known_checksum_is_expected():
    sha, md5 = Checksum("sha256", "0" * 64), Checksum("md5", "0" * 32)
    assert expectation([md5, Checksum("whirlpool", "0"), sha]) == sha
    assert expectation([]) is None


def test_bytes_of_a_replica_that_is_named_no_more_give_way():
    now, then = replica(0), replica(1, wrong=40_000)
    pieces = [piece(0, 30_000, 0), piece(30_000, 60_000, 1, of=then), piece(60_000, 90_000, 0)]
    confirmed, bad = run(compare(WitnessServers([now]), pieces))
    assert confirmed == "none"
    assert list(bad) == [1]


def test_the_less_is_left_the_smaller_are_the_pieces_that_are_asked_about():
    class Asked(SimulatedSource):
        questions: list[int]

        async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
            self.questions.append(end - start)
            return await super().checksum(algorithm, start, end)

    data = random.Random(6).randbytes(160 << 20)
    replicas = [Asked(f"s{i}", data, Behaviour(offers_checksum=True)) for i in range(2)]
    for each in replicas:
        each.questions = []
    step = 1 << 20
    arriving = [Extent(at, at + step, 0, adler32(data[at : at + step])) for at in range(0, len(data), step)]
    assert run(compare(WitnessServers(replicas), arriving)) == ("agree", {})
    asked = replicas[1].questions
    assert sum(asked) == len(data)
    assert asked == sorted(asked, reverse=True)
    assert asked[0] > 16 << 20
    assert asked[-1] <= 8 << 20


def test_fastest_witness_is_asked_about_the_last_pieces():
    near, far = Behaviour(setup_seconds=0.01, offers_checksum=True), Behaviour(setup_seconds=1.0, offers_checksum=True)
    replicas = [SimulatedSource(f"s{i}", DATA, behaviour) for i, behaviour in enumerate([near, far, near])]
    servers = WitnessServers(replicas)

    async def acquainted() -> list[int]:
        for i in range(3):
            await servers.digest(i, "adler32", 0, 10 * (i + 1))
        return servers.witnesses(0, soon=True)

    assert servers.witnesses(0) == [1, 2, 0]
    assert run(acquainted()) == [2, 1, 0]


@pytest.fixture
def questions(monkeypatch):
    """Return the questions as (witness, start, end)."""
    asked = []
    real = WitnessServers.digests

    async def digests(servers, witness, algorithm, ranges):
        asked.extend((witness, *each) for each in ranges)
        return await real(servers, witness, algorithm, ranges)

    monkeypatch.setattr(WitnessServers, "digests", digests)
    return asked


def test_queries_that_come_while_a_server_is_busy_are_sent_together():
    """Hundreds of small pieces would take minutes one by one over a long round trip."""
    servers = WitnessServers([SimulatedSource("s0", DATA, Behaviour(setup_seconds=1.0, offers_checksum=True))])
    started = []

    async def many() -> list[str | None]:
        loop = asyncio.get_running_loop()
        queries = [asyncio.create_task(servers.digest(0, "adler32", 10 * i, 10 * i + 10)) for i in range(200)]
        await asyncio.sleep(0.5)
        queries[3].cancel()  # nobody waits for this one any more
        answers = await asyncio.gather(*queries[:3], *queries[4:])
        started.append(loop.time())
        return answers

    answers = run(many())
    assert started == [2.0]  # the first alone, then all others
    assert answers == [f"{adler32(DATA[10 * i : 10 * i + 10]):08x}" for i in range(200) if i != 3]


def test_a_query_whose_first_caller_gave_up_is_answered_for_the_others():
    servers = WitnessServers([SimulatedSource("s0", DATA, Behaviour(setup_seconds=1.0, offers_checksum=True))])

    async def cancelled() -> str | None:
        first = asyncio.create_task(servers.digest(0, "adler32", 0, 10))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(servers.digest(0, "adler32", 10, 20))
        third = asyncio.create_task(servers.digest(0, "adler32", 20, 30))
        await asyncio.sleep(1.0)  # the second and the third are asked together
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return await third

    assert run(cancelled()) == f"{adler32(DATA[20:30]):08x}"


def test_neutral_witness_is_asked_about_adjacent_pieces_at_once(questions):
    replicas = [replica(i) for i in range(4)]
    assert run(compare(WitnessServers(replicas), thirds(replicas))) == ("agree", {})
    assert questions == [(3, 0, 90_000)]


def test_unconfirmed_adjacent_pieces_are_asked_about_one_by_one(questions):
    replicas = [replica(i) for i in range(4)]
    confirmed, bad = run(compare(WitnessServers(replicas), thirds(replicas, s1=True)))
    assert (confirmed, bad) == ("none", {1: "its bytes changed on the way"})
    assert {(start, end) for _, start, end in questions} == {
        (0, 90_000),
        *((i, i + 30_000) for i in (0, 30_000, 60_000)),
    }


def test_witness_without_an_answer_is_followed_by_the_next(questions):
    replicas = [replica(0), replica(1), replica(2, speaks=False), replica(3)]
    pieces = [piece(0, 40_000, 0), piece(40_000, 90_000, 1)]
    assert run(compare(WitnessServers(replicas), pieces)) == ("agree", {})
    assert questions == [(2, 0, 90_000), (3, 0, 90_000)]


def test_ranges_that_stopped_growing_are_compared_before_the_end(monkeypatch, questions):
    monkeypatch.setattr("coalloc.verify.comparison.WORTH", 10_000)
    replicas = [replica(i) for i in range(2)]

    async def slowly():
        comparison = Comparison(WitnessServers(replicas), 100 << 20)  # the end is far away
        comparison.add([piece(0, 20_000, 0), piece(50_000, 55_000, 0)])
        for start in range(55_000, 85_000, 5_000):
            await asyncio.sleep(0.2)
            comparison.add([piece(start, start + 5_000, 0)])
        before = list(questions)
        comparison.add([piece(20_000, 50_000, 1), piece(85_000, 90_000, 1)])
        return before, await comparison.finish()

    before, verdict = run(slowly())
    assert before == [(1, 0, 20_000)]
    assert verdict == ("agree", {})


def test_silent_witness_is_replaced_at_the_end(questions, monkeypatch):
    replicas = [replica(i) for i in range(3)]

    async def never(algorithm, start, end):
        await asyncio.sleep(1000)

    monkeypatch.setattr("coalloc.verify.witnesses.GLANCES", 10_000)
    replicas[1].checksum = never
    servers = WitnessServers(replicas)

    async def timed():
        verdict = await compare(servers, [piece(0, 90_000, 0)])
        return verdict, asyncio.get_running_loop().time()

    verdict, seconds = run(timed())
    assert questions == [(1, 0, 90_000), (2, 0, 90_000)]
    assert verdict == ("agree", {})
    assert seconds < 10


@pytest.mark.parametrize("count", [1, 2])
def test_late_witness_is_not_asked_twice_if_there_is_no_other(questions, monkeypatch, count):
    monkeypatch.setattr("coalloc.verify.witnesses.GLANCES", 10_000)
    replicas = [replica(i) for i in range(count)]
    late = replicas[-1]
    answer = late.checksum

    async def later(algorithm, start, end):
        await asyncio.sleep(4)
        return await answer(algorithm, start, end)

    late.checksum = later
    assert run(compare(WitnessServers(replicas), [piece(0, 90_000, 0)])) == ("agree" if count > 1 else "own word", {})
    assert questions == [(count - 1, 0, 90_000)]


STEP = 1_000


async def arrive(servers, pieces):
    """Deliver the bytes over some seconds; return the verdict, and the seconds until it."""
    comparison, loop = Comparison(servers, len(DATA)), asyncio.get_running_loop()
    for witness in range(len(servers.members)):
        await servers.digest(witness, "adler32", 0, 1)
    for each in pieces:
        await asyncio.sleep(0.05)
        comparison.add([each])
    came = loop.time()
    try:
        return await comparison.finish(), loop.time() - came
    finally:
        comparison.cancel()


def steps(sender, **flips):
    """Deliver the file in small pieces from the sources of `sender(start)`, with flipped bytes at `flips`."""
    return [piece(at, at + STEP, sender(at), flip=at in flips.get("at", ())) for at in range(0, len(DATA), STEP)]


def distant(index, **behaviour):
    return SimulatedSource(f"s{index}", DATA, Behaviour(setup_seconds=0.5, offers_checksum=True, **behaviour))


@pytest.mark.parametrize(
    "sender",
    [lambda at: 0, lambda at: at // 50_000, lambda at: at // STEP % 3],
    ids=["from one", "from two", "from all in turns"],
)
def test_the_end_does_not_wait_for_witnesses_that_are_far(questions, sender):
    verdict, seconds = run(arrive(WitnessServers([distant(i) for i in range(3)]), steps(sender)))
    assert verdict == ("agree", {})
    assert seconds == 0
    assert {witness for witness, _, end in questions if end == len(DATA)} == {0, 1}, "whoever delivers, one did not"


def test_a_single_replica_that_is_far_is_not_waited_for_either():
    assert run(arrive(WitnessServers([distant(0)]), steps(lambda at: 0))) == (("own word", {}), 0)


@pytest.mark.parametrize("at", range(0, len(DATA), 10 * STEP))
def test_bytes_changed_in_transit_are_found_at_any_place(at):
    verdict, _ = run(
        arrive(WitnessServers([distant(i) for i in range(3)]), steps(lambda start: start // 50_000, at=(at,)))
    )
    assert verdict == ("none", {at // 50_000: "its bytes changed on the way"})


def test_confirmation_by_the_delivering_source_is_not_enough():
    """Two witnesses were asked ahead, and one of them, whose replica is wrong, delivered everything in the end."""
    bad = distant(0, corrupts=frozenset({80_000}))
    pieces = [piece(at, at + STEP, 0, of=bad) for at in range(0, len(DATA), STEP)]
    verdict, _ = run(arrive(WitnessServers([bad, distant(1), distant(2)]), pieces))
    assert verdict == ("none", {0: "its replica differs from the others"})


def test_witness_that_died_after_a_question_is_not_needed():
    dead = distant(1, dies_at=3.6)
    verdict, _ = run(arrive(WitnessServers([distant(0), dead, distant(2)]), steps(lambda at: 0)))
    assert verdict == ("agree", {})


def test_witness_with_many_queued_questions_is_not_waited_for(monkeypatch):
    """Questions to a far witness are still queued at the end."""
    monkeypatch.setattr("coalloc.verify.comparison.WORTH", STEP)
    monkeypatch.setattr("coalloc.verify.early_queries.SHORT", 0)
    near = [SimulatedSource(f"s{i}", DATA, Behaviour(setup_seconds=0.1, offers_checksum=True)) for i in range(2)]
    verdict, seconds = run(arrive(WitnessServers([*near, distant(2)]), steps(lambda at: at // STEP % 2)))
    assert verdict == ("agree", {})
    assert seconds < 0.3


class Slower(SimulatedSource):
    """A witness that needs longer for a long range than for a byte."""

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        await asyncio.sleep(0.6 if end - start > 1 else 0.2)
        return await super().checksum(algorithm, start, end)


def test_late_answer_is_waited_for_without_another_question(questions):
    """The main source is near; the other was asked ahead, and answers a moment after the end."""
    near = SimulatedSource("s0", DATA, Behaviour(setup_seconds=0.01, offers_checksum=True))
    slow = Slower("s1", DATA, Behaviour(offers_checksum=True))
    verdict, seconds = run(arrive(WitnessServers([near, slow]), steps(lambda at: 0)))
    assert verdict == ("agree", {})
    assert 0 < seconds < 0.6
    assert len([witness for witness, _, end in questions if witness == 1 and end == len(DATA)]) == 1
