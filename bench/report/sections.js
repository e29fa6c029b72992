// What the sections show of the filtered rows: each draws into its own element.

function nothing(text, command) {
  const note = element('p', {class: 'note'}, text);
  if (command) note.append(' Made by ', element('code', {}, command), '.');
  return note;
}

/** The table beside a chart, folded away. */
function numbers(content) {
  return element('details', {}, element('summary', {}, 'The numbers as a table'), content);
}

function listOf(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return element('dl', {}, ...known.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, String(value))]));
}

/** Of several programs in one file (bench/peers.py), which one. */
function testName(row) {
  return row.settings.peer ? `${row.test} (${row.settings.peer})` : row.test;
}

function details(row) {
  const settings = Object.entries(row.settings).map(([name, value]) => `${name} ${value}`).join(', ');
  return element('details', {}, element('summary', {}, 'Origin'), listOf([
    ['device', row.device], ['UUID', row.device_uuid], ['driver', row.driver], ['Vulkan', row.device_api_version], ['commit', row.commit], ['shaders', row.shader_hash],
    ['command', row.command], ['settings', settings], ['when', row.test_time], ['samples', row.n],
    ['file', row.file],
  ]));
}

function drawLedger(parent, rows) {
  const first = new Map(rows.filter((row) => row.kind === 'first_token').map((row) => [row.of, row]));
  const tests = rows.filter((row) => row.kind === 'model');
  if (tests.length === 0) return parent.append(nothing('No test of a model.', 'pumice bench -m model.gguf -o json'));
  const ttft = (row) => first.get(row.id);
  parent.append(table('Tests of models', [
    {title: 'Model', cell: (row) => row.model || row.model_type || '–', key: (row) => row.model},
    {title: 'Device', cell: (row) => row.device_name || '–', key: (row) => row.device},
    {title: 'Test', cell: testName, key: testName, class: 'short'},
    {title: 't/s', cell: score, key: (row) => (row.problem ? NaN : row.median), class: 'number'},
    {title: 'TTFT ms', cell: (row) => score(ttft(row)), key: (row) => ttft(row)?.median ?? NaN, class: 'number'},
    {title: 'Evidence', cell: (row) => row.evidence || '–', key: (row) => row.evidence},
    {title: 'Commit', cell: (row) => row.commit || '–', key: (row) => row.commit},
    {title: 'More', cell: details},
  ], tests, {cards: 'narrow'}));
}

/** Names a row among others by what differs: model, device, and the file if that is not enough. */
function namer(rows) {
  const parts = [(row) => row.settings.peer ?? '', (row) => row.model.replace(/\.gguf$/, ''), (row) => row.device_name];
  const differing = parts.filter((part) => distinct(rows.map(part)).length > 1);
  const shown = differing.length > 0 ? differing : parts;
  const name = (row) => shown.map((part) => part(row)).filter(Boolean).join(', ');
  const files = groupBy(rows, name);
  return (row) => {
    const sameName = distinct(files.get(name(row)).map((other) => other.file));
    return [name(row), sameName.length > 1 ? row.file.replace(/\.jsonl?$/, '') : ''].filter(Boolean).join(', ');
  };
}

function drawDepth(parent, rows) {
  const tests = rows.filter((row) => row.kind === 'model' && !row.problem);
  const key = (row) => JSON.stringify([row.test_name, row.model, row.device, row.file, row.settings.peer]);
  const groups = [...groupBy(tests, key).values()].filter((of) => new Set(of.map((row) => row.n_depth)).size > 1);
  const name = namer(groups.flat());
  const curves = groups.map((of) => [`${of[0].test_name} · ${name(of[0])}`, of]);
  if (curves.length === 0) {
    return parent.append(nothing('No test at several depths.', 'pumice bench -m model.gguf -d 0-4096+1024 -o json'));
  }
  const reads = ([, points]) => points[0].n_gen === 0;
  drawCurves(parent, 'Prompts', curves.filter(reads));
  drawCurves(parent, 'Generation', curves.filter((curve) => !reads(curve)));
  parent.append(numbers(table('Speed at depths', [
    {title: 'Test', cell: (row) => row.test, key: (row) => row.test},
    {title: 'Model', cell: (row) => row.model, key: (row) => row.model},
    {title: 'Device', cell: (row) => row.device_name, key: (row) => row.device},
    {title: 'Depth', cell: (row) => number(row.n_depth), key: (row) => row.n_depth, class: 'number'},
    {title: 't/s', cell: score, key: (row) => row.median, class: 'number'},
  ], curves.flatMap(([, points]) => points), {cards: 'narrow'})));
}

