// Chart.js with this page's colours; every chart has a label and a table beside it.

// Okabe and Ito's colours, which people with colour blindness can tell apart; shapes differ too.
const COLOURS = {
  light: ['#0072b2', '#d55e00', '#009e73', '#c2578f', '#b07800', '#2f8fc4', '#6a5be0', '#7a7a7a'],
  dark: ['#56b4e9', '#f0894a', '#2fcf9f', '#e39fc4', '#f0c040', '#9cc9f0', '#a99cff', '#b8b8b8'],
};
const SHAPES = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot', 'rectRounded', 'cross'];

function isDark() {
  return document.documentElement.dataset.theme === 'dark';
}

/** Colour and shape of the i-th of several series. */
function styleOf(i) {
  const colours = COLOURS[isDark() ? 'dark' : 'light'];
  const colour = colours[i % colours.length];
  return {
    borderColor: colour,
    backgroundColor: colour,
    pointStyle: SHAPES[(i + Math.floor(i / colours.length)) % SHAPES.length],
    pointRadius: 5,
    pointHoverRadius: 8,
    borderWidth: 2,
  };
}

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Writes a point's `mark` beside it, above or below, unless another's is there. */
const pointLabels = {
  id: 'pointLabels',
  afterDatasetsDraw(chart) {
    const {ctx} = chart;
    const taken = [];
    ctx.save();
    ctx.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillStyle = themeColour('--ink');
    chart.data.datasets.forEach((dataset, i) => {
      if (!chart.isDatasetVisible(i)) return;
      chart.getDatasetMeta(i).data.forEach((point, k) => {
        const text = dataset.data[k].mark;
        if (!text) return;
        const {width} = ctx.measureText(text);
        const left = point.x + 9 + width > chart.chartArea.right ? point.x - 9 - width : point.x + 9;
        const box = [-7, 15].map((down) => ({left, right: left + width, top: point.y + down - 11, bottom: point.y + down}))
            .find((place) => !taken.some((other) => overlap(place, other)));
        if (!box) return;
        taken.push(box);
        ctx.fillText(text, left, box.bottom - 1);
      });
    });
    ctx.restore();
  },
};

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/** Round numbers from min to max, at least three wherever a range has room for them: by decades, then ever finer. */
function logTicks(min, max) {
  const decades = (digits) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); ++power) {
      for (const digit of digits) ticks.push(Number((digit * 10 ** power).toPrecision(6)));
    }
    return ticks.filter((tick) => tick >= min && tick <= max);
  };
  const fine = Array.from({length: 90}, (_, i) => 1 + i / 10);
  for (const digits of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7], fine]) {
    const ticks = decades(digits);
    if (ticks.length >= 3) {
      const step = Math.ceil(ticks.length / 10);
      return ticks.filter((_, i) => i % step === 0);
    }
  }
  return [min, max].map((end) => Number(end.toPrecision(3)));
}

function axis(title, logarithmic) {
  return {
    ...(logarithmic && {
      afterBuildTicks: (scale) => { scale.ticks = logTicks(scale.min, scale.max).map((value) => ({value})); },
    }),
    type: logarithmic ? 'logarithmic' : 'linear',
    beginAtZero: !logarithmic,
    title: {display: true, text: title, color: themeColour('--ink')},
    grid: {color: themeColour('--line')},
    ticks: {
      color: themeColour('--soft'),
      maxRotation: 0,
      autoSkipPadding: 12,
      callback: (value) => (logarithmic ? Number(value.toPrecision(3)) : value).toLocaleString('en', {maximumSignificantDigits: 6}),
    },
  };
}

/** Limits of a logarithmic axis: what is drawn and a little more. */
function logRange(values, margin = 1.6) {
  const positive = values.filter((value) => value > 0);
  if (positive.length === 0) return {};
  return {min: Math.min(...positive) / margin, max: Math.max(...positive) * margin};
}

const charts = [];

/**
 * Put a chart of points into `parent`. Each point is {x, y, label, about, mark}: `label` and the lines of
 * `about` show when it is pointed at, `mark` always. Axes: {title, logarithmic, range}.
 */
function drawChart(parent, label, datasets, x, y) {
  const canvas = element('canvas', {role: 'img', 'aria-label': label});
  parent.append(element('div', {class: 'chart'}, canvas));
  const room = Math.max(20, Math.floor(parent.clientWidth / 7) - 6);  // a legend does not wrap
  for (const dataset of datasets) dataset.label = cut(dataset.label, room);
  const chart = new Chart(canvas, {
    type: 'scatter',
    data: {datasets},
    plugins: [pointLabels],
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: {mode: 'nearest', intersect: true},
      scales: {
        x: {...axis(x.title, x.logarithmic), ...x.range},
        y: {...axis(y.title, y.logarithmic), ...y.range},
      },
      plugins: {
        legend: {
          position: 'bottom',
          labels: {
            color: themeColour('--ink'), usePointStyle: true, boxHeight: 7,
            filter: (item) => item.text !== '',  // what belongs to another series has no name of its own
          },
        },
        tooltip: {
          callbacks: {
            title: (items) => items[0]?.raw.label ?? '',
            label: (item) => item.raw.about ?? item.dataset.label,
          },
        },
      },
    },
  });
  charts.push(chart);
}

function dropCharts() {
  for (const chart of charts.splice(0)) chart.destroy();
}
