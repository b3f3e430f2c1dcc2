"""The figure of regions in the plane."""

from __future__ import annotations

import numpy as np

from calibrant.train.study.boundary import boundary_figure


def test_every_method_has_a_panel_with_two_lines_and_spare_panels_are_hidden() -> None:
    axis = np.linspace(-6, 6, 101, dtype=np.float32)
    x = np.broadcast_to(axis, (101, 101))
    planes = {f"m{i}": (x - np.float32(i), x.copy()) for i in range(5)}
    figure = boundary_figure(planes)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(planes)
    assert len(figure.axes) == 8
    lines = [np.concatenate(c.get_paths()[0].vertices[:, :1]) for c in shown[2].collections]
    # The line with temperatures runs at x = 2, the other one at x = 0: the centres of pixels are 12 / 101 apart.
    assert [abs(float(v.mean()) - at) < 0.1 for v, at in zip(lines, (2.0, 0.0), strict=True)] == [True, True]


def test_a_plane_that_is_one_class_s_has_no_line_and_no_methods_have_no_figure() -> None:
    everywhere = np.ones((101, 101), np.float32)
    (axes,) = boundary_figure({"one": (everywhere, everywhere)}).axes
    assert len(axes.collections) == 0
    assert boundary_figure({}) is None
