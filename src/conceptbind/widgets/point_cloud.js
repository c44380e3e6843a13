// The point cloud: the reader turns labelled points in three dimensions, hides kinds of points and asks points for
// their names. Everything is drawn here, so that a static page needs no kernel. Imports nothing.

// ---- numbers -------------------------------------------------------------------------------------------

const EYE = 4; // how far the eye stands from the middle, in radii; point_cloud_figure.py has the same number
const STEP = 10; // degrees a key press
const ZOOMS = [0.6, 4];

/** The points trait, float32 [point, axis]. Buffers may arrive unaligned, hence the copy. */
function readPoints(buffer) {
  const view = ArrayBuffer.isView(buffer) ? buffer : new DataView(buffer);
  const all = new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
  return Array.from({ length: all.length / 3 }, (_, i) => [...all.subarray(3 * i, 3 * i + 3)]);
}

/** Look at a point in perspective: right, up, towards the viewer, and how much larger it looks. */
function project([x, y, z], azimuth, elevation) {
  const [turn, tilt] = [(azimuth * Math.PI) / 180, (elevation * Math.PI) / 180];
  [x, z] = [x * Math.cos(turn) + z * Math.sin(turn), z * Math.cos(turn) - x * Math.sin(turn)];
  [y, z] = [y * Math.cos(tilt) - z * Math.sin(tilt), y * Math.sin(tilt) + z * Math.cos(tilt)];
  const near = EYE / (EYE - z);
  return { x: x * near, y: y * near, depth: z, near };
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Degrees from -180 to 180, tenths, so that the state stays short. */
const tidyView = ([azimuth, elevation, zoom]) => [
  Math.round(10 * (azimuth - 360 * Math.round(azimuth / 360))) / 10,
  Math.round(10 * clamp(elevation, -90, 90)) / 10,
  Math.round(100 * clamp(zoom, ...ZOOMS)) / 100,
];

/** The area that two boxes [left, top, right, bottom] share. */
function overlap(a, b) {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  return width > 0 && height > 0 ? width * height : 0;
}

const SIDES = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]];

/**
 * Put labels beside their points, the first ones first, where they cover the least of each other and of the points.
 * wanted: { index, x, y, radius, width, height, side: where it was before, optional: left out rather than written
 * over another }. Gives for each its index, box and side.
 */
function placeLabels(wanted, points, size) {
  const placed = [];
  for (const label of wanted) {
    let best = null;
    for (const [side, [dx, dy]] of SIDES.entries()) {
      const reach = label.radius + 3;
      const free = [
        label.x + dx * reach * (dy ? 0.8 : 1) + (dx - 1) * (label.width / 2),
        label.y + dy * reach * (dx ? 0.8 : 1) + (dy - 1) * (label.height / 2),
      ];
      const left = clamp(free[0], 4, Math.max(4, size[0] - 4 - label.width));
      const top = clamp(free[1], 2, Math.max(2, size[1] - 2 - label.height));
      const box = [left, top, left + label.width, top + label.height];
      let cost = 3 * side + 15 * (Math.abs(left - free[0]) + Math.abs(top - free[1]));
      if (side === label.side) cost -= 60; // labels that jump at each step of a turn are hard to follow
      for (const other of placed) cost += 6 * overlap(box, other.box);
      for (const point of points) cost += overlap(box, point);
      if (!best || cost < best.cost) best = { index: label.index, box, side, cost };
    }
    if (!label.optional || !placed.some((other) => overlap(best.box, other.box))) placed.push(best);
  }
  return placed;
}

// ---- document ------------------------------------------------------------------------------------------

const set = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));

/** Words in a row; with semicolons where a word has a comma of its own. */
function listed(words) {
  if (words.length < 2) return words.join('');
  const comma = words.some((word) => word.includes(',')) ? '; ' : ', ';
  return `${words.slice(0, -1).join(comma)} and ${words[words.length - 1]}`;
}

