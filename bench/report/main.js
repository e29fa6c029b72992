// Reads the data that the page carries, and draws it again whenever filters or the theme change.

const DRAWN = [
  ['ledger', drawLedger], ['depth', drawDepth], ['roofline', drawRoofline], ['chunks', drawChunks], ['ops', drawHeatMap],
];

function draw(all) {
  const rows = filtered(all);
  dropCharts();
  for (const [id, drawSection] of DRAWN) {
    const body = document.querySelector(`#${id} .body`);
    body.replaceChildren();
    drawSection(body, rows);
  }
  document.getElementById('shown').textContent = `${counted(rows)} of ${counted(all)} measurements`;
}

/** Measurements of tests and ops: peaks say what a device can do, and no filter but the device's drops them. */
function counted(rows) {
  return rows.filter((row) => row.kind !== 'peak').length;
}

/**
 * The same device under several drivers is several devices; each gets a short name, for tables. Who does not say its
 * driver, as llama.cpp's rows, is on the one that others name.
 */
function nameDevices(rows) {
  for (const group of groupBy(rows, (row) => row.device).values()) {
    if (distinct(group.map((row) => row.driver).filter(Boolean)).length < 2) continue;
    for (const row of group) row.device = withDriver(row.device, row.driver);
  }
  const short = (device) => cut(device.replace(/\s*\([^)]*\)/g, ''), 60);
  const taken = groupBy(distinct(rows.map((row) => row.device)), short);
  for (const row of rows) row.device_name = taken.get(short(row.device)).length > 1 ? row.device : short(row.device);
}

/** "llvmpipe (LLVM 15), Mesa 22" of a driver that calls itself "llvmpipe Mesa 22". */
function withDriver(device, driver) {
  if (!driver) return device;
  const first = device.split(' ')[0];
  return `${device}, ${driver.startsWith(`${first} `) ? driver.slice(first.length + 1) : driver}`;
}

function start() {
  const data = JSON.parse(document.getElementById('data').textContent);
  nameDevices(data.rows);
  data.rows.forEach((row) => { row.search = searchText(row); });
  document.getElementById('origin').textContent =
      `${counted(data.rows)} measurements from ${data.files.length === 1 ? '1 file' : `${data.files.length} files`}, ` +
      `page made ${data.made} by pumice ${data.version} (${data.commit}).`;
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw(data.rows);
    });
  };
  startFilters(data.rows, redraw);
  const button = document.getElementById('theme');
  const useTheme = (dark) => {
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    button.textContent = dark ? 'Light' : 'Dark';
  };
  button.addEventListener('click', () => {
    useTheme(!isDark());
    redraw();
  });
  const wish = matchMedia('(prefers-color-scheme: dark)');
  wish.addEventListener('change', () => {
    useTheme(wish.matches);
    redraw();
  });
  useTheme(wish.matches);
  draw(data.rows);
}

start();
