"""One call for a figure with controls, live (a Python callback) and in static pages (precomputed frames)."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from conceptbind.widgets.fallback import check_format, choose_mode, close, figure_html, show_without_script


def explore(
    fn: Callable[..., Figure | str],
    /,
    *,
    play: str | None = None,
    fmt: str = "webp",
    dpi: int = 160,
    limit: int = 150,
    mode: str | None = None,
    alt: str | Callable[..., str] | None = None,
    **grid: Any,
) -> w.VBox:
    """Show ``fn(**parameters)`` with one control for each parameter.

    ``fn`` returns a Matplotlib figure, or HTML. Keep figures within 5 to 7 inches of width: a phone shows
    them 354 pixels wide.

    ``grid`` names the parameters. Each is a list of values (a slider; also a range, array or dict of
    labels), or an ipywidgets control with options (SelectionSlider, Dropdown, ToggleButtons, RadioButtons,
    Select), or an IntSlider that starts at 0 and steps by 1.

    - ``play``: the parameter that a play button steps through
    - ``fmt``, ``dpi``: ``"webp"``, ``"png"`` or ``"svg"``, and its resolution; shown at 80 CSS pixels an inch
    - ``limit``: most frames that book mode draws; at 20 to 60 kB each they are the weight of the page
    - ``alt``: the alternative text of a frame, as a template (``"loss at width {width}"``) or a function of
      the parameters; by default the figure's label or title and the parameters
    - ``mode``: ``"book"`` or ``"live"``; by default the environment variable CONCEPTBIND_WIDGETS, else live

    Live mode calls ``fn`` when a control moves. Book mode calls it once for every combination, and the page
    needs no kernel; readers without JavaScript see the frame of the starting values.

    Raises ValueError for a control that a static page cannot follow, too many frames, or an unknown ``play``;
    TypeError when ``fn`` returns anything else; RuntimeError for book mode with ipywidgets 7.
    """
    mode = choose_mode(mode)
    check_format(fmt, dpi)
    if not grid:
        raise ValueError("explore needs at least one parameter, for example explore(fn, width=[64, 256])")
    controls = {name: _control(name, spec, mode) for name, spec in grid.items()}
    choices = {name: _choices(name, control) for name, control in controls.items()}
    start = {name: control.value for name, control in controls.items()}

    def frame(parameters: dict[str, Any]) -> str:
        return _frame(fn(**parameters), parameters, alt, fmt, dpi)

    bar = _bar(controls, choices, play)
    if mode == "live":
        return w.VBox([bar, _live(frame, controls)])

    n_frames = math.prod(len(values) for _, values in choices.values())
    if n_frames > limit:
        sizes = " x ".join(f"{len(values)} ({name})" for name, (_, values) in choices.items())
        raise ValueError(
            f"{sizes} make {n_frames} frames, more than limit={limit}: give fewer values, or raise the limit "
            "if the page may weigh that much"
        )
    if not hasattr(w, "Stack"):
        raise RuntimeError(f"book mode needs ipywidgets 8, and this is {w.__version__}: use mode='live'")
    start_frame = frame(start)
    show_without_script(start_frame)
    return w.VBox([bar, _stack(frame, controls, choices, (start, start_frame))])


def _live(frame: Callable[[dict[str, Any]], str], controls: dict[str, w.Widget]) -> w.HTML:
    """An HTML widget that a callback fills. No Stack here: ipywidgets 7, which Colab ships, has none."""
    out = w.HTML()

    def update(_: object = None) -> None:
        try:
            out.value = frame({name: control.value for name, control in controls.items()})
        except Exception as err:
            # An exception inside a callback goes to a log that nobody reads, and the old frame would stay.
            out.value = f'<pre role="alert">{html.escape(f"{type(err).__name__}: {err}")}</pre>'
            raise

    for control in controls.values():
        control.observe(update, "value")
    update()
    return out


def _stack(
    frame: Callable[[dict[str, Any]], str],
    controls: dict[str, w.Widget],
    choices: dict[str, tuple[str, list[Any]]],
    known: tuple[dict[str, Any], str],
) -> w.Widget:
    """Nest one Stack for each parameter; the browser moves each stack's index with its control."""
    # Shared by all frames: 1.5 kB less of page for each.
    layout, style = w.Layout(), w.HTML().style
    start_at = {name: getattr(controls[name], trait) for name, (trait, _) in choices.items()}

    def build(at: dict[str, int], names: list[str]) -> w.Widget:
        if not names:
            picture = (
                known[1]
                if at == start_at
                else frame({name: choices[name][1][index] for name, index in at.items()})
            )
            return w.HTML(picture, layout=layout, style=style)
        first, rest = names[0], names[1:]
        trait, values = choices[first]
        children = [build({**at, first: index}, rest) for index in range(len(values))]
        stack = w.Stack(children, selected_index=start_at[first], layout=layout)
        w.jsdlink((controls[first], trait), (stack, "selected_index"))
        return stack

    return build({}, list(controls))


