"""The machine of a run and its energy, by counters in a folder as the kernel lays them out."""

import os
import threading

import pytest

from oneclass.tasks.stores import machine, runs, warehouse

RANGE = 1_000_000


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    """Two packages; memory of the first; parts of a package and the whole platform, which must not count twice."""
    names = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1", "2": "psys"}
    for number, name in names.items():
        domain = tmp_path / "powercap" / f"intel-rapl:{number}"
        domain.mkdir(parents=True)
        (domain / "name").write_text(f"{name}\n")
        (domain / "max_energy_range_uj").write_text(f"{RANGE}\n")
        set_counter(tmp_path / "powercap", number, 900_000)
    monkeypatch.setattr(machine, "POWERCAP", tmp_path / "powercap")
    return tmp_path / "powercap"


def set_counter(powercap, domain, microjoules):
    counter = powercap / f"intel-rapl:{domain}" / "energy_uj"
    counter.with_name("next").write_text(f"{microjoules}\n")
    counter.with_name("next").replace(counter)  # at once, as the kernel's


def load_stored(home):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = connection.execute("select run_id, * exclude (run_id) from operations.run_machines order by rowid")
        names = [column for column, *_ in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def test_packages_and_memory_are_added_up_over_wrap_arounds(powercap):
    meter = machine.EnergyMeter(powercap)
    assert meter.sample() == 0
    for domain in ("0:0", "2"):
        set_counter(powercap, domain, 999_999)
    set_counter(powercap, "0:1", 950_000)
    set_counter(powercap, "0", 100_000)  # wrapped around: 100,000 to the end of the range and 100,000 from zero
    assert meter.sample() == pytest.approx(0.25)
    set_counter(powercap, "0", 50_000)  # and again
    set_counter(powercap, "1", 900_500)
    assert meter.sample() == pytest.approx(0.25 + 0.95 + 0.0005)


def test_a_long_block_is_sampled_before_a_counter_wraps_around_twice(powercap, monkeypatch):
    monkeypatch.setattr(machine, "SAMPLE_SECONDS", 0.01)
    with machine.measure_energy() as meter:
        for number in (899_999, 899_998):  # each almost a whole range on
            before, waited = meter.joules, threading.Event()
            set_counter(powercap, "1", number)
            for _ in range(500):
                if meter.joules != before:
                    break
                waited.wait(0.01)
    assert meter.joules == pytest.approx(2 * 0.999999)
    assert not any(thread.name == "energy" for thread in threading.enumerate())


def test_a_run_records_its_machine_and_energy(home, powercap):
    with runs.record_run(home, "first", "backfill", {}):
        set_counter(powercap, "1", 950_000)
    with pytest.raises(ValueError, match="broken"), runs.record_run(home, "second", "backfill", {}):
        set_counter(powercap, "1", 960_000)
        raise ValueError("broken")
    runs.end_run(home, "second", "cancelled")  # as a signal's handler does afterwards
    first, second = load_stored(home)
    assert (first["run_id"], first["energy_joules"]) == ("first", pytest.approx(0.05))
    assert (second["run_id"], second["energy_joules"]) == ("second", pytest.approx(0.01))
    assert first["used_cores"] == home.limits.threads and first["cores"] == len(os.sched_getaffinity(0))
    assert first["memory_bytes"] > 1e8 and first["processor"] and "Linux" in first["system"]


@pytest.mark.parametrize("lacking", ["intel-rapl:1/energy_uj", "intel-rapl:0:1/name", "intel-rapl:*"])
def test_energy_is_unknown_if_a_counter_is(home, powercap, lacking):
    for path in powercap.glob(lacking):
        path.rename(powercap / f"away{path.name}")
    with runs.record_run(home, "run", "backfill", {}):
        pass
    assert load_stored(home)[0]["energy_joules"] is None


def test_energy_is_unknown_if_a_counter_goes_away_meanwhile(home, powercap):
    with runs.record_run(home, "run", "backfill", {}):
        (powercap / "intel-rapl:1" / "energy_uj").unlink()
    assert load_stored(home)[0]["energy_joules"] is None
