// What of the data is shown. The choice is kept in the address, so that it can be shared.

const FILTERS = ['device', 'model', 'test', 'text'];

function filterControl(name) {
  return document.getElementById(`filter-${name}`);
}

/** What "Test or op" distinguishes; nothing for peaks and serving. */
function testOf(row) {
  if (row.kind === 'op') return row.op;
  return row.kind === 'model' || row.kind === 'first_token' ? row.test_name : '';
}

function searchText(row) {
  return [row.test, row.model, row.model_type, row.device, row.driver, row.commit, row.file, row.command, row.kernels,
          row.problem, row.unit].filter(Boolean).join(' ').toLowerCase();
}

/** Fill the controls from the data and call `changed` whenever one changes. */
function startFilters(rows, changed) {
  const choices = {
    device: distinct(rows.map((row) => row.device).filter(Boolean)),
    model: distinct(rows.map((row) => row.model).filter(Boolean)),
    test: distinct(rows.map(testOf).filter(Boolean)),
  };
  for (const [name, values] of Object.entries(choices)) {
    const options = values.map((value) => element('option', {value}, cut(value, 60)));
    filterControl(name).replaceChildren(element('option', {value: ''}, 'all'), ...options);
  }
  const remembered = new URLSearchParams(location.hash.slice(1));
  for (const name of FILTERS) {
    const value = remembered.get(name);
    if (value && (name === 'text' || choices[name].includes(value))) filterControl(name).value = value;
  }
  const form = document.getElementById('filters');
  const update = () => {
    const address = new URLSearchParams();
    for (const name of FILTERS) {
      if (filterControl(name).value) address.set(name, filterControl(name).value);
    }
    history.replaceState(null, '', `#${address}`);
    changed();
  };
  form.addEventListener('input', update);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => setTimeout(update));
}

/** A filter applies to the rows that have what it asks for; peaks only know their device. */
function filtered(rows) {
  const [device, model, test, text] = FILTERS.map((name) => filterControl(name).value);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (device && row.device !== device) return false;
    if (row.kind === 'peak') return true;
    if (model && row.model && row.model !== model) return false;
    if (test && testOf(row) && testOf(row) !== test) return false;
    return words.every((word) => row.search.includes(word));
  });
}