/** curves: [name, rows] each. */
function drawCurves(parent, title, curves) {
  if (curves.length === 0) return;
  const datasets = curves.map(([name, points], i) => ({
    label: name,
    showLine: true,
    ...styleOf(i),
    data: [...points].sort((a, b) => a.n_depth - b.n_depth).map((row) => ({
      x: row.n_depth, y: row.median, label: row.test, about: [name, `${number(row.median)} t/s`],
    })),
  }));
  const speedsOfAll = curves.flatMap(([, points]) => points.map((row) => row.median));
  parent.append(element('h3', {}, title));
  drawChart(parent, `${title}: tokens per second against depth; the numbers are in the table that follows`, datasets,
            {title: 'tokens in the context before'},
            {title: 't/s', logarithmic: true, range: logRange(speedsOfAll, 1.3)});
}

/** The median is in us: flops/us is TFLOP/s times 10⁶. */
function speeds(row) {
  return {
    intensity: row.flops / row.bytes,
    teraflops: row.flops / row.median * 1e-6,
    gigabytes: row.bytes / row.median * 1e-3,
    percent: 100 * row.limit_ns * 1e-3 / row.median,
  };
}

/** A device's bandwidth slope up to its highest arithmetic peak, and the other peaks from there on. */
function roofs(peaks, range) {
  const best = [...groupBy(peaks, (peak) => peak.name).values()].map(bestPeak);
  const bandwidth = Math.max(0, ...best.filter((peak) => peak.unit === 'GB/s').map((peak) => peak.value)) * 1e-3;
  const flat = best.filter((peak) => peak.unit === 'TFLOP/s' && peak.value > 0).sort((a, b) => b.value - a.value);
  if (!(bandwidth > 0) || flat.length === 0) return [];
  const point = (x, y, label) => ({x, y, label, about: `${number(y)} TFLOP/s at ${number(x)} flops a byte`});
  const corner = (peak) => peak.value / bandwidth;
  const slope = [point(range.min, range.min * bandwidth, `${number(bandwidth * 1e3)} GB/s`),
                 point(corner(flat[0]), flat[0].value, `${number(bandwidth * 1e3)} GB/s`)];
  const lines = [slope, ...flat.map((peak) => [point(corner(peak), peak.value, peak.name),
                                              point(Math.max(range.max, corner(peak)), peak.value, peak.name)])];
  return lines.filter(([from]) => from.x < range.max * 100);
}

function drawRoofline(parent, rows) {
  const ops = rows.filter((row) => row.kind === 'op' && !row.problem);
  const peaks = rows.filter((row) => row.kind === 'peak' && !row.problem);
  const points = ops.filter((row) => row.flops > 0 && row.bytes > 0);
  if (points.length === 0) {
    parent.append(nothing('No op that computes.', 'pumice bench --ops -o json'));
  } else {
    drawRoofs(parent, points, peaks);
    if (points.length < ops.length) {
      parent.append(nothing(`${ops.length - points.length} ops only move bytes and have no place here.`));
    }
  }
  if (peaks.length > 0) drawPeaks(parent, peaks);
}