def _bar(controls: dict[str, w.Widget], choices: dict[str, tuple[str, list[Any]]], play: str | None) -> w.Box:
    items = list(controls.values())
    if play is not None:
        if play not in controls:
            raise ValueError(f"play={play!r} is no parameter: choose one of {tuple(controls)}")
        trait, values = choices[play]
        player = w.Play(min=0, max=len(values) - 1, value=getattr(controls[play], trait), interval=600)
        w.jslink((player, "value"), (controls[play], trait))
        # Side by side also on a phone: a play button away from its slider would be a riddle.
        together = w.Layout(flex="1 1 24rem", max_width="100%", align_items="center")
        items[list(controls).index(play)] = w.HBox([player, controls[play]], layout=together)
    bar = w.Box(items, layout=w.Layout(flex_flow="row wrap", align_items="center"))
    bar.add_class("conceptbind-controls")
    return bar


def _control(name: str, spec: Any, mode: str) -> w.Widget:
    """Make the control of one parameter: values become a slider, a widget passes through."""
    if isinstance(spec, w.Widget):
        control = spec
    else:
        options = _options(name, spec)
        if len(options) > 1:
            # A computed frame may take a second: redraw where the reader lets go, not on the way.
            control = w.SelectionSlider(
                options=options,
                continuous_update=mode == "book",
                layout=w.Layout(width="auto", flex="1 1 18rem", min_width="10rem", max_width="26rem"),
            )
        else:
            control = w.Dropdown(options=options)  # a slider with one stop has no length
    if hasattr(control, "description") and not control.description:
        control.description = name.replace("_", " ")
    if hasattr(control, "style") and getattr(control.style, "description_width", None) == "":
        control.style.description_width = "initial"
    return control


def _options(name: str, spec: Any) -> list[Any]:
    if isinstance(spec, Mapping):
        return list(spec.items()) or _options(name, [])
    if hasattr(spec, "tolist"):  # arrays and tensors, whose items would be labelled "tensor(1)"
        spec = spec.tolist()
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        raise ValueError(
            f"parameter {name!r} must be a list of values or an ipywidgets control; got {spec!r}. "
            f"To fix it, bind it with functools.partial(fn, {name}=...)"
        )
    values = list(spec)
    if not values:
        raise ValueError(f"parameter {name!r} has no values: give at least one")
    if all(isinstance(value, float) for value in values):
        labels = [f"{value:.4g}" for value in values]
        if len(set(labels)) == len(values):
            return list(zip(labels, values, strict=True))
    return values


def _choices(name: str, control: w.Widget) -> tuple[str, list[Any]]:
    """Return the control's trait that counts 0, 1, 2 ..., and its values in that order."""
    kind = type(control).__name__
    if hasattr(control, "_options_values") and control.has_trait("index"):
        values = list(control._options_values)
        if not values:
            raise ValueError(f"the {kind} of parameter {name!r} has no options")
        if isinstance(control.index, tuple):
            raise ValueError(
                f"the {kind} of parameter {name!r} selects several options at once, which a static page "
                "cannot follow: use a control that selects one"
            )
        if control.index is None:
            raise ValueError(
                f"the {kind} of parameter {name!r} starts with nothing selected: give it a value"
            )
        return "index", values
    if isinstance(control, w.Checkbox | w.ToggleButton | w.Valid):
        raise ValueError(
            f"a static page cannot follow the {kind} of parameter {name!r}: "
            "use ToggleButtons(options=[('off', False), ('on', True)])"
        )
    if isinstance(control, w.IntSlider | w.BoundedIntText):
        if control.min != 0 or control.step != 1:
            raise ValueError(
                f"the {kind} of parameter {name!r} must start at 0 and step by 1, because a static page "
                f"takes its value as the number of the frame; it starts at {control.min} and steps by "
                f"{control.step}: give a list instead, "
                f"{name}=range({control.min}, {control.max + 1}, {control.step})"
            )
        return "value", list(range(control.max + 1))
    raise ValueError(
        f"a static page cannot follow the {kind} of parameter {name!r}: give a list of values, or a control "
        "with options (SelectionSlider, Dropdown, ToggleButtons, RadioButtons, Select)"
    )


def _frame(
    result: Any, parameters: dict[str, Any], alt: str | Callable[..., str] | None, fmt: str, dpi: int
) -> str:
    """A figure as HTML; HTML passes through."""
    if isinstance(result, str):
        return result
    if not isinstance(result, Figure):
        hint = ": return axes.figure" if hasattr(result, "figure") else ": end it with `return figure`"
        raise TypeError(
            f"the function given to explore must return a Matplotlib figure or an HTML string; "
            f"got {type(result).__name__}{hint}"
        )
    try:
        text = _alternative_text(result, parameters, alt)
        return figure_html(result, text, fmt=fmt, dpi=dpi)
    finally:
        close(result)


def _alternative_text(
    figure: Figure, parameters: dict[str, Any], alt: str | Callable[..., str] | None
) -> str:
    if callable(alt):
        return alt(**parameters)
    if alt is not None:
        try:
            return alt.format(**parameters)
        except (KeyError, IndexError) as err:
            raise ValueError(f"alt={alt!r} names {err}; the parameters are {tuple(parameters)}") from None
    titles = [figure.get_label(), figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    title = next((text for text in titles if text), "")
    values = ", ".join(
        f"{name.replace('_', ' ')} = {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in parameters.items()
    )
    return f"{title}: {values}" if title else values
