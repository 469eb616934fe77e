"use strict";
(async () => {
  const root = document.documentElement;
  const config = { // the look of all charts, in the colours of the page
    background: "transparent",
    font: "system-ui, -apple-system, 'Segoe UI', sans-serif",
    view: { stroke: null },
    axis: {
      labelColor: "var(--soft)", titleColor: "var(--soft)", titleFontWeight: "normal", labelFontSize: 11, titleFontSize: 11,
      gridColor: "var(--grid)", domain: false, ticks: false, labelPadding: 6, titlePadding: 8,
    },
    text: { color: "var(--ink)", fontSize: 11 },
    rule: { color: "var(--soft)" },
  };
  // Vega keys plain objects by names: one that every object has, such as "constructor", gets a character of no width
  const named = (_, value) => (typeof value === "string" && value in {} ? `\u200b${value}` : value);
  const charts = JSON.parse(document.getElementById("charts").textContent, named);
  const boxes = [...document.querySelectorAll("input[data-switch]")];
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.dataset.switch);

  const tip = document.getElementById("tip");
  const cell = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const tell = (_, event, item, numbers) => {
    tip.hidden = numbers === null || typeof numbers !== "object";
    if (tip.hidden) return;
    tip.replaceChildren(...Object.entries(numbers).flatMap(([name, text]) => [cell("dt", name), cell("dd", text)]));
    const { clientX: x, clientY: y } = event.changedTouches?.[0] ?? event;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = `${Math.max(8, Math.min(x + 14, root.clientWidth - width - 8))}px`;
    tip.style.top = `${y + 18 + height < root.clientHeight ? y + 18 : Math.max(8, y - height - 14)}px`;
  };

  const square = ({ height, signals, ...rest }) => ({ ...rest, signals: [...signals, { name: "height", update: "width" }] });
  const views = await Promise.all(
    Object.entries(charts).map(async ([place, spec]) => {
      const options = { config, renderer: "svg", actions: false, tooltip: tell, ...(spec.usermeta?.square && { patch: square }) };
      const { view } = await vegaEmbed(document.getElementById(place), spec, options);
      return { view, switchable: (spec.params ?? []).some((param) => param.name === "shown") };
    }),
  );

  const show = async () => {
    const shown = chosen();
    boxes.forEach((box) => { box.disabled = box.checked && shown.length === 1; }); // one method always stays
    document.querySelectorAll("[data-method]").forEach((part) => { part.hidden = !shown.includes(part.dataset.method); });
    const switchable = views.filter((one) => one.switchable);
    await Promise.all(switchable.map(({ view }) => view.signal("shown", shown).runAsync()));
    window.dispatchEvent(new Event("resize")); // panels that came back have a width again
    root.dataset.shown = shown.join(" ");
  };
  boxes.forEach((box) => box.addEventListener("change", show));

  const scrolls = [...document.querySelectorAll(".scroll")];
  const hint = (box) => { // which tables reach beyond the window, and whether something is left to scroll to
    box.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth + 1);
    box.toggleAttribute("data-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };
  const watch = new ResizeObserver((seen) => seen.forEach(({ target }) => hint(target.closest(".scroll"))));
  scrolls.forEach((box) => {
    box.addEventListener("scroll", () => hint(box), { passive: true });
    [box, box.firstElementChild].forEach((part) => watch.observe(part));
  });

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  dark.addEventListener("change", name);
  name();

  await show(); // a browser may bring back earlier choices on reload
  root.dataset.drawn = String(views.length);
})();