function drawRoofs(parent, points, peaks) {
  const devices = [...devicesOf(points)];
  const range = logRange(points.map((row) => speeds(row).intensity), 3);
  const datasets = devices.map(([device, label], i) => ({
    label,
    ...styleOf(i),
    data: points.filter((row) => row.device === device).map((row) => ({
      x: speeds(row).intensity, y: speeds(row).teraflops, label: row.test,
      about: [label, `${number(speeds(row).teraflops)} TFLOP/s, ${number(speeds(row).gigabytes)} GB/s`,
              `${number(speeds(row).percent)} % of ${row.limit || 'no limit'}`],
    })),
  }));
  const roofsOf = (device) => roofs(peaks.filter((peak) => peak.device === device), range);
  const lines = devices.flatMap(([device, name], nth) => roofsOf(device).map((data, i) => ({
    label: i === 0 ? `${name}: limits` : '',
    data: devices.length > 1 ? data : data.map((end, k) => (k === 0 ? end : {...end, mark: end.label})),
    showLine: true,
    borderColor: styleOf(nth).borderColor,
    backgroundColor: 'transparent',
    borderDash: i === 0 ? [] : [6, 4],
    borderWidth: 1.5,
    pointRadius: 0,
    pointHitRadius: 8,
    pointStyle: 'line',
  })));
  const xs = [...points.map((row) => speeds(row).intensity), ...lines.flatMap(({data}) => data.map((point) => point.x))];
  const ys = [...points.map((row) => speeds(row).teraflops), ...lines.flatMap(({data}) => data.map((point) => point.y))];
  drawChart(parent, 'Roofline: TFLOP/s of each op against its flops a byte; the numbers are in the table that follows',
            [...datasets, ...lines], {title: 'flops a byte', logarithmic: true, range: logRange(xs, 1.2)},
            {title: 'TFLOP/s', logarithmic: true, range: logRange(ys, 1.6)});
  parent.append(numbers(table('Ops', [
    {title: 'Op', cell: (row) => row.test, key: (row) => row.test},
    {title: 'Device', cell: (row) => row.device_name, key: (row) => row.device},
    {title: 'us', cell: score, key: (row) => row.median, class: 'number'},
    {title: 'flops a byte', cell: (row) => number(speeds(row).intensity), key: (row) => speeds(row).intensity, class: 'number'},
    {title: 'TFLOP/s', cell: (row) => number(speeds(row).teraflops), key: (row) => speeds(row).teraflops, class: 'number'},
    {title: 'GB/s', cell: (row) => number(speeds(row).gigabytes), key: (row) => speeds(row).gigabytes, class: 'number'},
    {title: 'Limit', cell: (row) => `${number(speeds(row).percent)} % of ${row.limit || '–'}`, key: (row) => speeds(row).percent},
    {title: 'Kernels', cell: (row) => row.kernels, key: (row) => row.kernels},
  ], points, {cards: 'narrow'})));
}

/** The best of several files; times are best when short. */
function bestPeak(peaks) {
  const better = (a, b) => (a.unit === 'us' ? a.value < b.value : a.value > b.value);
  return peaks.reduce((best, peak) => (better(peak, best) ? peak : best));
}

/** Map from each device to its short name. */
function devicesOf(rows) {
  const names = new Map(rows.map((row) => [row.device, row.device_name || 'unnamed device']));
  return new Map([...names].sort((a, b) => compareKeys(a[1], b[1])));
}

function drawPeaks(parent, peaks) {
  const devices = devicesOf(peaks);
  const lines = [...groupBy(peaks, (row) => row.name)].map(([name, of]) => {
    const best = [...groupBy(of, (row) => row.device)].map(([device, group]) => [device, bestPeak(group)]);
    return {name, unit: of[0].unit, of: new Map(best)};
  });
  parent.append(element('h3', {}, 'Measured peaks'));
  parent.append(table('What kernels that do one thing reach', [
    {title: 'Peak', cell: (line) => `${line.name}, ${line.unit}`, key: (line) => line.name},
    ...[...devices].map(([device, title]) => ({
      title, cell: (line) => number(line.of.get(device)?.value ?? NaN),
      key: (line) => line.of.get(device)?.value ?? NaN, class: 'number',
    })),
  ], lines, {cards: 'wide'}));
}

