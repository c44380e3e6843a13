// The scene editor: the reader changes an object of the scene and sees caption, picture, scores and verdicts
// change. Everything is computed here, so that a static page needs no kernel. Imports nothing.

// ---- numbers -------------------------------------------------------------------------------------------

/** The scores trait as float32: [model, scene, query], row-major. Buffers may arrive unaligned, hence the copy. */
function floats(buffer) {
  const view = ArrayBuffer.isView(buffer) ? buffer : new DataView(buffer);
  return new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

function bytes(buffer) {
  const view = ArrayBuffer.isView(buffer) ? buffer : new DataView(buffer);
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** What does not change: sizes, names, heads, and the scale of each head in each model. */
function readSpace(model) {
  const values = model.get('values');
  const concepts = model.get('concepts');
  const nSlots = model.get('n_objects');
  const sizes = values.map((v) => v.length);
  const nObjects = sizes.reduce((a, b) => a * b, 1);
  const objects = Array.from({ length: nObjects }, (_, index) => {
    const object = [];
    for (let k = sizes.length - 1; k >= 0; k--) {
      object.unshift(index % sizes[k]);
      index = Math.floor(index / sizes[k]);
    }
    return object;
  });
  const names = objects.map((object) => object.map((v, k) => values[k][v]).join(' '));
  const heads = [];
  let first = 0;
  for (const [k, name] of concepts.entries()) {
    heads.push({ name, labels: values[k], first, concept: k });
    first += sizes[k];
  }
  heads.push({ name: 'objects', labels: names, first, concept: -1 });
  const nQueries = first + nObjects;
  const all = floats(model.get('scores'));
  const nScenes = nObjects ** nSlots;
  const models = model.get('model_names').map((name, m) => {
    const scores = all.subarray(m * nScenes * nQueries, (m + 1) * nScenes * nQueries);
    return { name, scores, scales: heads.map((head) => scaleOf(scores, nQueries, head)) };
  });
  return { concepts, values, sizes, nSlots, nObjects, objects, names, heads, nQueries, models };
}

/** One scale for all scenes, so that bars can be compared. It starts at 0 unless all scores lie far from it. */
function scaleOf(scores, nQueries, head) {
  let low = Infinity;
  let high = -Infinity;
  for (let row = 0; row < scores.length; row += nQueries) {
    for (let q = head.first; q < head.first + head.labels.length; q++) {
      if (scores[row + q] < low) low = scores[row + q];
      if (scores[row + q] > high) high = scores[row + q];
    }
  }
  const fromZero = low <= 0.5 * high || high <= 0;
  if (fromZero) {
    low = Math.min(low, 0);
    high = Math.max(high, 0);
  }
  const range = high - low || Math.abs(high) || 1;
  if (!fromZero) low -= 0.1 * range;
  if (low < 0) low -= 0.04 * range; // room for the marker of the lowest score
  high += 0.04 * range;
  const digits = Math.min(6, Math.max(2, 2 - Math.floor(Math.log10(range))));
  return {
    fromZero,
    digits,
    zero: fromZero ? (100 * (0 - low)) / (high - low) : 0,
    at: (score) => (100 * (score - low)) / (high - low),
    text: (score) => {
      const text = score.toFixed(digits);
      return (Number(text) === 0 ? text.replace('-', '') : text).replace('-', '\u2212');
    },
  };
}

function objectIndex(space, object) {
  return object.reduce((index, v, k) => index * space.sizes[k] + v, 0);
}

function scoresOf(space, m, scene) {
  const row = scene.reduce((index, object) => index * space.nObjects + objectIndex(space, object), 0);
  return space.models[m].scores.subarray(row * space.nQueries, (row + 1) * space.nQueries);
}

/** Scores of a head no further apart than this are tied: the tolerance is relative to the largest absolute score. */
function tieWidth(head, scores, tolerance) {
  return tolerance * head.labels.reduce((most, _, i) => Math.max(most, Math.abs(scores[head.first + i])), 0);
}

/**
 * Judge one head by the paper's definition, as conceptbind.analysis.recognition does: recognised when the lowest
 * present score is strictly above the highest absent one, and by more than the width of a tie.
 */
function judge(space, head, scores, scene, tolerance) {
  const present = new Set(
    scene.map((object) => (head.concept < 0 ? objectIndex(space, object) : object[head.concept])),
  );
  let lowest = -1;
  let highest = -1;
  const score = (i) => scores[head.first + i];
  head.labels.forEach((_, i) => {
    if (present.has(i)) {
      if (lowest < 0 || score(i) < score(lowest)) lowest = i;
    } else if (highest < 0 || score(i) > score(highest)) highest = i;
  });
  const width = tieWidth(head, scores, tolerance);
  const gap = highest < 0 ? Infinity : score(lowest) - score(highest);
  const outcome = gap > width ? 'yes' : gap >= -width ? 'tie' : 'no';
  // The absent queries that spoil it; tied ones only where none is above.
  const spoil = (i) => !present.has(i) && outcome !== 'yes' && score(i) >= score(lowest) - width;
  return { head, present, lowest, highest, outcome, spoil, score, width };
}

// ---- words ---------------------------------------------------------------------------------------------

const plural = (word) => (/s$/.test(word) ? word : /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const quote = (text) => `\u2018${text}\u2019`;
const listed = (words) =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;

/** Why one head fails, or null. */
function reason(judged) {
  if (judged.outcome === 'yes') return null;
  const { labels } = judged.head;
  const [absent, present] = [quote(labels[judged.highest]), quote(labels[judged.lowest])];
  const than = judged.outcome === 'tie' ? 'exactly as high as' : 'higher than';
  return `${absent} (absent) scores ${than} ${present} (present)`;
}

const OUTCOMES = {
  yes: { sign: '\u2713', word: 'recognised' },
  tie: { sign: '=', word: 'not recognised: a tie' },
  no: { sign: '\u2717', word: 'not recognised' },
};

/** The two verdicts, over all concepts and over the objects: { what, outcome, title, why }. */
function verdicts(space, judged) {
  const concepts = judged.slice(0, -1);
  const objects = judged[judged.length - 1];
  const worst = ['no', 'tie', 'yes'].find((o) => concepts.some((j) => j.outcome === o));
  const groups = [
    ['concepts', worst, concepts, `every ${space.concepts.join(' and every ')} in the scene`],
    ['objects', objects.outcome, [objects], 'each object in the scene'],
  ];
  return groups.map(([what, outcome, members, subject]) => {
    const reasons = members.map(reason).filter(Boolean);
    const why = reasons.length
      ? capital(`${listed(reasons)}.`)
      : `${capital(subject)} scores above ${what === 'objects' ? 'every other object' : 'all that are not'}.`;
    return { what, outcome, why, title: `${capital(what)} ${OUTCOMES[outcome].word}` };
  });
}

/** What the two verdicts mean together, for this scene. */
function conclusion(both, judged) {
  const [concepts, objects] = both.map((v) => v.outcome);
  if (concepts !== 'yes') return '';
  if (objects !== 'yes') {
    return 'These scores are a bag of concepts: they tell which values are there, not which belong together.';
  }
  // Only one set of objects can be made of these values: no test of binding.
  const sizes = judged.map((one) => one.present.size);
  const possible = sizes.slice(0, -1).reduce((a, b) => a * b, 1);
  return possible === sizes[sizes.length - 1]
    ? 'But this scene is no test of binding: these values can make no other objects. Try one whose objects share no value.'
    : 'These scores bind: they tell which values belong together.';
}

const KINDS = [
  ['train', 'train scene', 'every object was seen in training'],
  ['mixed', 'mixed scene', 'some objects were seen in training, some never'],
  ['held-out', 'held-out scene', 'no object was seen in training'],
];

// ---- document ------------------------------------------------------------------------------------------


// Each draws inside 100 x 100. The outline is in the style sheet, so that pale colours show on white.
const SHAPES = {
  square: () => [svg('rect', { x: 17, y: 17, width: 66, height: 66 })],
  triangle: () => [svg('path', { d: 'M50 13 L89 83 H11 Z' })],
  circle: () => [svg('circle', { cx: 50, cy: 50, r: 36 })],
  star: () => [svg('path', { d: 'M50 10 61 38 91 40 68 59 75 88 50 72 25 88 32 59 9 40 39 38Z' })],
  heart: () => [svg('path', { d: 'M50 86 C10 56 10 18 34 18 C44 18 50 28 50 32 C50 28 56 18 66 18 C90 18 90 56 50 86Z' })],
  diamond: () => [svg('path', { d: 'M50 10 86 50 50 90 14 50Z' })],
  cube: () => [
    svg('path', { d: 'M14 36 H64 V86 H14 Z' }),
    svg('path', { d: 'M14 36 34 14 H86 L64 36 Z' }),
    svg('path', { d: 'M14 36 34 14 H86 L64 36 Z', class: 'cb-light' }),
    svg('path', { d: 'M64 36 86 14 V64 L64 86 Z' }),
    svg('path', { d: 'M64 36 86 14 V64 L64 86 Z', class: 'cb-shade' }),
  ],
  cylinder: () => [
    svg('path', { d: 'M20 24 V76 A30 12 0 0 0 80 76 V24' }),
    svg('ellipse', { cx: 50, cy: 24, rx: 30, ry: 12 }),
    svg('ellipse', { cx: 50, cy: 24, rx: 30, ry: 12, class: 'cb-light' }),
  ],
  sphere: () => [
    svg('circle', { cx: 50, cy: 50, r: 37 }),
    svg('ellipse', { cx: 38, cy: 35, rx: 13, ry: 9, transform: 'rotate(-35 38 35)', class: 'cb-gleam' }),
    svg('path', { d: 'M20 72 A37 37 0 0 0 87 50 A46 46 0 0 1 20 72Z', class: 'cb-shade' }),
  ],
  cone: () => [svg('path', { d: 'M50 10 82 76 A32 11 0 0 1 18 76 Z' })],
  pyramid: () => [
    svg('path', { d: 'M50 12 62 88 10 72 Z' }),
    svg('path', { d: 'M50 12 62 88 90 66 Z' }),
    svg('path', { d: 'M50 12 62 88 90 66 Z', class: 'cb-shade' }),
  ],
};

/** Draw an object: its shape in its colour; a tile with the first letters of the noun where there is no such picture. */
function picture(space, object, look) {
  const fill = (look.colourConcept >= 0 && look.colours[space.values[look.colourConcept][object[look.colourConcept]]]) || '#9a9a9a';
  const shape = look.shapeConcept >= 0 ? space.values[look.shapeConcept][object[look.shapeConcept]] : null;
  const draw = shape == null ? null : SHAPES[shape.toLowerCase()];
  const others = object.map((v, k) => (k === look.colourConcept ? null : space.values[k][v])).filter(Boolean);
  const letters = (shape ?? others[others.length - 1] ?? '').slice(0, 3);
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(fill.slice(i, i + 2), 16));
  const ink = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? '#000' : '#fff';
  const marks = draw
    ? draw()
    : [
        svg('rect', { x: 13, y: 13, width: 74, height: 74, rx: 14 }),
        svg('text', { x: 50, y: 60, 'text-anchor': 'middle', class: 'cb-letters', fill: ink }, letters),
      ];
  return svg('svg', { viewBox: '0 0 100 100', class: 'cb-picture', 'aria-hidden': 'true', 'data-fill': fill }, svg('g', { fill }, marks));
}

/** A group of native radio buttons: arrow keys, focus and screen-reader words come with them. */
function radios(name, legend, options, onchoose, className, legendClass = 'cb-legend') {
  const inputs = [];
  const labels = options.map((content, index) => {
    const input = h('input', { type: 'radio', name, class: 'cb-radio', onchange: () => onchoose(index) });
    inputs.push(input);
    return h('label', { class: 'cb-option' }, input, h('span', { class: 'cb-face' }, content));
  });
  const node = h('fieldset', { class: className }, h('legend', { class: legendClass }, legend), h('div', { class: 'cb-options' }, labels));
  return {
    node,
    labels,
    choose: (index) => {
      if (inputs[index] && !inputs[index].checked) inputs[index].checked = true;
    },
  };
}

// ---- charts --------------------------------------------------------------------------------------------

/** One bar: fill from zero, marker at the score, a tick where the score was before, the line of the best absent. */
function bar(judged, scale, i, before) {
  const at = scale.at(judged.score(i));
  const [left, right] = [Math.min(at, scale.zero), Math.max(at, scale.zero)];
  const line = judged.highest >= 0 ? scale.at(judged.score(judged.highest)) : null;
  const moved = before != null && Math.abs(before - judged.score(i)) > 1e-6;
  return h(
    'span',
    { class: 'cb-track', 'aria-hidden': 'true' },
    scale.fromZero ? h('span', { class: 'cb-fill', style: `left:${left}%;width:${right - left}%` }) : null,
    line == null ? null : h('span', { class: 'cb-line', style: `left:${line}%` }),
    moved ? h('span', { class: 'cb-before', style: `left:${scale.at(before)}%` }) : null,
    h('span', { class: 'cb-dot', style: `left:${at}%` }),
  );
}

function entry(judged, i) {
  const present = judged.present.has(i);
  const spoils = judged.spoil(i);
  const tied = spoils && Math.abs(judged.score(i) - judged.score(judged.lowest)) <= judged.width;
  return {
    className: `${present ? 'cb-present' : 'cb-absent'}${spoils ? ' cb-spoils' : ''}`,
    sign: present ? '\u25cf' : spoils ? (tied ? '=' : '\u2717') : '',
    said: present ? 'in the scene' : spoils ? (tied ? 'not in the scene, tied' : 'not in the scene, too high') : 'not in the scene',
  };
}

const hidden = (text) => h('span', { class: 'cb-hidden' }, text);

function row(judged, scale, i, before) {
  const { className, sign, said } = entry(judged, i);
  return h(
    'li',
    { class: `cb-row ${className}`, 'data-query': judged.head.labels[i], 'data-score': judged.score(i) },
    h('span', { class: 'cb-sign', 'aria-hidden': 'true' }, sign),
    h('span', { class: 'cb-name' }, judged.head.labels[i]),
    bar(judged, scale, i, before?.[judged.head.first + i]),
    h('span', { class: 'cb-score' }, scale.text(judged.score(i))),
    hidden(`, ${said}`),
  );
}

/** Concepts, and objects of more than two concepts: one row a query; only the highest where there are many. */
function rows(judged, scale, before) {
  const most = 12;
  let order = judged.head.labels.map((_, i) => i);
  let rest = 0;
  if (order.length > most) {
    order.sort((a, b) => judged.score(b) - judged.score(a) || a - b);
    const shown = order.filter((i, rank) => rank < most || judged.present.has(i));
    rest = order.length - shown.length;
    order = shown;
  }
  return [
    h('ul', { class: 'cb-rows' }, order.map((i) => row(judged, scale, i, before))),
    rest ? h('p', { class: 'cb-note' }, `and ${rest} more that are not in the scene, none higher than the last but those shown`) : null,
  ];
}

/** Objects of two concepts as a table: the concept with more values goes down, the other across. */
function table(space, judged, scale, before) {
  const down = space.sizes[0] >= space.sizes[1] ? 0 : 1;
  const across = 1 - down;
  const head = h(
    'tr',
    {},
    h('td', {}),
    space.values[across].map((name) => h('th', { scope: 'col' }, name)),
  );
  const body = space.values[down].map((name, d) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, name),
      space.values[across].map((_, a) => {
        const object = down === 0 ? [d, a] : [a, d];
        const i = objectIndex(space, object);
        const { className, sign, said } = entry(judged, i);
        return h(
          'td',
          { class: `cb-cell ${className}`, 'data-query': space.names[i], 'data-score': judged.score(i) },
          h(
            'span',
            { class: 'cb-number' },
            h('span', { class: 'cb-sign', 'aria-hidden': 'true' }, sign),
            h('span', { class: 'cb-score' }, scale.text(judged.score(i))),
          ),
          bar(judged, scale, i, before?.[judged.head.first + i]),
          hidden(`, ${said}`),
        );
      }),
    ),
  );
  return [h('table', { class: 'cb-table' }, h('thead', {}, head), h('tbody', {}, body))];
}