// Each has about the area of a circle of radius 1.
const PATHS = {
  circle: 'M-1 0A1 1 0 1 1 1 0A1 1 0 1 1-1 0Z',
  square: 'M-.89-.89H.89V.89H-.89Z',
  diamond: 'M0-1.25 1.25 0 0 1.25-1.25 0Z',
  triangle: 'M0-1.3 1.25.85H-1.25Z',
  cross: 'M-.45-1.2 0-.75.45-1.2 1.2-.45.75 0 1.2.45.45 1.2 0 .75-.45 1.2-1.2.45-.75 0-1.2-.45Z',
  star: 'M0-1.5.37-.5 1.43-.46.59.19.88 1.21 0 .62-.88 1.21-.59.19-1.43-.46-.37-.5Z',
};

/** A marker around (0, 0). Open ones are larger, so that they show around a filled one in the same place. */
function glyph(marker, radius, paint) {
  const open = marker.startsWith('open ');
  const shape = (name) => svg('path', { d: PATHS[marker.replace('open ', '')], transform: `scale(${radius * (open ? 1.5 : 1)})`, class: name });
  return open
    ? svg('g', { class: 'cc-mark cc-open', stroke: paint }, shape('cc-rim'), shape('cc-face'))
    : svg('g', { class: 'cc-mark', fill: paint }, shape('cc-face'));
}

// ---- the widget ----------------------------------------------------------------------------------------