function drawChunks(parent, rows) {
  const arrivals = rows.filter((row) => row.kind === 'serve' && row.chunk !== undefined && row.itl_p99_s > 0);
  if (arrivals.length === 0) {
    return parent.append(nothing('No arrival of a long prompt.', 'pumice bench -m model.gguf --serve -o json'));
  }
  const where = namer(arrivals);
  const name = (row) => [`${row.long_prompt_tokens} tokens`, where(row)].join(', ');
  const byChunk = (a, b) => compareKeys(Number(a.chunk), Number(b.chunk));
  const point = (row) => ({
    x: row.ttft_s * 1e3, y: row.itl_p99_s * 1e3, label: row.chunk, mark: row.chunk,
    about: [name(row), `TTFT ${number(row.ttft_s * 1e3)} ms, p99 gap ${number(row.itl_p99_s * 1e3)} ms`],
  });
  const isFixed = (row) => /^\d+$/.test(row.chunk);
  const datasets = [...groupBy(arrivals, name)].flatMap(([label, of], i) => [
    {label, ...styleOf(i), showLine: true, data: of.filter(isFixed).sort(byChunk).map(point)},
    {label: '', ...styleOf(i), pointStyle: 'star', pointRadius: 8,
     data: of.filter((row) => !isFixed(row)).map(point)},
  ]);
  drawChart(parent, 'Time to first token of a long prompt against the 99th percentile of the gaps it causes; the numbers are in the table that follows',
            datasets,
            {title: 'TTFT of the long prompt, ms', logarithmic: true, range: logRange(arrivals.map((row) => row.ttft_s * 1e3))},
            {title: 'p99 gap between tokens of the others, ms', logarithmic: true,
             range: logRange(arrivals.map((row) => row.itl_p99_s * 1e3))});
  const ms = (title, key) => ({title, cell: (row) => number(row[key] * 1e3), key: (row) => row[key], class: 'number'});
  parent.append(numbers(table('A long prompt arrives', [
    {title: 'Chunk', cell: (row) => row.chunk, key: (row) => row.chunk},
    {title: 'Prompt', cell: (row) => number(row.long_prompt_tokens), key: (row) => row.long_prompt_tokens, class: 'number'},
    {title: 'On', cell: where, key: where},
    ms('TTFT ms', 'ttft_s'), ms('gap p50 ms', 'itl_p50_s'), ms('p99 ms', 'itl_p99_s'), ms('max ms', 'itl_max_s'),
    ms('idle gap ms', 'idle_itl_s'),
    {title: 't/s', cell: (row) => number(row.tokens_per_s), key: (row) => row.tokens_per_s, class: 'number'},
  ], arrivals, {cards: 'narrow'})));
}

/** From pale to deep as the limit comes nearer; legible under dark text in both themes. */
function heatColour(percent) {
  const nearness = Math.min(Math.max(percent, 0), 100) / 100;
  return `hsl(${20 + 130 * nearness} 65% ${88 - 22 * nearness}%)`;
}

function drawHeatMap(parent, rows) {
  const ops = rows.filter((row) => row.kind === 'op');
  if (ops.length === 0) return parent.append(nothing('No op.', 'pumice bench --ops -o json'));
  const devices = devicesOf(ops);
  const lines = [...groupBy(ops, (row) => row.test)].map(([test, of]) => ({
    test, of: new Map(of.map((row) => [row.device, row])),
  }));
  const percent = (row) => (row && !row.problem ? speeds(row).percent : NaN);
  const cell = (row) => {
    if (!row) return '–';
    if (row.problem) return element('span', {class: 'problem'}, row.problem);
    return `${number(percent(row))} %`;
  };
  const style = (row) => (percent(row) > 0 ? {class: 'heat', style: `background-color: ${heatColour(percent(row))}`}
                                           : {class: 'heat none'});
  parent.append(table('Percent of the limit', [
    {title: 'Op', cell: (line) => line.test, key: (line) => line.test},
    ...[...devices].map(([device, title]) => ({
      title,
      cell: (line) => cell(line.of.get(device)),
      key: (line) => percent(line.of.get(device)),
      class: 'number',
      attributes: (line) => style(line.of.get(device)),
    })),
  ], lines, {cards: devices.size > 1 && 'wide'}));
}
