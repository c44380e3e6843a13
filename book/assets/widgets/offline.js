/* Loaded on pages with widgets, after require.js and before embed-amd.js. */

// RequireJS finds modules (anywidget.js) and fonts beside this file, not in the page's folder or on a CDN.
requirejs.config({ baseUrl: document.currentScript.src.replace(/[^/]*$/, '') });

// The theme's Font Awesome replaces <i> by <svg>; the play widget sets classes of its <i> and needs it to stay.
window.FontAwesomeConfig = { ...window.FontAwesomeConfig, autoReplaceSvg: 'nest' };

// ipywidgets typesets labels by a call of MathJax 2, ["Typeset", MathJax.Hub, element]; answer it with MathJax 3.
addEventListener('load', () => {
  const mathjax = window.MathJax;
  if (!mathjax || mathjax.Hub) return;
  mathjax.Hub = {
    Queue: (...calls) => {
      for (const call of calls) if (mathjax.typesetPromise && call[2]) mathjax.typesetPromise([call[2]]);
    },
  };
});

// Names for what ipywidgets leaves nameless: a slider's handle has no name and says its index, buttons of the play
// widget are bare icons, toggle buttons show what is chosen by colour alone, and labels have the tooltip "null".
(() => {
  const nameSlider = (handle) => {
    const widget = handle.closest('.widget-slider');
    const label = widget?.querySelector('.widget-label');
    const readout = widget?.querySelector('.widget-readout');
    const set = (name, text) => {
      if (text && handle.getAttribute(name) !== text) handle.setAttribute(name, text);
    };
    set('aria-label', label?.textContent.trim());
    set('aria-valuetext', readout?.textContent.trim());
  };
  const name = (node, text) => {
    if (text && !node.getAttribute('aria-label')) node.setAttribute('aria-label', text);
  };
  const nameAll = (root) => {
    root.querySelectorAll('.noUi-handle').forEach((handle) => {
      if (handle.dataset.named) return;
      handle.dataset.named = 'yes';
      nameSlider(handle);
      // noUiSlider itself rewrites aria-valuetext with the index
      new MutationObserver(() => nameSlider(handle)).observe(handle, { attributeFilter: ['aria-valuetext', 'aria-valuenow'] });
      const readout = handle.closest('.widget-slider')?.querySelector('.widget-readout');
      if (readout) new MutationObserver(() => nameSlider(handle)).observe(readout, { childList: true, characterData: true, subtree: true });
    });
    root.querySelectorAll('.widget-play').forEach((player) => {
      player.querySelectorAll('button').forEach((button, i) => name(button, ['Play or pause', 'Stop', 'Repeat'][i]));
    });
    root.querySelectorAll('.widget-toggle-buttons, .widget-radio').forEach((group) => {
      if (!group.hasAttribute('role')) {
        group.setAttribute('role', 'group');
        name(group, group.querySelector('.widget-label')?.textContent.trim());
      }
    });
    root.querySelectorAll('.widget-toggle-button').forEach((button) => {
      const pressed = String(button.classList.contains('mod-active'));
      if (button.getAttribute('aria-pressed') !== pressed) button.setAttribute('aria-pressed', pressed);
    });
    root.querySelectorAll('.widget-label[title="null"]').forEach((label) => label.removeAttribute('title'));
  };
  let waiting = false;
  const watch = () => {
    new MutationObserver(() => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        nameAll(document);
      });
    }).observe(document.querySelector('main') || document.body, {
      childList: true,
      subtree: true,
      attributes: true,
      attributeFilter: ['class'],
    });
    nameAll(document);
  };
  if (document.body) watch();
  else addEventListener('DOMContentLoaded', watch);
})();
