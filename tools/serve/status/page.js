
"use strict";
// Text goes into the page as text; what a server or a model is called must not become markup.
(() => {
  const INTERVAL_MS = 2000;
  const base = new URL("v1", document.baseURI).href;
  let key = "";  // of the person who looks; it is kept nowhere else
  let before = null;

  const at = (id) => document.getElementById(id);
  const show = (id, text) => { at(id).textContent = text; };

  function ask(path) {
    const headers = key ? {Authorization: `Bearer ${key}`} : {};
    const signal = AbortSignal.timeout(10000);
    return fetch(path, {headers, signal, cache: "no-store", credentials: "omit"});
  }

  // Values by name, one for each model.
  function samples(text) {
    const found = new Map();
    for (const line of text.split("\n")) {
      const match = /^pumice:(\w+)(?:\{.*\})? (\S+)$/.exec(line);
      if (!match) continue;
      if (!found.has(match[1])) found.set(match[1], []);
      found.get(match[1]).push(Number(match[2]));
    }
    return (name) => found.get(name) ?? [];
  }

  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

  function duration(seconds) {
    const minutes = Math.floor(seconds / 60);
    if (minutes < 1) return `${Math.floor(seconds)} s`;
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours < 48) return `${hours} h ${minutes % 60} min`;
    return `${Math.floor(hours / 24)} days`;
  }

  function size(bytes) {
    const mib = bytes / 1048576;
    return mib < 1024 ? `${mib.toFixed(0)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
  }

  function showMetrics(text) {
    const values = samples(text);
    const now = performance.now();
    const generated = sum(values("generation_tokens_total"));
    const asked = sum(values("prefix_cache_queries_total"));
    show("running", sum(values("num_requests_running")));
    show("waiting", sum(values("num_requests_waiting")));
    show("usage", percent(Math.max(0, ...values("kv_cache_usage_perc"))));
    show("hits", asked > 0 ? percent(sum(values("prefix_cache_hits_total")) / asked) : "–");
    show("over", sum(values("requests_total")));
    show("memory", size(Math.max(0, ...values("device_bytes"))));
    show("uptime", duration(Math.max(0, ...values("uptime_seconds"))));
    if (before) {
      const speed = (generated - before.generated) * 1000 / (now - before.now);
      show("speed", `${speed.toFixed(speed < 10 ? 1 : 0)} tokens/s`);
    }
    before = {now, generated};
  }

  function command(model) {
    const body = {model, messages: [{role: "user", content: "Hello"}]};
    const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
    const header = at("unlock").dataset.needed ? " -H 'Authorization: Bearer KEY'" : "";
    return `curl ${base}/chat/completions -H 'Content-Type: application/json'${header} -d '${quoted}'`;
  }

  async function showModels() {
    const answer = await ask("v1/models");
    if (answer.status === 401) at("unlock").dataset.needed = "yes";
    at("unlock").hidden = answer.status !== 401;
    const models = answer.ok ? (await answer.json()).data : [];
    if (answer.ok) {
      show("model", models.map((model) => model.id).join(", "));
      const context = (model) => model.max_model_len ? `${model.max_model_len} tokens` : "not loaded";
      show("context", models.map(context).join(", "));
    }
    show("curl", command(models[0]?.id ?? "MODEL"));
    if (!answer.ok) return;
    const props = await ask("props");
    if (props.ok) show("device", (await props.json()).device ?? "–");
  }

  async function look() {
    try {
      const ready = await ask("health/ready");
      show("state", ready.ok ? "ready" : (await ready.json()).error.message);
      at("state").className = ready.ok ? "good" : "";
      const metrics = await ask("metrics");
      if (metrics.ok) showMetrics(await metrics.text());
      if (at("unlock").hidden) await showModels();
    } catch {
      show("state", "the server does not answer");
      at("state").className = "";
    }
    setTimeout(look, document.hidden ? 5 * INTERVAL_MS : INTERVAL_MS);
  }

  at("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    key = at("key").value;
    at("key").value = "";
    showModels().catch(() => {});
  });
  show("base", base);
  show("curl", command("MODEL"));
  look();
})();