function render({ model, el }) {
  const points = readPoints(model.get('points'));
  const labels = model.get('labels');
  const groupNames = model.get('group_names');
  const group = model.get('group');
  const markers = model.get('markers');
  const named = model.get('named');
  const links = model.get('links');
  const colours = model.get('colours');
  const start = [...model.get('view')];
  const id = `cc${Math.random().toString(36).slice(2)}`; // two clouds on a page must not share gradients
  const radius = clamp(6.5 * Math.sqrt(60 / points.length), 3, 6.5);
  const partners = points.map((_, i) => links.filter((pair) => pair.includes(i)).map((pair) => pair[pair[0] === i ? 1 : 0]));

  let size = [640, 440];
  let spots = []; // where each point is on the stage, after the last drawing
  let hover = -1;
  let pinned = -1; // the tapped point
  let focused = -1;
  let hidden = new Set();
  let planned = 0; // the next frame, if it was asked for
  const sides = points.map(() => null);
  const widths = points.map(() => null);

  // ---- colours: a gradient with a hard step where a point has two
  const defs = svg('defs', {});
  const gradients = new Map();
  const paintOf = (pair) => {
    if (pair.length < 2) return pair[0];
    const key = pair.join('');
    if (!gradients.has(key)) {
      const name = `${id}-${gradients.size}`;
      gradients.set(key, `url(#${name})`);
      const stop = (colour) => svg('stop', { offset: 0.5, 'stop-color': colour });
      defs.append(svg('linearGradient', { id: name }, stop(pair[0]), stop(pair[1])));
    }
    return gradients.get(key);
  };

  // ---- the stage
  const corners = [0, 1, 2].reduce(
    (all, axis) => {
      const along = points.map((point) => point[axis]);
      return all.flatMap((corner) => [[...corner, Math.min(...along)], [...corner, Math.max(...along)]]);
    },
    [[]],
  );
  const edges = corners.flatMap((_, i) => [1, 2, 4].filter((bit) => !(i & bit)).map((bit) => [i, i | bit]));
  const edgeNodes = edges.map(() => svg('line', { class: 'cc-edge' }));
  const linkNodes = links.map(() => svg('line', { class: 'cc-link' }));
  const glyphs = points.map((_, i) => {
    const node = glyph(markers[group[i]], radius, paintOf(colours[i]));
    set(node, { 'data-point': i, 'data-label': labels[i], 'data-group': groupNames[group[i]] });
    return node;
  });
  const texts = labels.map((label, i) => svg('text', { class: named[group[i]] ? 'cc-label cc-named' : 'cc-label', 'data-point': i }, label));
  // Apart from the drawn points, whose order follows their depth: what moves in the document loses the focus.
  const targets = labels.map((label, i) =>
    svg('circle', {
      class: 'cc-target',
      r: radius + 6,
      role: 'img',
      tabindex: -1,
      'data-point': i,
      'aria-label': label,
      onfocus: () => {
        focused = i;
        rove(i);
        say(i);
        plan();
      },
      onblur: () => {
        focused = -1;
        plan();
      },
    }),
  );
  const glyphLayer = svg('g', { 'aria-hidden': 'true' }, glyphs);
  const picture = svg(
    'svg',
    { class: 'cc-picture' },
    defs,
    svg('g', { 'aria-hidden': 'true' }, edgeNodes),
    svg('g', { 'aria-hidden': 'true' }, linkNodes),
    glyphLayer,
    svg('g', { 'aria-hidden': 'true' }, texts),
    svg('g', { class: 'cc-targets' }, targets),
  );
  const stage = h(
    'div',
    {
      class: 'cc-stage',
      role: 'application',
      tabindex: 0,
      'aria-roledescription': 'point cloud that can be turned',
      'aria-label': model.get('alt'),
      'aria-describedby': `${id}-help`,
    },
    picture,
  );

  // ---- words and controls
  const readout = h('p', { class: 'cc-readout', 'aria-live': 'polite' });
  const button = (name, content, onclick, more = {}) => h('button', { type: 'button', class: 'cc-button', 'aria-label': name, title: name, onclick, ...more }, content);
  const still = window.matchMedia('(prefers-reduced-motion: reduce)');
  const turner = button('Turn by itself', '\u21bb Turn', () => (still.matches ? move(3 * STEP, 0) : turning ? halt() : go()), { 'aria-pressed': 'false' });
  const tools = h(
    'div',
    { class: 'cc-tools', role: 'group', 'aria-label': 'View' },
    turner,
    button('Tilt up', '\u2191', () => move(0, -STEP)),
    button('Tilt down', '\u2193', () => move(0, STEP)),
    button('Closer', '+', () => zoom(1.2)),
    button('Further away', '\u2212', () => zoom(1 / 1.2)),
    button('Reset the view', 'Reset', () => reset()),
  );
  const boxes = groupNames.map((name, g) => {
    const members = points.map((_, i) => i).filter((i) => group[i] === g);
    const same = members.every((i) => colours[i].join() === colours[members[0]].join());
    const icon = svg('svg', { class: 'cc-icon', viewBox: '-10 -10 20 20', 'aria-hidden': 'true' }, glyph(markers[g], 5.5, same ? paintOf(colours[members[0]]) : '#9aa2ab'));
    const box = h('input', { type: 'checkbox', class: 'cc-box', onchange: () => toggle(name, box.checked) });
    return { name, box, node: h('label', { class: 'cc-choice' }, box, icon, h('span', {}, name), h('span', { class: 'cc-count' }, `${members.length}`)) };
  });
  const root = h(
    'section',
    { class: 'cb-cloud', 'aria-label': model.get('title') || 'Point cloud' },
    model.get('title') ? h('p', { class: 'cc-title' }, model.get('title')) : null,
    h('fieldset', { class: 'cc-legend' }, h('legend', { class: 'cc-hidden' }, 'Show'), boxes.map((one) => one.node)),
    stage,
    readout,
    tools,
    h('p', { class: 'cc-help', id: `${id}-help` }, h('span', { class: 'cc-mouse' }, 'Drag to turn. '), h('span', { class: 'cc-touch' }, 'Swipe sideways to turn; tap a point for its name. '), 'Keys: arrows turn, + and \u2212 zoom, Home resets; Tab goes to the points, and the arrows then from point to point.'),
    model.get('note') ? h('p', { class: 'cc-note' }, model.get('note')) : null,
  );

  // ---- points: which one is asked for
  const visible = (i) => !hidden.has(groupNames[group[i]]);
  const active = () => [hover, focused, pinned].find((i) => i >= 0 && visible(i)) ?? -1;
  function describe(i) {
    const joined = partners[i].map((j) => labels[j]);
    const few = joined.length > 4 ? [...joined.slice(0, 3), `${joined.length - 3} more`] : joined;
    return { kind: ` (${groupNames[group[i]]})`, joined: few.length ? `, joined to ${listed(few)}` : '' };
  }
  function say(i) {
    if (i < 0) readout.replaceChildren();
    else {
      const { kind, joined } = describe(i);
      readout.replaceChildren(h('strong', {}, labels[i]), `${kind}${joined}`);
    }
  }
  /** The one point that Tab reaches; the arrow keys go on from there. */
  function rove(i) {
    targets.forEach((node, j) => node.setAttribute('tabindex', j === i ? 0 : -1));
  }
  function step(by) {
    const shown = points.map((_, i) => i).filter(visible);
    const at = shown.indexOf(focused);
    targets[shown[(at + by + shown.length) % shown.length]].focus({ preventScroll: true });
  }
  function nearest(event, within) {
    const frame = picture.getBoundingClientRect();
    const x = ((event.clientX - frame.left) * size[0]) / frame.width;
    const y = ((event.clientY - frame.top) * size[1]) / frame.height;
    let best = -1;
    let least = within;
    spots.forEach((spot, i) => {
      // of points in one place the nearer to the viewer
      const distance = Math.hypot(spot.x - x, spot.y - y) - spot.depth;
      if (visible(i) && distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  // ---- the view
  const view = () => model.get('view');
  const setView = (next) => {
    model.set('view', tidyView(next));
  };
  const save = () => model.save_changes();
  function move(turn, tilt) {
    halt();
    const [azimuth, elevation, factor] = view();
    setView([azimuth + turn, elevation + tilt, factor]);
    save();
  }
  function zoom(by) {
    halt();
    const [azimuth, elevation, factor] = view();
    setView([azimuth, elevation, factor * by]);
    save();
  }
  function reset() {
    halt();
    pinned = -1;
    say(focused);
    setView(start);
    save();
    plan();
  }
  let turning = 0;
  function go() {
    turner.setAttribute('aria-pressed', 'true');
    let last = null;
    let azimuth = view()[0];
    const frame = (now) => {
      if (!root.isConnected) return;
      // slow, and a long pause (a hidden tab) is no jump
      if (last != null) azimuth += 0.02 * Math.min(100, now - last);
      last = now;
      setView([azimuth, view()[1], view()[2]]);
      turning = requestAnimationFrame(frame);
    };
    turning = requestAnimationFrame(frame);
  }
  function halt() {
    if (!turning) return;
    cancelAnimationFrame(turning);
    turning = 0;
    turner.setAttribute('aria-pressed', 'false');
    save();
  }
  function toggle(name, show) {
    const others = model.get('hidden').filter((one) => one !== name);
    model.set('hidden', show ? others : [...others, name]);
    save();
  }

  // ---- drawing
  function plan() {
    if (!planned) planned = requestAnimationFrame(draw);
  }
  function textWidth(i) {
    if (!widths[i]) {
      texts[i].removeAttribute('display');
      widths[i] = texts[i].getComputedTextLength?.() || null;
    }
    return widths[i] ?? 7 * labels[i].length;
  }
  function draw() {
    planned = 0;
    const [azimuth, elevation, factor] = view();
    const scale = (Math.min(size[0] - 40, size[1] - 26) / 2 / 1.04) * factor;
    const look = (point) => {
      const seen = project(point, azimuth, elevation);
      return { ...seen, x: size[0] / 2 + scale * seen.x, y: size[1] / 2 - scale * seen.y };
    };
    spots = points.map(look);
    const chosen = active();
    const linked = new Set(chosen < 0 ? [] : partners[chosen]);
    const line = (node, a, b) => set(node, { x1: a.x.toFixed(1), y1: a.y.toFixed(1), x2: b.x.toFixed(1), y2: b.y.toFixed(1) });

    const box = corners.map(look);
    edges.forEach(([i, j], e) => {
      line(edgeNodes[e], box[i], box[j]);
      edgeNodes[e].setAttribute('opacity', (0.65 + 0.35 * ((box[i].depth + box[j].depth) / 2)).toFixed(2));
    });
    links.forEach(([i, j], l) => {
      line(linkNodes[l], spots[i], spots[j]);
      linkNodes[l].style.display = visible(i) && visible(j) ? '' : 'none';
      linkNodes[l].classList.toggle('cc-on', chosen === i || chosen === j);
    });
    picture.classList.toggle('cc-asked', chosen >= 0);
    const order = points.map((_, i) => i).sort((a, b) => spots[a].depth - spots[b].depth);
    order.forEach((i, rank) => {
      const { x, y, depth, near } = spots[i];
      const grown = near * (i === chosen ? 1.25 : 1);
      glyphs[i].setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${grown.toFixed(3)})`);
      glyphs[i].style.display = visible(i) ? '' : 'none';
      glyphs[i].style.opacity = i === chosen || linked.has(i) ? 1 : chosen >= 0 ? 0.25 : (0.78 + 0.22 * depth).toFixed(2);
      if (glyphLayer.children[rank] !== glyphs[i]) glyphLayer.insertBefore(glyphs[i], glyphLayer.children[rank] ?? null);
      set(targets[i], { cx: x.toFixed(1), cy: y.toFixed(1) });
      targets[i].style.display = visible(i) ? '' : 'none';
      targets[i].classList.toggle('cc-on', i === chosen);
    });

    // Of many partners only some are named beside their points, those of the named groups first.
    const said = [...linked].filter(visible).sort((a, b) => named[group[b]] - named[group[a]] || a - b).slice(0, size[0] < 500 ? 3 : 6);
    const rank = (i) => (i === chosen ? 0 : said.includes(i) ? 1 : 2);
    const asked = (i) => rank(i) < 2;
    const shown = order.filter((i) => visible(i) && (asked(i) || named[group[i]])).reverse();
    shown.sort((a, b) => rank(a) - rank(b));
    const wanted = shown.map((i) => ({ index: i, x: spots[i].x, y: spots[i].y, radius: radius * spots[i].near + (i === chosen ? 7 : 0), width: textWidth(i), height: 17, side: sides[i], optional: chosen >= 0 && !asked(i) }));
    const reach = radius + 1;
    const around = spots.filter((_, i) => visible(i)).map(({ x, y }) => [x - reach, y - reach, x + reach, y + reach]);
    const places = new Map(placeLabels(wanted, around, size).map((place) => [place.index, place]));
    texts.forEach((node, i) => {
      const place = places.get(i);
      node.classList.toggle('cc-on', i === chosen);
      node.classList.toggle('cc-linked', asked(i));
      if (!place) {
        node.setAttribute('display', 'none');
        return;
      }
      node.removeAttribute('display');
      sides[i] = place.side;
      set(node, { x: place.box[0].toFixed(1), y: (place.box[1] + 13).toFixed(1) });
    });
  }
  function resize() {
    const width = stage.clientWidth;
    if (!width) return; // in a closed fold
    size = [width, Math.round(clamp(0.64 * width, Math.min(width, 330), 500))];
    picture.setAttribute('viewBox', `0 0 ${size[0]} ${size[1]}`);
    widths.fill(null); // the fonts may have come
    plan();
  }
  function showGroups() {
    hidden = new Set(model.get('hidden'));
    boxes.forEach(({ name, box }) => (box.checked = !hidden.has(name)));
    if (focused >= 0 && !visible(focused)) stage.focus({ preventScroll: true });
    if (pinned >= 0 && !visible(pinned)) pinned = -1;
    const tabbed = targets.findIndex((node) => node.getAttribute('tabindex') === '0');
    if (tabbed < 0 || !visible(tabbed)) rove(points.findIndex((_, i) => visible(i)));
    say(active());
    plan();
  }

  // ---- mouse, finger, keys
  let drag = null;
  stage.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    halt();
    drag = { x: event.clientX, y: event.clientY, view: [...view()], moved: false };
  });
  stage.addEventListener('pointermove', (event) => {
    if (!event.buttons) drag = null; // let go outside
    if (drag && event.isPrimary) {
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.hypot(dx, dy) > 4) {
        drag.moved = true;
        hover = -1;
        stage.setPointerCapture(event.pointerId);
        stage.classList.add('cc-dragging');
      }
      // a finger that moves down scrolls the page, so it never tilts
      const tilt = event.pointerType === 'touch' ? 0 : 0.5 * dy;
      if (drag.moved) setView([drag.view[0] + 0.5 * dx, drag.view[1] + tilt, drag.view[2]]);
    } else if (event.pointerType !== 'touch') {
      const found = nearest(event, 14);
      if (found !== hover) {
        hover = found;
        say(active());
        plan();
      }
    }
  });
  const drop = (event) => {
    if (!drag || !event.isPrimary) return;
    if (drag.moved) save();
    else if (event.type === 'pointerup') {
      const found = nearest(event, event.pointerType === 'touch' ? 26 : 14);
      pinned = found === pinned ? -1 : found;
      say(active());
      plan();
    }
    drag = null;
    stage.classList.remove('cc-dragging');
  };
  stage.addEventListener('pointerup', drop);
  stage.addEventListener('pointercancel', drop);
  stage.addEventListener('pointerleave', () => {
    if (hover < 0) return;
    hover = -1;
    say(active());
    plan();
  });
  // with Ctrl (a pinch on a touch pad) only: an ordinary wheel scrolls the page
  stage.addEventListener(
    'wheel',
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(-0.002 * clamp(event.deltaY, -200, 200)));
    },
    { passive: false },
  );
  stage.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const turns = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
    const onPoint = focused >= 0;
    if (turns[event.key]) {
      if (onPoint) step(turns[event.key][0] + turns[event.key][1] > 0 ? 1 : -1);
      else move(...turns[event.key]);
    } else if (event.key === '+' || event.key === '=') zoom(1.2);
    else if (event.key === '-' || event.key === '\u2212') zoom(1 / 1.2);
    else if (event.key === 'Home') reset();
    else if (event.key === 'Escape' && (onPoint || pinned >= 0)) {
      pinned = -1;
      if (onPoint) stage.focus({ preventScroll: true });
      say(active());
      plan();
    } else return;
    // neither the page scrolls nor the notebook moves to the next cell
    event.preventDefault();
    event.stopPropagation();
  });

  const showMotion = () => {
    const name = still.matches ? 'Turn by a step' : 'Turn by itself';
    set(turner, { 'aria-label': name, title: name });
    if (still.matches) {
      halt();
      turner.removeAttribute('aria-pressed');
    } else turner.setAttribute('aria-pressed', 'false');
  };
  el.append(root);
  showMotion();
  showGroups();
  resize();
  const watch = new ResizeObserver(resize);
  watch.observe(stage);
  still.addEventListener('change', showMotion);
  model.on('change:view', plan);
  model.on('change:hidden', showGroups);
  return () => {
    halt();
    cancelAnimationFrame(planned);
    watch.disconnect();
    still.removeEventListener('change', showMotion);
    model.off('change:view', plan);
    model.off('change:hidden', showGroups);
    root.remove();
  };
}

export default { render };
