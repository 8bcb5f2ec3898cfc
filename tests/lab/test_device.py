"""The clock of an emulated accelerator."""

from __future__ import annotations

from holdfast.lab.device import Device, Pacer, start_of


class Host:
    """A host whose time passes by sleeping, a little longer than asked each time."""

    def __init__(self, oversleep_s: float) -> None:
        self.now_s = 100.0
        self.oversleep_s = oversleep_s

    def clock(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        self.now_s += duration_s + self.oversleep_s


def test_host_that_is_a_little_late_starts_on_time() -> None:
    """An op issued within the slack starts when the one before ended."""
    assert start_of(10.001, 10.0) == 10.0


def test_host_that_is_very_late_starts_late() -> None:
    """A device that stood idle starts when the host gets there."""
    assert start_of(10.5, 10.0) == 10.5


def test_oversleep_does_not_add_up() -> None:
    """A hundred ops of 10 ms last a second although every sleep is 0.5 ms too long."""
    host = Host(oversleep_s=0.0005)
    pacer = Pacer(host.clock, host.sleep)
    for _ in range(100):
        pacer.begin()
        pacer.finish(0.010)
    assert abs(host.now_s - 101.0) < 0.001


def test_work_that_took_longer_is_not_shortened() -> None:
    """A host that computes longer than the op should last is not waited for, and starts anew after."""
    host = Host(oversleep_s=0.0)
    pacer = Pacer(host.clock, host.sleep)
    pacer.begin()
    host.now_s += 0.050
    pacer.finish(0.010)
    assert host.now_s == 100.050
    pacer.begin()
    pacer.finish(0.010)
    assert abs(host.now_s - 100.060) < 1e-9


def test_slowdown_stretches_forward_and_backward() -> None:
    """Backward lasts twice as long as forward, and a slowdown multiplies both."""
    import torch
    from torch import nn

    host = Host(oversleep_s=0.0)
    device = Device(0.010, Pacer(host.clock, host.sleep))
    device.slowdown = 3.0
    layer = nn.Linear(2, 2)
    device.attach(layer)
    loss = layer(torch.ones(1, 2, requires_grad=True)).sum()
    assert abs(host.now_s - 100.030) < 1e-9
    loss.backward()
    assert abs(host.now_s - 100.090) < 1e-9