// ---- the widget ----------------------------------------------------------------------------------------

function render({ model, el }) {
  const space = readSpace(model);
  const look = {
    colours: model.get('colours'),
    colourConcept: model.get('colour_concept'),
    shapeConcept: model.get('shape_concept'),
  };
  const phrases = model.get('phrases');
  const joiner = model.get('joiner');
  const seen = bytes(model.get('seen'));
  const tolerance = model.get('tolerance');
  const id = `cb${Math.random().toString(36).slice(2)}`; // radio buttons of two editors on a page must not mix
  let selected = 0;
  let before = null; // the scores of the scene before, for the ticks
  let swapped = false; // the next update shows a swap
  let shown = null; // what is on the page: { scene, m, scores }

  const clone = (scene) => scene.map((object) => [...object]);
  const setScene = (scene) => {
    model.set('scene', scene);
    model.save_changes();
  };
  const isSeen = (object) => (seen.length ? seen[objectIndex(space, object)] === 1 : null);

  // the model
  const modelGroup = radios(
    `${id}-model`,
    'Model',
    space.models.map((m) => m.name),
    (m) => {
      model.set('model', space.models[m].name);
      model.save_changes();
    },
    'cb-models',
  );
  modelGroup.node.hidden = space.models.length < 2;

  // the picture: choose an object
  const faces = Array.from({ length: space.nSlots }, () => h('span', { class: 'cb-object' }));
  const slotGroup = radios(
    `${id}-slot`,
    space.nSlots > 1 ? 'Choose an object \u2026' : 'The object',
    faces,
    (slot) => {
      selected = slot;
      showPanel();
    },
    'cb-slots',
  );

  // the panels: change the object
  const panels = faces.map((_, slot) => {
    const groups = space.concepts.map((concept, k) =>
      radios(
        `${id}-${slot}-${k}`,
        capital(concept),
        space.values[k].map((value) => [
          k === look.colourConcept && look.colours[value]
            ? h('span', { class: 'cb-swatch', style: `background:${look.colours[value]}`, 'aria-hidden': 'true' })
            : null,
          value,
        ]),
        (v) => {
          const scene = clone(model.get('scene'));
          scene[slot][k] = v;
          setScene(scene);
        },
        'cb-values',
      ),
    );
    const node = h(
      'div',
      { class: 'cb-panel', role: 'group', 'aria-label': `Change object ${slot + 1}` },
      h('p', { class: 'cb-legend', 'aria-hidden': 'true' }, space.nSlots > 1 ? `\u2026 and change object ${slot + 1}` : 'Change it'),
      groups.map((group) => group.node),
    );
    return { node, groups };
  });
  const showPanel = () => {
    slotGroup.choose(selected);
    panels.forEach((panel, slot) => (panel.node.hidden = slot !== selected));
  };

  const caption = h('p', { class: 'cb-caption' });
  const kind = h('span', { class: 'cb-kind' });
  const note = h('p', { class: 'cb-note cb-swapped' });
  const swap = h('button', { type: 'button', class: 'cb-button', onclick: () => swapFirstConcept() }, `\u21c4 Swap ${plural(space.concepts[0])}`);
  swap.hidden = space.nSlots < 2;
  const verdictBox = h('div', { class: 'cb-verdicts' });
  const charts = h('div', { class: 'cb-charts' });
  const live = h('div', { class: 'cb-hidden', 'aria-live': 'polite', 'aria-atomic': 'true' });
  const root = h(
    'section',
    {
      class: 'cb-editor',
      'aria-label': 'Scene editor',
      // a notebook would move to the next cell
      onkeydown: (event) => event.key.startsWith('Arrow') && event.stopPropagation(),
    },
    modelGroup.node,
    h(
      'div',
      { class: 'cb-top' },
      h('div', { class: 'cb-stage' }, slotGroup.node, caption, h('p', { class: 'cb-kinds' }, kind), h('div', { class: 'cb-actions' }, swap), note),
      h('div', { class: 'cb-panels' }, panels.map((panel) => panel.node)),
    ),
    verdictBox,
    charts,
    live,
  );

  function swapFirstConcept() {
    const scene = clone(model.get('scene'));
    if (scene[0][0] === scene[1][0]) {
      note.textContent = `Both objects have the same ${space.concepts[0]}: nothing to swap.`;
      live.textContent = note.textContent;
      return;
    }
    [scene[0][0], scene[1][0]] = [scene[1][0], scene[0][0]];
    swapped = true;
    setScene(scene);
  }

  /** What swapping did to the scores: nothing, for a bag of concepts. */
  function swapNote(scores) {
    let most = 0;
    scores.forEach((score, q) => {
      if (Math.abs(score - before[q]) > Math.abs(scores[most] - before[most])) most = q;
    });
    const change = Math.abs(scores[most] - before[most]);
    const head = space.heads.findLast((one) => one.first <= most);
    if (change <= tieWidth(head, scores, tolerance)) return 'Swapped: not one score changed.';
    const scale = space.models[shown.m].scales[space.heads.indexOf(head)];
    return `Swapped: the score of ${quote(head.labels[most - head.first])} changed most, by ${scale.text(change)}.`;
  }

  function update() {
    const scene = model.get('scene');
    const m = Math.max(0, space.models.findIndex((one) => one.name === model.get('model')));
    const scores = scoresOf(space, m, scene);
    const same = shown && shown.m === m && JSON.stringify(shown.scene) === JSON.stringify(scene);
    if (same) return;
    before = shown && shown.m === m ? shown.scores : null;
    const first = !shown;
    shown = { scene: clone(scene), m, scores };

    modelGroup.choose(m);
    scene.forEach((object, slot) => {
      const name = space.names[objectIndex(space, object)];
      const wasSeen = isSeen(object);
      faces[slot].replaceChildren(
        picture(space, object, look),
        hidden(`Object ${slot + 1}: `),
        h('span', { class: 'cb-objectname' }, name),
        ...(wasSeen == null
          ? []
          : [hidden(', '), h('span', { class: `cb-chip ${wasSeen ? 'cb-seen' : 'cb-unseen'}` }, wasSeen ? 'seen' : 'never seen', hidden(' in training'))]),
      );
      panels[slot].groups.forEach((group, k) => group.choose(object[k]));
    });
    const text = scene.map((object) => phrases[objectIndex(space, object)]).join(joiner);
    caption.textContent = `\u201c${text}\u201d`;
    kind.parentNode.hidden = !seen.length;
    if (seen.length) {
      const nSeen = scene.filter(isSeen).length;
      const [key, word, meaning] = KINDS[nSeen === scene.length ? 0 : nSeen ? 1 : 2];
      kind.dataset.kind = key;
      kind.replaceChildren(h('strong', {}, capital(word)), `: ${meaning}`);
    }
    note.textContent = swapped && before ? swapNote(scores) : '';
    swapped = false;

    const judged = space.heads.map((head) => judge(space, head, scores, scene, tolerance));
    const both = verdicts(space, judged);
    const meaning = conclusion(both, judged);
    verdictBox.replaceChildren(
      ...both.map((verdict) =>
        h(
          'div',
          { class: 'cb-verdict', 'data-what': verdict.what, 'data-outcome': verdict.outcome },
          h('span', { class: 'cb-mark', 'aria-hidden': 'true' }, OUTCOMES[verdict.outcome].sign),
          h('div', {}, h('p', { class: 'cb-title' }, verdict.title), h('p', { class: 'cb-why' }, verdict.why)),
        ),
      ),
      h('p', { class: 'cb-conclusion' }, meaning),
    );

    const grid = space.concepts.length === 2 && Math.min(...space.sizes) <= 4;
    const figures = judged.map((one, i) => {
      const scale = space.models[m].scales[i];
      const title = one.head.concept < 0 ? 'Objects' : capital(plural(one.head.name));
      return h(
        'div',
        { class: 'cb-chart', role: 'group', 'aria-label': `Scores of ${title.toLowerCase()}`, 'data-head': one.head.name },
        h('p', { class: 'cb-charttitle' }, title),
        one.head.concept < 0 && grid ? table(space, one, scale, before) : rows(one, scale, before),
      );
    });
    charts.replaceChildren(
      h('div', { class: 'cb-column' }, figures.slice(0, -1)),
      h('div', { class: 'cb-column' }, figures[figures.length - 1]),
      h(
        'p',
        { class: 'cb-key' },
        h('span', { class: 'cb-keyitem cb-present' }, h('span', { class: 'cb-sign' }, '\u25cf'), ' in the scene'),
        h('span', { class: 'cb-keyitem' }, h('span', { class: 'cb-keyline' }), ' highest score not in the scene: every \u25cf must lie right of it'),
        h('span', { class: 'cb-keyitem' }, h('span', { class: 'cb-keybefore' }), ' score before the change'),
      ),
    );
    if (!first) live.textContent = [text, ...both.map((v) => `${v.title}. ${v.why}`), note.textContent].filter(Boolean).join('. ');
  }

  el.append(root);
  showPanel();
  update();
  model.on('change:scene', update);
  model.on('change:model', update);
  return () => {
    model.off('change:scene', update);
    model.off('change:model', update);
    root.remove();
  };
}

export default { render };
