// Stands before the script of every control, in one module with it.

/** Make an element: h('button', {class: 'x', onclick: f}, 'text', child). Text stays text, never HTML. */
function h(tag, attributes = {}, ...children) {
  const svg = tag.startsWith('svg:');
  const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

const svg = (tag, attributes, ...children) => h(`svg:${tag}`, attributes, ...children);
