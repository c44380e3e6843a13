"""A cloud of labelled points in three dimensions that the reader turns, with and without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets
from jaxtyping import Float
from torch import Tensor

from conceptbind.widgets.fallback import choose_mode, show_without_script
from conceptbind.widgets.point_cloud_figure import (
    Colour,
    Points,
    check_cloud,
    cloud_figure_html,
    shares_text,
    unit_points,
)
from conceptbind.widgets.scripts import HERE, script


class PointCloud(anywidget.AnyWidget):
    """Show points in three dimensions; made by :func:`point_cloud`.

    ``view`` (degrees turned, degrees tilted, zoom) and ``hidden`` (groups) follow the reader and may be set.
    """

    _esm = script("point_cloud.js")
    _css = HERE / "point_cloud.css"

    view = traitlets.List(traitlets.Float()).tag(sync=True)
    hidden = traitlets.List(traitlets.Unicode()).tag(sync=True)

    points = traitlets.Bytes().tag(sync=True)
    """float32, little-endian, ``(point, axis)``, within radius 1 of the middle."""
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    group_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    group = traitlets.List(traitlets.Int()).tag(sync=True)
    """The group of every point."""
    markers = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The marker of every group."""
    named = traitlets.List(traitlets.Bool()).tag(sync=True)
    """For every group, whether its labels always show."""
    links = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    colours = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """One or two ``#rrggbb`` for every point."""
    title = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    """What the axes carry, in words."""

    def __repr__(self) -> str:
        # No address: the text form of an executed notebook is the same in each run.
        return f"PointCloud({len(self.labels)} points, {self.title!r})"

    @traitlets.validate("view")
    def _check_view(self, proposal: Any) -> list[float]:
        view = proposal["value"]
        if len(view) != 3 or not -90 <= view[1] <= 90 or not view[2] > 0:
            raise traitlets.TraitError(
                f"view is degrees turned, degrees tilted (-90 to 90) and the zoom (above 0); got {view}"
            )
        return view

    @traitlets.validate("hidden")
    def _check_hidden(self, proposal: Any) -> list[str]:
        unknown = [name for name in proposal["value"] if name not in self.group_names]
        if unknown:
            raise traitlets.TraitError(f"hidden must list some of {self.group_names}; got {unknown}")
        return proposal["value"]


def point_cloud(
    points: Points,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    alt: str,
    links: Sequence[tuple[int, int]] = (),
    colours: Sequence[Colour] | None = None,
    markers: Mapping[str, str] | None = None,
    named: Sequence[str] | None = None,
    title: str = "",
    shares: Sequence[float] | Float[Tensor, "axis"] | None = None,
    view: tuple[float, float] = (25.0, 15.0),
    mode: str | None = None,
) -> PointCloud:
    """Let the reader turn a cloud of labelled points, hide kinds of points, and ask a point for its name.

    - ``points``: ``(n, 3)``, in any unit, for example from :func:`conceptbind.kernels.mds.classical_mds`; axis 1
      points right, axis 2 up, axis 3 towards the viewer, before the cloud is turned by ``view``
    - ``labels``, ``groups``: the name and the kind of every point, such as ``"red"`` and ``"concept"``. The
      reader can hide every kind.
    - ``alt``: what the cloud shows, for readers who do not see it
    - ``links``: pairs of points that belong together, joined by a line
    - ``colours``: for each point a CSS colour name or ``#rrggbb``, or a pair of them for its left and right
      half; by default one colour a group
    - ``markers``: the marker of some groups, out of MARKERS; the others get those left over, in turn. Every
      group has a marker of its own, so that kinds are told apart without colour.
    - ``named``: the groups whose labels always stand beside their points; the others are named on demand. By
      default the first groups that have at most 12 points together.
    - ``shares``: of the squared distances that each axis carries, 0 to 1
    - ``view``: degrees turned about the vertical axis and tilted, at first
    - ``mode``: ``"book"`` adds a picture for readers without JavaScript; ``"live"``; by default the
      environment variable CONCEPTBIND_WIDGETS, else live

    Raises ValueError for lengths that disagree, more than 500 points, numbers that are not finite, links to
    points that do not exist, unknown colours, markers or groups, shares above 1, or an empty ``alt``.
    """
    mode = choose_mode(mode)
    if not alt.strip():
        raise ValueError(
            "alt is empty: say in a sentence what the cloud shows, for readers who do not see it"
        )
    cloud = check_cloud(
        points,
        labels,
        groups,
        links=links,
        colours=colours,
        markers=markers,
        named=named,
        shares=shares,
        view=view,
    )
    kinds = list(cloud.markers)
    widget = PointCloud(
        points=unit_points(cloud.points).astype("<f4").tobytes(),
        labels=list(cloud.labels),
        group_names=kinds,
        group=[kinds.index(kind) for kind in cloud.groups],
        markers=list(cloud.markers.values()),
        named=[kind in cloud.named for kind in kinds],
        links=[list(pair) for pair in cloud.links],
        colours=[list(colour) for colour in cloud.colours],
        title=title,
        alt=alt,
        note=shares_text(cloud.shares),
        view=[*cloud.view, 1.0],
    )
    if mode == "book":
        show_without_script(cloud_figure_html(cloud, title, alt))
    return widget
